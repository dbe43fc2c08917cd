"""The other pages by doing them: a run, comparison, leaderboard, exploration, models, questions."""

from __future__ import annotations

import json
import urllib.request

import pytest

from .conftest import charts_drawn, until

pytestmark = pytest.mark.long


@pytest.fixture(scope="session")
def runs(filled) -> list[str]:
    """The ids of the runs, newest first."""
    body = json.dumps({"columns": [], "limit": 100}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{filled.url}/api/table", body), timeout=20) as answer:
        return [row["run"] for row in json.load(answer)["rows"]]


TABS = {
    "": "Values", "charts": "train/loss", "config": "Command line", "code": "train.py", "data": "Declared",
    "environment": "Packages", "checkpoints": "No checkpoints", "ranks": "One rank", "artifacts": "weights",
}  # fmt: skip


@pytest.mark.parametrize("tab", TABS)
def test_a_run_has_its_parts(open_page, runs, tab):
    page = open_page(f"/runs/{runs[0]}{f'?tab={tab}' if tab else ''}")

    page.get_by_text(TABS[tab]).first.wait_for()
    assert page.locator(".tabs [aria-current]").count() == 1


def test_config_code_and_environment_are_compared_with_another_run(open_page, runs):
    page = open_page(f"/runs/{runs[0]}?tab=config&against={runs[1]}")
    page.get_by_role("region", name="Differences").wait_for()
    assert "seed" in page.get_by_role("region", name="Differences").inner_text()

    page = open_page(f"/runs/{runs[0]}?tab=code&against={runs[1]}")
    page.get_by_text("No difference.").wait_for()


def test_runs_stand_side_by_side(open_page, runs):
    page = open_page(f"/compare?runs={','.join(runs[:3])}")
    page.get_by_role("region", name="Comparison").wait_for()
    text = page.get_by_role("region", name="Comparison").inner_text()

    assert "lr" in text
    assert "script" not in text
    page.get_by_label("also what is equal").check()
    page.get_by_role("rowheader", name="script").wait_for()
    charts_drawn(page)


def test_the_leaderboard_says_its_order_its_groups_and_what_differs(open_page):
    page = open_page("/leaderboard")
    page.locator("[aria-label=Leaderboard] select").first.select_option("val/acc")
    page.get_by_text("highest first ·").wait_for()

    assert page.locator(".board").count() == 2
    page.get_by_role("link", name="what differs").wait_for()
    page.get_by_label("across data").check()
    until(page, "document.querySelectorAll('.board').length === 1")
    page.get_by_label("group by").select_option("model")
    until(page, "document.querySelectorAll('.board').length === 3")


def test_exploration_brushes_and_ranks_the_args(open_page):
    page = open_page("/explore?target=metric:val/acc")
    page.get_by_text("8 of 8 runs").wait_for()
    assert page.locator(".importance > div").first.inner_text().startswith("lr")
    box = page.locator(".scatter").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] - 30, steps=4)
    page.mouse.up()
    until(page, "new URLSearchParams(location.search).has('brush')")

    assert "8 of 8" not in page.inner_text(".title")
    page.get_by_role("button", name="clear 2 brushes").click()
    page.get_by_text("8 of 8 runs").wait_for()


def test_half_an_answer_is_none(open_page):
    page = open_page("/models")
    page.route("**/api/columns*", lambda route: route.fulfill(status=200, body='{"columns": [{"na'))
    page.get_by_role("link", name="Explore").click()

    page.get_by_text("answer was cut off").wait_for()
    page.unroute("**/api/columns*")
    page.get_by_role("link", name="Runs").click()
    charts_drawn(page)


def test_a_model_is_promoted_pointed_and_rolled_back(open_page, runs):
    page = open_page(f"/models?promote={runs[0]}&artifact=weights")
    page.get_by_label("Model").fill("digits")
    page.get_by_role("button", name="promote").click()
    page.get_by_role("heading", name="digits").wait_for()
    page = open_page(f"/models?promote={runs[1]}&artifact=weights")
    page.get_by_label("Model").fill("digits")
    page.get_by_label("Alias").fill("best")
    page.get_by_role("button", name="promote").click()
    page.get_by_text("best → 2").wait_for()
    page.get_by_label("Alias").fill("best")
    page.get_by_label("Version", exact=True).select_option("1")
    page.get_by_role("button", name="point").click()
    page.get_by_text("best → 1").wait_for()
    page.get_by_role("button", name="roll back").click()

    page.get_by_text("best → 2").wait_for()


def test_who_may_not_replay_gets_the_command(open_page, runs):
    page = open_page(f"/ask?runs={runs[0]}")
    page.get_by_label("names that the working tree logs already").fill("grad_norm")

    page.get_by_text(f"relive replay grad_norm \"run in ('{runs[0]}')\"").wait_for()


def test_an_address_that_is_no_run_says_so(open_page):
    page = open_page("/")
    page.goto(page.url + "runs/000000000000")
    page.get_by_text("This run can't be shown").wait_for()
    page.on("console", lambda _: None)
