"""Reports in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, sync_playwright

from surefoot.report.page import write_report
from surefoot.run import Run
from surefoot.video.shoot import shoot
from tests.trained import copy, trained

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), "")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LAPTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=800)
SCRIPT = "<script>alert(1)</script>"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: make programs"),
]
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open reports; in the end nothing may have gone wrong in any of them."""
    wrong: list[str] = []

    def open_report(*runs: Run, size: ViewportSize = LAPTOP, scheme: Any = "light") -> Page:
        file = write_report(runs, tmp_path / "report.html")
        page = browser.new_page(viewport=size, color_scheme=scheme)
        page.on("console", lambda message: wrong.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: wrong.extend(_outside(request.url)))
        page.goto(file.as_uri())
        page.wait_for_selector(".main-svg")
        return page

    yield open_report
    assert wrong == []


def _outside(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:", "blob:")) else [f"request: {url}"]


def card(page: Page, title: str) -> Locator:
    """Find a card by its title, scrolled to and drawn."""
    found = page.locator(".card").filter(has=page.get_by_text(title, exact=True))
    found.scroll_into_view_if_needed()
    found.locator(".main-svg").first.wait_for()
    return found


def curves(page: Page, title: str) -> list[dict[str, Any]]:
    """Read what is drawn in a card."""
    script = "plot => plot.data.map(({name, x, y, visible}) => ({name, x, y, visible}))"
    found: list[dict[str, Any]] = card(page, title).locator(".plot").evaluate(script)
    return found


def wait_for_drawing(page: Page) -> None:
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_its_screen_and_has_no_empty_panel(
    show: Open, size: ViewportSize, scheme: str
) -> None:
    page = show(trained(), size=size, scheme=scheme)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= size["width"]
    assert page.evaluate("() => document.documentElement.dataset.theme") == scheme
    titles = page.locator(".card h3").all_inner_texts()
    assert {"Return of recent episodes", "Gradient norms", "Where the time went"} <= set(titles)
    for title in titles:
        drawn = curves(page, title)
        assert any(len(curve["x"]) for curve in drawn), title


def test_the_curve_is_the_one_in_the_metrics(show: Open) -> None:
    run = trained()
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    points = [(r["step"], r["recent/return_mean"]) for r in rows if "recent/return_mean" in r]
    page = show(run)
    first, *others = curves(page, "Return of recent episodes")
    assert first["x"] == [step for step, _ in points]
    assert first["y"] == pytest.approx([value for _, value in points], rel=1e-4)
    assert {"evaluation", "best checkpoint"} <= {curve["name"] for curve in others}


def test_hovering_tells_the_numbers(show: Open) -> None:
    page = show(trained())
    plot = card(page, "Return of recent episodes").locator(".nsewdrag").first
    plot.hover()
    text = " ".join(page.locator(".hoverlayer text").all_text_contents())
    assert "return_mean" in text


def test_a_click_on_the_legend_hides_a_curve(show: Open) -> None:
    page = show(trained())
    found = card(page, "Gradient norms")
    found.locator(".legendtoggle").first.click()
    page.wait_for_timeout(600)  # a double click would mean something else
    hidden = [curve["visible"] == "legendonly" for curve in curves(page, "Gradient norms")]
    assert hidden == [True, False]


def test_the_slider_smooths(show: Open) -> None:
    page = show(trained())
    (before,) = curves(page, "Policy loss")
    page.locator("#smoothing").fill("0.9")
    wait_for_drawing(page)
    raw, smooth = curves(page, "Policy loss")
    assert raw["y"] == before["y"]
    assert _roughness(smooth["y"]) < 0.5 * _roughness(raw["y"])


def _roughness(values: list[float]) -> float:
    return sum(abs(b - a) for a, b in pairwise(values))


@pytest.mark.parametrize(("axis", "last"), [("episode", "episodes"), ("step", "steps")])
def test_curves_go_over_steps_or_episodes(show: Open, axis: str, last: str) -> None:
    run = trained()
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    page = show(run)
    page.locator("#axis").select_option(axis)
    wait_for_drawing(page)
    (curve,) = curves(page, "Policy loss")
    assert curve["x"][-1] == rows[-1][f"progress/{last}"]


def test_the_theme_can_be_changed(show: Open) -> None:
    page = show(trained())
    background = "() => getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(background) != before


def test_names_stay_text(show: Open, tmp_path: Path) -> None:
    names = ("<img src=x onerror=alert(1)>", "<b>bold<")
    runs = [
        copy(trained(wandb={"tags": [SCRIPT]}, total_steps=600 + place), tmp_path / name)
        for place, name in enumerate(names)
    ]
    page = show(*runs)
    assert page.locator(".run strong").all_inner_texts() == [run.path.name for run in runs]
    assert SCRIPT in page.locator("#config").inner_text()
    legend = card(page, "Return of recent episodes").locator(".legendtext").all_text_contents()
    assert any("<b>bold<" in text for text in legend)


def test_seeds_of_one_setting_are_a_band_and_differences_stand_out(show: Open) -> None:
    runs = [trained(seed=seed, name=f"seed{seed}", total_steps=2_000) for seed in range(3)]
    page = show(*runs, trained(name="other", total_steps=2_000, ppo={"epochs": 3}))
    names = [curve["name"] for curve in curves(page, "Policy loss")]
    assert "mean of 3 seeds, epochs 20" in names
    assert {"seed0", "seed1", "seed2", "other"} <= set(names)
    differing = page.locator("#config tr.differs th").all_inner_texts()
    assert set(differing) == {"seed", "ppo.epochs"}


def test_curves_of_several_runs_and_metrics_are_told_apart(show: Open, tmp_path: Path) -> None:
    common = "a-rather-long-name-of-an-environment-"
    runs = [
        copy(
            trained(seed=seed, name=f"seed{seed}", total_steps=2_000), tmp_path / f"{common}{seed}"
        )
        for seed in range(2)
    ]
    page = show(*runs, trained(name="other", total_steps=2_000, ppo={"epochs": 3}))
    labels = card(page, "Gradient norms").locator(".legendtext").all_text_contents()
    assert len(labels) == len(set(labels)) == 4
    assert all(text.endswith(("policy_norm", "value_norm")) for text in labels)
    page = show(*runs)
    assert page.locator(".run strong").all_inner_texts() == [run.name for run in runs]
    assert {"0", "1"} <= {curve["name"] for curve in curves(page, "Policy loss")}


def test_an_episode_is_drawn_by_the_names_of_its_channels(show: Open, tmp_path: Path) -> None:
    walked = trained("BipedalWalker-v3", total_steps=3_000, ppo={"horizon": 64})
    run = copy(walked, tmp_path / "run")
    run.record(episodes=1)
    page = show(run)
    assert {curve["name"] for curve in curves(page, "Angles")} >= {"hull angle"}
    shades = card(page, "Angles").locator(".plot").evaluate("plot => plot.layout.shapes.length")
    assert shades > 0
    heights = "plot => plot.layout.yaxis.range"
    lowest, _ = card(page, "Reward").locator(".plot").evaluate(heights)
    assert -20 < lowest < 0  # the fall, -100, is not what all is measured by
    value = [curve["name"] for curve in curves(page, "Value, and what was really returned")]
    assert value == ["value", "discounted return"]


def test_what_happened_is_marked(show: Open, tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    entry = {"event": "fault", "error": f"EnvError: {SCRIPT}", "step": 2_000}
    with (run.path / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"time": "2026-01-01T00:00:00+00:00", **entry}) + "\n")
    page = show(run)
    (mark,) = [c for c in curves(page, "Return of recent episodes") if c["name"] == "fault"]
    assert mark["x"] == [2_000]


