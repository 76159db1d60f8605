"""Schedules at their ends and middle."""

import pytest

from surefoot.learn.rates import follow
from surefoot.maths import schedules
from surefoot.schedules import Constant, Cosine, Linear, parse_schedule


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (Constant(value=2), (2, 2, 2)),
        (Linear(start=4, end=0), (4, 3, 0)),
        (Cosine(start=4, end=0), (4, 2 + 2 * 2**-0.5, 0)),
    ],
)
def test_value_at_start_quarter_and_end(schedule: Linear, values: tuple[float, ...]) -> None:
    got = [follow(schedule)(fraction) for fraction in (0, 0.25, 1)]
    assert got == pytest.approx(values)


@pytest.mark.parametrize(("kl", "expected"), [(0.021, 1e-3), (0.02, 1.5e-3), (0.0049, 2.25e-3)])
def test_adaptive_rate_falls_above_twice_and_rises_below_half_the_target(
    kl: float, expected: float
) -> None:
    rate = schedules.adapted(1.5e-3, kl, 0.01)
    assert rate == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["0.0003", "linear:0.001:0.0", "cosine:0.1:0.01", "adaptive:0.1:0.01"]
)
def test_a_schedule_reads_what_it_writes(text: str) -> None:
    assert str(parse_schedule(text)) == text


def test_a_schedule_may_be_a_mapping() -> None:
    assert parse_schedule({"kind": "linear", "start": 1, "end": 0}) == Linear(start=1, end=0)
