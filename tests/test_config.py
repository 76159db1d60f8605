"""Settings: layers, YAML, and errors that help."""

from pathlib import Path
from typing import Any

import gymnasium
import pytest

from surefoot.config import (
    Config,
    PolicyConfig,
    PPOConfig,
    SACConfig,
    annotated,
    layers,
    resolve,
)
from surefoot.core.errors import ConfigError
from surefoot.envs.queueing import register_envs
from surefoot.schedules import Constant, Linear

PRESETS = sorted(
    (path.parent.name, path.stem)
    for path in (Path(__file__).parent.parent / "surefoot/presets").glob("*/*.yaml")
)


def test_flags_outrank_the_file_which_outranks_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("envs: 4\nppo: {epochs: 7, gamma: 0.5}\n")
    config = resolve("CartPole-v1", file, {"ppo": {"gamma": 0.9}, "seed": 3})
    assert (config.ppo.gamma, config.seed) == (0.9, 3)
    assert (config.ppo.epochs, config.envs) == (7, 4)
    assert config.ppo.learning_rate == Linear(start=1e-3, end=0)
    assert config.ppo.value_coefficient == 0.5


def test_yaml_gives_back_an_equal_config() -> None:
    config = resolve("CartPole-v1", None, {"env_args": {"a": [1, 2]}, "ppo": {"target_kl": 0.1}})
    assert Config.from_yaml(config.to_yaml()) == config


def test_the_annotated_form_says_where_settings_come_from_and_can_be_read_back() -> None:
    flags = {"seed": 5}
    config = resolve("CartPole-v1", None, flags)
    text = annotated(config, {**layers("CartPole-v1"), "flag": flags})
    assert "seed: 5  # from flag" in text
    assert "envs: 8  # from preset" in text
    assert "gae_lambda: 0.8  # from preset" in text
    assert "value_coefficient: 0.5  # from default" in text
    assert "# Discount per step." in text
    assert Config.from_yaml(text) == config


def test_a_config_is_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        Config().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sed": 1}, r"unknown setting 'sed'; did you mean 'seed'\?"),
        ({"ppo": {"learing_rate": 1}}, r"'ppo.learing_rate'; did you mean 'learning_rate'\?"),
        ({"ppo": {"gamma": 1.5}}, r"ppo.gamma=1.5: input should be less than or equal to 1"),
        ({"ppo": {"learning_rate": "lin:1:0"}}, r"unknown schedule 'lin'; did you mean 'linear'"),
        (
            {"ppo": {"learning_rate": "linear:1"}},
            r"learning_rate='linear:1': a schedule is a number",
        ),
        ({"ppo": {"learning_rate": -1}}, r"learning_rate=-1: a schedule is a number"),
        ({"ppo": {"clip_range": "adaptive:1:1"}}, r"ppo.clip_range"),
        ({"envs": 0}, r"envs=0: input should be greater than 0"),
        ({"policy": {"activation": "tahn"}}, r"policy.activation='tahn': .*'tanh'"),
        ({"ppo": {"gamma": float("nan")}}, r"ppo.gamma"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_a_remedy(settings: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match=message):
        resolve("CartPole-v1", None, settings)


def test_a_wrong_setting_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("ppo: {epoch: 3}")
    with pytest.raises(ConfigError, match=r"'ppo.epoch' \(in .*mine.yaml\); did you mean 'epochs'"):
        resolve("CartPole-v1", file)


@pytest.mark.parametrize(
    ("content", "message"),
    [("- 1\n- 2", "must be a mapping"), ("a: [", "not valid YAML"), (None, "cannot read")],
)
def test_a_file_that_is_no_config_says_so(
    tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        resolve("CartPole-v1", file)


def test_a_minibatch_larger_than_the_experience_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(ConfigError, match="2 rows × horizon 8 = 16 steps"):
        PPOConfig(horizon=8, minibatch_size=64).check(rows=2)
    PPOConfig(horizon=8, minibatch_size=64, buffer_steps=64).check(rows=2)
    with pytest.raises(ConfigError, match="microbatch_size=65 exceeds"):
        PPOConfig(microbatch_size=65).check(rows=2)


@pytest.mark.parametrize(
    ("done", "rollouts", "updates"),
    [(0, 2500, 19_000), (500, 2438, 19_000), (10_000, 1250, 10_000)],
)
def test_what_is_left_of_a_run_is_counted_from_a_step_on(
    done: int, rollouts: int, updates: int
) -> None:
    sac = SACConfig(horizon=2, learning_starts=1_000)  # which are over after 10,000 steps
    counts = Config(algo="sac", envs=4, total_steps=20_000, sac=sac).counts(done)
    assert (counts["rollouts"], counts["optimizer steps"]) == (rollouts, updates)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("")
    assert resolve("X-v0", file) == Config(env="X-v0")


@pytest.mark.parametrize(("algo", "name"), PRESETS)
def test_every_preset_is_valid_and_for_an_environment_that_exists(algo: str, name: str) -> None:
    register_envs()
    name = name.replace("surefoot-", "surefoot/")
    config = resolve(name, None, {"algo": algo})
    assert config.algo == algo
    assert gymnasium.spec(name).id == name
    config.ppo.check(config.envs)
    config.sac.check(config.total_steps)
    assert config.total_steps > config.iteration_steps()


def test_an_algorithm_has_presets_and_defaults_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "soft.yaml"
    file.write_text("algo: sac\n")
    for config in (resolve("Pendulum-v1", None, {"algo": "sac"}), resolve("Pendulum-v1", file)):
        assert (config.envs, config.policy.hidden, config.policy.activation) == (
            1,
            (256, 256),
            "relu",
        )
    assert resolve("Pendulum-v1").envs == 4
    assert resolve("Pendulum-v1").policy.hidden == (64, 64)
    small = Config(algo="sac", policy=PolicyConfig(hidden=(8,)))
    assert (small.policy.hidden, small.policy.activation) == ((8,), "relu")
    assert Config.from_yaml(small.to_yaml()) == small


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"learning_starts": 20, "replay_steps": 10, "batch_size": 4},
            "learning_starts=20 exceeds",
        ),
        ({"replay_steps": 10, "learning_starts": 0}, "batch_size=256 exceeds"),
        ({"learning_starts": 100}, "nothing would be learned"),
    ],
)
def test_sizes_with_which_nothing_could_be_learned_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SACConfig(**settings).check(100)


