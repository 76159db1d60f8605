"""What people are shown of the metrics of an iteration: named values in sections."""

from __future__ import annotations

from surefoot.core.metrics import Metrics

ROLLOUT = {
    "ppo": {
        "mean_clipped_ratio": ("ppo/clip_fraction", ".3f"),
        "approx_kl": ("ppo/approx_kl", ".5f"),
    },
    "sac": {"entropy": ("sac/entropy", ".3f"), "td_error": ("sac/td_error_abs", ".4g")},
}
TRAINER = {
    "ppo": {"clip_range": ("ppo/clip_range", ".4g"), "learning_rate": ("ppo/learning_rate", ".3g")},
    "sac": {
        "updates_count": ("progress/optimizer_steps", ",.0f"),
        "alpha": ("sac/alpha", ".4g"),
        "learning_rate": ("sac/learning_rate", ".3g"),
    },
}
"""What algorithms have to show of their own: labels, metrics and how to write them."""
LASTING = ("eval/", "sac/")
"""Groups that do not come with every iteration, and are shown until they come again."""


def sections(
    metrics: Metrics, recent: int, elapsed: float, algo: str = "ppo"
) -> dict[str, dict[str, str]]:
    """Arrange metrics as sections of labelled values; an absent metric shows as a dash. What the
    environment reports, and evaluations, have sections of their own if there are any."""

    def show(name: str, form: str = ".4g") -> str:
        return format(metrics[name], form) if name in metrics else "-"

    by_step = "best/lta_return" in metrics or "recent/return_mean" not in metrics
    by_step = by_step and "recent/lta_return_mean" in metrics
    endless = by_step and "recent/return_mean" not in metrics
    counted = "is_success" if metrics.get("recent/success_reported") else "terminated"
    return {
        "rollout": {
            "mean_ep_len": show("rollout/episode_length_mean", ".1f"),
            "mean_ep_return": show("rollout/episode_return_mean", ".2f"),
            "mean_reward": show("rollout/reward_mean"),
            **{label: show(*how) for label, how in ROLLOUT[algo].items()},
            "rollout_len": show("rollout/steps", ",.0f"),
            "time_elapsed": duration(elapsed),
        },
        "recent rollouts" if endless else f"recent {recent} episodes": {
            "mean_ep_len": show("recent/length_mean", ".1f"),
            "mean_ep_return": show("recent/return_mean", ".2f"),
            **({"mean_lta_return": show("recent/lta_return_mean")} if by_step else {}),
            f"success_rate ({counted})": show("recent/success_rate", ".3f"),
        },
        "trainer": {
            "episodes_count": show("progress/episodes", ",.0f"),
            "timesteps_count": show("progress/steps", ",.0f"),
            "rollouts_count": show("progress/iterations", ",.0f"),
            "total_timesteps": show("progress/total_steps", ",.0f"),
            **{label: show(*how) for label, how in TRAINER[algo].items()},
        },
        **_reported(metrics, "env/", "environment"),
        **_reported(metrics, "eval/", "evaluation"),
    }


def _reported(metrics: Metrics, prefix: str, title: str) -> dict[str, dict[str, str]]:
    """Make a section of all metrics of a group, if there are any."""
    found = {name: value for name, value in metrics.items() if name.startswith(prefix)}
    shown = {name.removeprefix(prefix): f"{value:.4g}" for name, value in found.items()}
    return {title: shown} if shown else {}


def lasting(metrics: Metrics) -> Metrics:
    """Pick what is shown until there is another."""
    return {name: value for name, value in metrics.items() if name.startswith(LASTING)}


def duration(seconds: float) -> str:
    """Write a time span for people: 8.3s, 4:05, 1:02:03."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
