"""A factory packed in one process makes the same environments in a new one."""

import functools
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from surefoot.core.errors import ConfigError
from surefoot.envs import make
from tests.counter import Counter

OWN = """
import gymnasium
from tests.counter import Counter

class Own(Counter):
    pass

def build(length=4):
    return Own(length)

gymnasium.register("InFile-v0", entry_point=Own, max_episode_steps=6)
"""
SCRIPT = """
import functools, pickle, sys
import gymnasium
from surefoot.envs import make
from tests.counter import Counter

class Mine(Counter):
    pass

def build(length=4):
    return Mine(length)

def nested(length):
    class Inner(Mine):
        pass
    return lambda: Inner(length)

ids = {
    "of a lambda": dict(entry_point=lambda length=4: Counter(length)),
    "of a class": dict(entry_point=Mine, kwargs={"length": 4}),
    "of a name": dict(entry_point=f"{__name__}:Mine", kwargs={"length": 4}),
    "with a limit": dict(entry_point=Mine, max_episode_steps=4, kwargs={"length": 99}),
    "of a known name": dict(entry_point=Mine, kwargs={"length": 4}),
}
factories = {
    "a function": make.factory(build),
    "a class": make.factory(Mine, {"length": 4}),
    "a lambda": make.factory(lambda length: Mine(length), {"length": 4}),
    "a nested class": make.factory(nested(4)),
    "a partial": make.factory(functools.partial(build, length=4)),
}
for number, (what, options) in enumerate(ids.items()):
    name = "CartPole-v1" if what == "of a known name" else f"Script{number}-v0"
    gymnasium.register(name, **options)
    factories[f"an id {what}"] = make.factory(name)
sys.stdout.buffer.write(pickle.dumps({k: make.ship(f) for k, f in factories.items()}))
"""
RECEIVER = """
import pickle, sys
from surefoot.envs import make

def played(packed):
    try:
        factory = make.unship(packed)
        env = factory()
        env.reset(seed=3)
        for steps in range(1, 100):
            obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                return type(env.unwrapped).__name__, steps, obs.tolist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

results = {k: played(packed) for k, packed in pickle.load(sys.stdin.buffer).items()}
results["torch"] = "torch" in sys.modules
sys.stdout.buffer.write(pickle.dumps(results))
"""


def python(script: str, content: bytes = b"") -> Any:
    """Run a script in a new process; return what it printed, unpickled."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=content, check=True, stdout=subprocess.PIPE)
    return pickle.loads(done.stdout)


def elsewhere(**factories: make.Factory) -> dict[str, Any]:
    """Send factories to a new process; return the class, length and end of an episode there."""
    packed = {name: make.ship(factory) for name, factory in factories.items()}
    return python(RECEIVER, pickle.dumps(packed))  # type: ignore[no-any-return]


def here(env: gymnasium.Env[Any, Any]) -> Any:
    """Play an episode in this process."""
    env.reset(seed=3)
    for steps in range(1, 100):
        obs, _, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            return type(env.unwrapped).__name__, steps, obs.tolist()
    return None


@pytest.fixture(scope="module")
def from_main() -> Any:
    """What arrived from a script that defined and registered everything in its `__main__`."""
    return python(RECEIVER, pickle.dumps(python(SCRIPT)))


FOUR = [4.0, pytest.approx(0.0856, abs=1e-4)]  # four steps, and the mark that seed 3 draws


@pytest.mark.parametrize(
    ("what", "made"),
    [
        ("a function", "Mine"),
        ("a class", "Mine"),
        ("a lambda", "Mine"),
        ("a nested class", "Inner"),
        ("a partial", "Mine"),
        ("an id of a lambda", "Counter"),
        ("an id of a class", "Mine"),
        ("an id of a name", "Mine"),
        ("an id with a limit", "Mine"),
        ("an id of a known name", "Mine"),
    ],
)
def test_what_only_a_script_knows_arrives_in_a_new_process(
    from_main: Any, what: str, made: str
) -> None:
    assert from_main[what] == (made, 4, FOUR)


def test_a_new_process_builds_environments_without_torch() -> None:
    by_value = make.factory(lambda: gymnasium.make("CartPole-v1"))
    arrived = elsewhere(id=make.factory("CartPole-v1"), function=by_value)
    assert [arrived[what][0] for what in ("id", "function")] == ["CartPoleEnv"] * 2
    assert arrived["torch"] is False


def test_ids_modules_and_files_are_found_again_in_a_new_process(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    file = tmp_path / "own.py"
    arrived = elsewhere(
        id=make.factory("CartPole-v1", {"max_episode_steps": 3}),
        module=make.factory("tests.counter:Counter", {"length": 4}),
        function=make.factory(Counter, {"length": 4}),
        partial=make.factory(functools.partial(Counter, length=4)),
        file=make.factory(f"{file}:build"),
        registered=make.factory(f"{file}:InFile-v0", {"length": 99}),
    )
    assert arrived["id"][:2] == ("CartPoleEnv", 3)
    for what in ("module", "function", "partial"):
        assert arrived[what] == ("Counter", 4, FOUR), what
    assert arrived["file"] == ("Own", 4, FOUR)
    assert arrived["registered"][:2] == ("Own", 6)


def test_a_file_named_from_here_is_found_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "near.py").write_text(OWN.replace("InFile", "Near"))
    monkeypatch.chdir(tmp_path)
    build = make.factory("near.py:build")
    monkeypatch.chdir("/")
    assert here(build()) == ("Own", 4, FOUR)


def test_an_id_that_a_module_registers_can_be_named_with_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registering.py").write_text(OWN.replace("InFile", "InModule"))
    monkeypatch.syspath_prepend(tmp_path)
    assert here(make.factory("registering:InModule-v0", {"length": 9})()) == (
        "Own",
        6,
        [6.0, FOUR[1]],
    )


def test_what_cannot_be_packed_is_named_with_the_remedy(tmp_path: Path) -> None:
    with (tmp_path / "log.txt").open("w") as log:

        def writes() -> Counter:
            return Counter(len(log.name))

        message = r"writes> cannot be sent to a worker process: its 'log' is a TextIOWrapper"
        remedy = r"make that inside the function, or use --collector local"
        with pytest.raises(ConfigError, match=rf"{message}.*; {remedy}"):
            make.ship(make.factory(writes))
    with pytest.raises(
        ConfigError, match=r"counter:Counter .* its 'action' is a lock: cannot pickle"
    ):
        make.ship(make.factory(Counter, {"action": threading.Lock()}))
    held = functools.partial(Counter, action=threading.Lock())
    with pytest.raises(ConfigError, match=r"<partial> .*: cannot pickle '_thread.lock'"):
        make.ship(make.factory(held))


def test_what_cannot_be_unpacked_names_the_environment_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = make.ship(make.factory(Counter))
    monkeypatch.delattr("tests.counter.Counter")
    message = r"tests.counter:Counter cannot be used in a worker process: .*Counter.*; name it as"
    with pytest.raises(ConfigError, match=message):
        make.unship(packed)