def test_defaults_are_the_usual_ones() -> None:
    assert Config().ppo.learning_rate == Constant(value=3e-4)
    assert Config().ppo.clip_range == Constant(value=0.2)


def test_checkpoints_are_spaced_by_the_length_of_the_run() -> None:
    def iterations(total: int, every: str | None = None) -> int:
        settings = {"total_steps": total, "checkpoint_every": every, "envs": 8}
        return resolve("X", None, {**settings, "ppo": {"horizon": 25}}).checkpoint_iterations()

    assert iterations(10_000) == 12  # every 2,500 steps at most
    assert iterations(100_000) == 25
    assert iterations(10**9) == 2500  # every 500,000 at least
    assert iterations(10_000, "7it") == 7
    assert iterations(10_000, "1e3") == 5
    assert iterations(10_000, "30") == 1


@pytest.mark.parametrize("costly", [{"overlap": True}, {"restore": "fresh"}], ids=str)
def test_checkpoints_that_cost_more_than_to_write_them_are_rare(costly: dict[str, Any]) -> None:
    """Nobody plays ahead of them, or episodes are cut."""
    usual = {"total_steps": 200_000, "envs": 16, "ppo": {"horizon": 512}}
    assert resolve("X", None, usual).checkpoint_iterations() == 1
    assert resolve("X", None, {**usual, **costly}).checkpoint_iterations() == 10
    often = {**usual, **costly, "checkpoint_every": "2it"}
    assert resolve("X", None, often).checkpoint_iterations() == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"envs": 32}, 32),
        ({"envs": 65}, 33),
        ({"envs": 65, "overlap": True}, 33),
        ({"envs": 65, "env_backend": "envpool"}, 33),
        ({"envs": 65, "env_backend": "envpool", "overlap": True}, 65),
        ({"envs": 65, "inference_rows": 4}, 4),
    ],
    ids=str,
)
def test_many_rows_are_asked_for_in_halves_unless_one_worker_plays_them(
    settings: Any, expected: int
) -> None:
    assert Config(**settings).inference_width() == expected
