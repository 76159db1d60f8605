"""Writes the page: one HTML file that needs no network, with plotly.js in it once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from surefoot.core.errors import RunError
from surefoot.report.contents import contents
from surefoot.run import Run
from surefoot.store import durable

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<script type="application/json" id="data">{data}</script>
<script>{plotly}</script>
<script>{script}</script>
</body>
</html>
"""


def write_report(runs: Sequence[Run], out: Path) -> Path:
    """Write a report about runs; return where."""
    names = ", ".join(run.name for run in runs)
    data: dict[str, Any] = {"title": names, "runs": [contents(run) for run in runs]}
    page = PAGE.format(
        title=escape(f"{names} · surefoot"),
        style=_asset("page.css"),
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        script=_asset("page.js"),
    )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        durable.write_file(out, page.encode())
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror}") from None
    return out


def _asset(name: str) -> str:
    return (resources.files("surefoot.report") / name).read_text("utf-8")