def test_a_fault_before_any_episode_has_ended_is_marked_too(show: Open, tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    told = ("recent/", "rollout/episode_", "eval/")
    left = [{n: v for n, v in row.items() if not n.startswith(told)} for row in rows]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in left))
    entry = {"event": "fault", "error": "EnvError: reward is nan", "step": 2_000}
    with (run.path / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"time": "2026-01-01T00:00:00+00:00", **entry}) + "\n")
    page = show(run)
    assert "fault" in [curve["name"] for curve in curves(page, "Reward per step")]
    assert "fault" not in [curve["name"] for curve in curves(page, "Policy loss")]


def test_a_film_plays_in_the_page(show: Open, tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    shoot(run)
    page = show(run)
    video = page.locator("video")
    video.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('video').readyState >= 2")
    assert video.evaluate("video => video.videoWidth") > 0


def test_a_long_run_makes_a_page_of_moderate_size(show: Open, tmp_path: Path) -> None:
    run = copy(trained(), tmp_path / "run")
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    row = json.loads(lines[-1])
    with (run.path / "metrics.jsonl").open("w") as file:
        for number in range(1, 50_001):
            row["step"] = 200 * number
            row["ppo/policy_loss"] = 1 / number
            file.write(json.dumps(row) + "\n")
    page = show(run)
    assert (tmp_path / "report.html").stat().st_size < 12e6
    (curve,) = curves(page, "Policy loss")
    assert curve["x"][-1] == 10_000_000
