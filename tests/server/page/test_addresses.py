"""Each control is in the address: a copy of the address shows the same view, and Back undoes what was done."""

from __future__ import annotations

import re
import time

import pytest

from .conftest import charts_drawn, runs_of

pytestmark = pytest.mark.long
# The state of all controls and of what they govern. Of charts the first: others are drawn when they come into view.
LOOK = """() => {
    const out = [], main = document.querySelector('main'), first = main.querySelector('.card');
    const all = (selector) => [...main.querySelectorAll(selector)].filter(
        (one) => !one.closest('.panel') && (!one.closest('.card') || first.contains(one)));
    for (const one of all('input, select, textarea')) {
        out.push(one.type === 'checkbox' ? one.checked : one.value);
    }
    for (const one of all('[aria-pressed], [aria-current], [aria-checked], [aria-sort], h2 [aria-expanded]')) {
        out.push(['pressed', 'current', 'checked', 'sort', 'expanded'].map((name) => one.getAttribute(`aria-${name}`)));
    }
    for (const one of all('h1, h2, h3, .count, .tools > button, [role=columnheader], thead th, .picked, output')) {
        out.push(one.innerText);
    }
    for (const one of all('.eye i')) out.push(one.style.background);
    for (const one of all('.pinned, .legend li')) out.push(one.innerText);
    for (const one of all('.plot')) out.push(one.getAttribute('aria-label'));
    return JSON.stringify(out);
}"""

IS_LOADING = "() => document.querySelector('main .card')?.querySelector('.loading') != null"


class Quiet:
    """Waits until a page rests: no request is under way, its first chart has its values, and nothing has changed for
    a while."""

    def __init__(self, page) -> None:
        self._page, self._asked = page, set()
        page.on("request", lambda one: self._asked.add(one) if "/api/events" not in one.url else None)
        page.on("requestfinished", lambda one: self._asked.discard(one))
        page.on("requestfailed", lambda one: self._asked.discard(one))

    def look(self) -> str:
        page = self._page
        page.locator("main h1, main h2, main [role=grid]").first.wait_for()
        deadline, since, before = time.monotonic() + 30, time.monotonic(), page.evaluate(LOOK)
        while time.monotonic() - since < 0.6:
            assert time.monotonic() < deadline, "the page does not come to rest"
            page.wait_for_timeout(50)
            # A request that began before we listened is seen by the chart that waits for it.
            if (now := page.evaluate(LOOK)) != before or self._asked or page.evaluate(IS_LOADING):
                before, since = now, time.monotonic()
        return before


def control(page, label):
    return page.locator("main label.choice", has=page.locator(f"span:text-is('{label}')")).locator("select").first


def choose(label, value):
    return lambda page: control(page, label).select_option(value)


def fill(label, text):
    return lambda page: page.get_by_label(label).first.fill(text)


def press(name, **how):
    return lambda page: page.get_by_role("button", name=name, **how).first.click()


def tick(label):
    return lambda page: page.get_by_label(label, exact=True).first.click()


def link(name):
    return lambda page: page.get_by_role("link", name=name, exact=True).first.click()


def key(*keys):
    def do(page):
        page.locator(".runs").focus()
        for one in keys:
            page.keyboard.press(one)

    return do


def menu(title, button):
    def do(page):
        page.get_by_title(title).first.click()
        page.get_by_role("button", name=button).first.click()

    return do


def pick_column(page):
    page.get_by_title("Pick and order columns").click()
    page.get_by_role("checkbox", name="probe", exact=True).check()
    page.keyboard.press("Escape")


def move_column(page):
    page.get_by_role("button", name="lr", exact=True).press("Alt+ArrowRight")


def pick_axis(page):
    page.get_by_title("Which axes the parallel coordinates have").click()
    page.get_by_role("checkbox", name="probe", exact=True).check()
    page.keyboard.press("Escape")


def colour(page):
    page.locator(".row").first.hover()
    page.get_by_role("button", name=re.compile("More for")).first.click()
    # The colour of a run follows from its id, so it may have the fifth already.
    now = page.locator(".eye i").first.evaluate("one => one.style.background")
    fifth = page.get_by_role("button", name="Colour 5")
    is_taken = fifth.evaluate("one => one.style.background") == now
    page.get_by_role("button", name="Colour 6" if is_taken else "Colour 5").click()


def zoom(page):
    charts_drawn(page)
    page.locator(".plot").first.focus()
    page.keyboard.press("+")


def brush(page):
    box = page.locator(".parallel").bounding_box()
    page.mouse.move(box["x"] + 46, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 46, box["y"] + 200, steps=4)
    page.mouse.up()


def brush_points(page):
    box = page.locator(".scatter").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 240, steps=4)
    page.mouse.up()


def brush_by_number(page):
    page.get_by_text("brushes by number").click()
    page.get_by_label("lr from").fill("0.2")
    page.keyboard.press("Tab")


def compare_with(page):
    page.get_by_placeholder("id, its beginning, or a name").fill("last")
    page.get_by_role("button", name="compare").click()


def compare_code(page):
    page.get_by_label("Another run").fill("last")
    page.get_by_role("button", name="compare").click()


