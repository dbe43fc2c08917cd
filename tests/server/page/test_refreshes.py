"""What the user is doing survives what happens meanwhile: focus, the chosen row, colours, what is typed."""

from __future__ import annotations

import pytest

from ..conftest import Server
from .conftest import PHONE, charts_drawn, record, runs_of, until

pytestmark = pytest.mark.long
SMALL = """
import relive
lr = relive.arg("lr", 0.1)
for step in relive.loop("step", range(20)):
    relive.log("loss", lr / (1 + step))
"""
MANY = """
import relive
for n in range(22):
    with relive.run(f"run {n}", tags={"n": n}):
        for step in relive.loop("step", range(3)):
            relive.log("loss", n / 100)
"""


@pytest.fixture
def few(tmp_path):
    """A server with three runs, and how to record one more."""
    home = tmp_path / "team"
    for lr in (1, 2, 3):
        record(tmp_path, home, SMALL, f"lr=0.{lr}")
    server = Server(home, "--open").start()
    yield server, lambda: record(tmp_path, home, SMALL, "lr=0.9")
    server.kill()


def test_focus_row_and_colours_stay_when_a_new_run_comes(open_page, few):
    server, one_more = few
    page = open_page("/", server=server)
    charts_drawn(page)
    colours = """[...document.querySelectorAll('.row')].map(
        row => [row.querySelector('a').title, row.querySelector('i').style.background])"""
    before = dict(page.evaluate(colours))
    page.locator(".runs").focus()
    page.keyboard.press("ArrowDown")
    chosen = page.locator(".row.focus .who a").get_attribute("title")
    one_more()
    page.get_by_text("4 runs, 4 shown").wait_for()

    assert page.evaluate("document.activeElement.className") == "runs"
    until(page, f"document.querySelector('.row.focus .who a')?.title === '{chosen}'")
    after = dict(page.evaluate(colours))
    assert {run: after[run] for run in before} == before


def test_what_is_being_typed_and_the_menu_that_is_open_stay(open_page, few):
    server, one_more = few
    page = open_page("/", server=server)
    charts_drawn(page)
    page.get_by_title("Pick and order columns").click()
    page.get_by_role("searchbox", name="Find columns").fill("lo")
    one_more()
    page.get_by_text("4 runs, 4 shown").wait_for()

    assert page.get_by_role("searchbox", name="Find columns").input_value() == "lo"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Find columns"


def test_hiding_a_run_changes_no_other_colour(open_page):
    page = open_page()
    charts_drawn(page)
    borders = "[...document.querySelectorAll('.eye i')].map(one => one.style.borderColor)"
    before = page.evaluate(borders)
    page.locator(".eye").first.click()
    page.get_by_text("8 runs, 7 shown").wait_for()

    assert page.evaluate(borders) == before


def test_charts_are_used_by_keys(open_page):
    page = open_page("/?find=train/loss")
    charts_drawn(page)
    page.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    page.locator(".readings b").wait_for()
    first = page.inner_text(".readings b")
    page.keyboard.press("ArrowRight")
    until(page, f"document.querySelector('.readings b').innerText !== {first!r}")
    page.keyboard.press("+")
    until(page, "location.search.includes('zoom=')")
    page.keyboard.press("0")
    until(page, "!location.search.includes('zoom=')")
    page.keyboard.press("Escape")

    page.locator(".readings").wait_for(state="hidden")


def test_the_list_of_runs_is_used_by_keys(open_page):
    page = open_page()
    charts_drawn(page)
    page.locator(".runs").focus()
    page.keyboard.press("End")
    page.keyboard.press(" ")
    page.get_by_text("8 runs, 7 shown").wait_for()
    page.keyboard.press("Home")
    run = page.locator(".row.focus .who a").get_attribute("title")
    page.keyboard.press("Enter")

    page.get_by_role("heading", name=run).wait_for()
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.get_by_role("heading", name="Leaderboard").wait_for()


def test_twenty_runs_are_compared_and_the_rest_is_left_out(open_page, tmp_path):
    record(tmp_path, tmp_path / "team", MANY)
    server = Server(tmp_path / "team", "--open").start()
    try:
        page = open_page("/?top=25", server=server)
        page.get_by_text("22 runs, 22 shown").wait_for()
        page.get_by_role("link", name="compare").click()
        page.get_by_role("heading", name="20 runs side by side").wait_for()
        charts_drawn(page)

        assert page.locator(".sides thead th").count() == 21
        assert "20 curves" in page.locator("[data-chart=loss] .plot").get_attribute("aria-label")
        best = page.locator("tr.differs", has_text="loss").locator(".high")
        assert best.inner_text() == "0.02"
    finally:
        server.kill()


def test_the_data_guard_leads_to_what_differs(open_page):
    page = open_page("/leaderboard?metric=val/acc")
    page.get_by_role("link", name="what differs").click()
    page.get_by_role("heading", name="Differences to").wait_for()

    assert page.locator(".changes li").first.inner_text().startswith("train")
    assert "{" not in page.inner_text("main")


def test_a_wrong_filter_is_mended_where_it_was_typed(open_page):
    for path in ("/explore", "/leaderboard?metric=val/acc"):
        page = open_page(path)
        page.get_by_label("Filter: a where clause").fill("lrr < 0.2")
        page.locator(".wrong").wait_for()
        page.get_by_label("Filter: a where clause").fill("lr < 0.25")
        page.locator(".wrong").wait_for(state="hidden")


TABS = [
    "", "charts", "config", "code&file=train.py", "data", "environment", "checkpoints", "console", "ranks", "artifacts",
]  # fmt: skip
PAGES = [
    "/", "/?view=table", "/leaderboard?metric=val/acc", "/explore", "/models", "/ask", "COMPARE",
    *(f"RUN?tab={tab}" for tab in TABS),
]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_wider_than_a_phone(open_page, filled, path):
    runs = runs_of(filled, "train.py")
    path = path.replace("RUN", f"/runs/{runs[0]}").replace("COMPARE", f"/compare?runs={','.join(runs[:6])}")
    page = open_page(path, viewport=PHONE)
    page.locator("main h1, main h2, main [role=grid]").first.wait_for()
    page.wait_for_timeout(700)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_neither_are_images_and_histograms(open_page, rich):
    page = open_page("/?find=media&where=filename='rich.py'", server=rich, viewport=PHONE)
    page.locator(".images img").first.wait_for()

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
