"""The package as a whole: layers, lazy import, examples, conformance."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from conformance import PROBES, Probe, learn

import surefoot

ROOT = Path(__file__).parent.parent


def test_importing_surefoot_loads_neither_torch_nor_gymnasium() -> None:
    packages = ["core", "maths", "nets", "policy", "envs", "collect", "learn", "store", "sinks"]
    imports = "; ".join(f"import surefoot.{name}" for name in packages)
    script = f"import sys, surefoot; {imports}; print({{'torch', 'gymnasium'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_every_public_name_resolves_and_train_stays_the_function() -> None:
    for name in surefoot.__all__:
        assert getattr(surefoot, name).__name__ == name
    importlib.import_module("surefoot.train")
    assert callable(surefoot.train)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = surefoot.trian  # type: ignore[attr-defined]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.env.__name__)
def test_ppo_finds_the_analytic_value_and_the_right_action(probe: Probe) -> None:
    values, actions = learn(probe)
    assert values == pytest.approx(probe.values, rel=0.02)
    assert actions == probe.actions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("cartpole.py", ["--total-steps", "2048", "--out", "run"], "one more episode by hand"),
        ("own_environment.py", ["--total-steps", "1024", "--out", "run"], "return_mean"),
        ("own_loop.py", ["5120"], "KL"),
    ],
)
def test_examples_run(script: str, arguments: list[str], expected: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