WORKSPACE = {
    "where": ("/", fill("Filter: a where clause", "lr < 0.25")),
    "sort": ("/?cols=arg:lr,metric:f1", press("lr", exact=True)),
    "columns": ("/", pick_column),
    "order of columns": ("/?cols=arg:lr,metric:f1", move_column),
    "hide": ("/", lambda page: page.locator(".eye").nth(1).click()),
    "only": ("/", key("ArrowDown", "o")),
    "pin": ("/", key("ArrowDown", "p")),
    "colour": ("/", colour),
    "first five": ("/", menu("Which runs are shown in charts", "the first 5")),
    "none": ("/", menu("Which runs are shown in charts", "none")),
    "table": ("/", press("table", exact=True)),
    "group": ("/", choose("group by", "arg:model")),
    "band": ("/?group=arg:model", choose("band", "range")),
}  # fmt: skip
CHARTS = {
    "x": ("/", choose("x", "epoch")),
    "relative time": ("/", choose("x", "relative")),
    "smooth": ("/", lambda page: page.get_by_label("Smoothing").press("End")),
    "log x": ("/", tick("log x")),
    "log y": ("/", tick("log y")),
    "log of one chart": ("/?find=val", press("log", exact=True)),
    "zoom": ("/?find=train/loss", zoom),
    "reset zoom": ("/?find=train/loss&zoom=10..20", press("reset zoom")),
    "size": ("/", choose("size", "l")),
    "find": ("/", fill("Find charts", "acc")),
    "closed": ("/", press(re.compile("^.?train"))),
}
OTHERS = {
    "leaderboard value": ("/leaderboard", choose("value", "f1")),
    "leaderboard by": ("/leaderboard?metric=val/acc", choose("by", "best")),
    "leaderboard order": ("/leaderboard?metric=val/acc", choose("order", "min")),
    "leaderboard group": ("/leaderboard?metric=val/acc", choose("group by", "model")),
    "leaderboard across": ("/leaderboard?metric=val/acc", tick("across data")),
    "leaderboard where": ("/leaderboard?metric=val/acc", fill("Filter: a where clause", "lr < 0.25")),
    "explore value": ("/explore", choose("value", "metric:f1")),
    "explore axes": ("/explore", pick_axis),
    "explore where": ("/explore", fill("Filter: a where clause", "lr < 0.25")),
    "explore x": (
        "/explore",
        lambda page: page.locator("[aria-label=Scatter] select").nth(0).select_option("arg:seed"),
    ),
    "explore y": (
        "/explore",
        lambda page: page.locator("[aria-label=Scatter] select").nth(1).select_option("metric:f1"),
    ),
    "explore brush": ("/explore", brush),
    "explore brush of points": ("/explore", brush_points),
    "explore brush by number": ("/explore", brush_by_number),
    "ask statement": ("/ask", fill("a statement", 'relive.log("x", 1)')),
    "ask names": ("/ask", fill("names that the working tree", "grad_norm")),
    "ask line": ("/ask?statement=pass", press("Line 3", exact=True)),
    "compare all": ("COMPARE", tick("also what is equal")),
    "compare size": ("COMPARE", choose("size", "s")),
}
RUN = {
    **{f"tab {name}": ("RUN", link(name)) for name in (
        "Charts", "Config", "Code", "Data", "Environment", "Checkpoints", "Console", "Ranks", "Artifacts")},
    "file": ("RUN?tab=code", link("train.py")),
    "parent": ("RUN?tab=code", press("parent")),
    "head": ("RUN?tab=code", press("HEAD")),
    "code of another run": ("RUN?tab=code", compare_code),
    "config of another run": ("RUN?tab=config", compare_with),
    "data of another run": ("RUN?tab=data", compare_with),
    "environment of another run": ("RUN?tab=environment", compare_with),
    "x of a run": ("RUN?tab=charts", choose("x", "epoch")),
    "find in a run": ("RUN?tab=charts", fill("Find charts", "acc")),
}  # fmt: skip
CONTROLS = {**WORKSPACE, **CHARTS, **OTHERS, **RUN}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_view_is_the_same_for_a_colleague_and_back_undoes_it(open_page, filled, control):
    path, do = CONTROLS[control]
    runs = runs_of(filled, "train.py")
    path = path.replace("RUN", f"/runs/{runs[2]}").replace("COMPARE", f"/compare?runs={runs[0]},{runs[1]}")
    _check(open_page, filled, path, do)


RICH = {
    "step of images": ("/?find=picture", lambda page: page.get_by_label("Step of media/picture").press("Home")),
    "run of histograms": ("/?find=weights", lambda page: page.locator(".histogram select").select_option(index=1)),
    "all ranks": ("RANKS?tab=charts", tick("ranks")),
    "value of ranks": ("RANKS?tab=ranks", lambda page: page.locator("main select").first.select_option("twice")),
    "console of a rank": ("RANKS?tab=console", lambda page: page.locator("main select").select_option("1")),
    "part of a console": ("FAILED?tab=console", press("earlier")),
}


@pytest.mark.parametrize("control", RICH)
def test_so_is_a_view_of_images_ranks_and_output(open_page, rich, control):
    path, do = RICH[control]
    path = path.replace("RANKS", f"/runs/{runs_of(rich, 'ranks.py')[0]}")
    path = path.replace("FAILED", f"/runs/{runs_of(rich, 'rich.py')[0]}")
    _check(open_page, rich, path, do)


def _check(open_page, server, path, do) -> None:
    page = open_page(path, server=server)
    quiet = Quiet(page)
    before, address = quiet.look(), page.url
    do(page)
    page.wait_for_timeout(500)
    page.mouse.move(0, 0)
    after = quiet.look()
    assert page.url != address
    assert after != before
    colleague = open_page(page.url.removeprefix(server.url), server=server)

    assert Quiet(colleague).look() == after
    assert colleague.url == page.url
    page.go_back()
    assert quiet.look() == before
    assert page.url == address
