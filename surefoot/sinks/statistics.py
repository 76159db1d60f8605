"""What people are shown of the metrics of an iteration: named values in sections."""

from __future__ import annotations

from surefoot.core.metrics import Metrics


def sections(metrics: Metrics, recent: int, elapsed: float) -> dict[str, dict[str, str]]:
    """Arrange metrics as sections of labelled values; an absent metric shows as a dash. What the
    environment reports, and evaluations, have sections of their own if there are any."""

    def show(name: str, form: str = ".4g") -> str:
        return format(metrics[name], form) if name in metrics else "-"

    counted = "is_success" if metrics.get("recent/success_reported") else "terminated"
    return {
        "rollout": {
            "mean_ep_len": show("rollout/episode_length_mean", ".1f"),
            "mean_ep_return": show("rollout/episode_return_mean", ".2f"),
            "mean_reward": show("rollout/reward_mean"),
            "mean_clipped_ratio": show("ppo/clip_fraction", ".3f"),
            "approx_kl": show("ppo/approx_kl", ".5f"),
            "rollout_len": show("rollout/steps", ",.0f"),
            "time_elapsed": duration(elapsed),
        },
        f"recent {recent} episodes": {
            "mean_ep_len": show("recent/length_mean", ".1f"),
            "mean_ep_return": show("recent/return_mean", ".2f"),
            f"success_rate ({counted})": show("recent/success_rate", ".3f"),
        },
        "trainer": {
            "episodes_count": show("progress/episodes", ",.0f"),
            "timesteps_count": show("progress/steps", ",.0f"),
            "rollouts_count": show("progress/iterations", ",.0f"),
            "total_timesteps": show("progress/total_steps", ",.0f"),
            "clip_range": show("ppo/clip_range"),
            "learning_rate": show("ppo/learning_rate", ".3g"),
        },
        **_reported(metrics, "env/", "environment"),
        **_reported(metrics, "evaluate/", "evaluation"),
    }


def _reported(metrics: Metrics, prefix: str, title: str) -> dict[str, dict[str, str]]:
    """Make a section of all metrics of a group, if there are any."""
    found = {name: value for name, value in metrics.items() if name.startswith(prefix)}
    shown = {name.removeprefix(prefix): f"{value:.4g}" for name, value in found.items()}
    return {title: shown} if shown else {}


def evaluated(metrics: Metrics) -> Metrics:
    """Pick what the last evaluation said: it is shown until there is another."""
    return {name: value for name, value in metrics.items() if name.startswith("evaluate/")}


def duration(seconds: float) -> str:
    """Write a time span for people: 8.3s, 4:05, 1:02:03."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
