"""The log that every other view can be made from."""

import json
from pathlib import Path

from surefoot.sinks.jsonl import JsonLines


def test_json_lines_hold_every_iteration_and_timed_events(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path)
    for step in (1, 2):
        sink.write(step, {"a": step / 2})
    sink.event({"event": "start"})
    sink.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"step": 1, "a": 0.5}, {"step": 2, "a": 1.0}]
    (entry,) = map(json.loads, (tmp_path / "journal.jsonl").read_text().splitlines())
    assert entry["event"] == "start"
    assert "time" in entry
