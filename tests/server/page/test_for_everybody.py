"""Nobody is kept out: no violation that axe finds, in light and dark, wide and narrow; and nothing foreign runs."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from .conftest import PHONE, ROOT, WIDE, charts_drawn
from .test_other_pages import runs as runs

pytestmark = pytest.mark.long
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
PATHS = [
    "/", "/?group=arg:model", "/?view=table", "RUN", "RUN?tab=charts", "RUN?tab=code", "/leaderboard?metric=val/acc",
    "/explore", "/models", "/ask", "COMPARE", "/login",
]  # fmt: skip
HARM = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["1440", "390"])
def test_axe_finds_no_violation(open_page, runs, theme, viewport):
    if not AXE.exists():
        pytest.skip("axe-core is not installed; make page installs it")
    found = {}
    page = open_page("/", viewport=viewport, color_scheme=theme)
    origin = page.evaluate("location.origin")
    for path in PATHS:
        path = path.replace("RUN", f"/runs/{runs[0]}").replace("COMPARE", f"/compare?runs={runs[0]},{runs[1]}")
        page.goto(origin + path)
        page.wait_for_load_state("networkidle") if path == "/login" else page.wait_for_timeout(1200)
        page.evaluate(AXE.read_text())
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        answer = page.evaluate("tags => axe.run({ runOnly: tags })", tags)
        if answer["violations"]:
            found[path] = [
                (one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in answer["violations"]
            ]

    assert found == {}


def test_names_args_tags_and_texts_run_nothing(open_page, runs):
    paths = [
        "/?cols=metric:note,arg:model", f"/runs/{runs[0]}", f"/runs/{runs[0]}?tab=charts", "/explore",
        f"/leaderboard?metric={quote(HARM)}", f"/compare?runs={runs[0]},{runs[1]}&all=1",
    ]  # fmt: skip
    for path in paths:
        page = open_page(path)
        page.wait_for_timeout(1500)

        assert page.evaluate("window.harmed") is None
        assert page.locator("main img, main b >> text=bold").count() == 0
    page = open_page("/?cols=metric:note")
    charts_drawn(page)
    page.get_by_text("<script>window.harmed = 1</script>").first.wait_for()


def test_everything_on_the_workspace_can_be_reached_by_keys(open_page):
    page = open_page()
    charts_drawn(page)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.innerText")
        )

    assert {"Runs", "Filter: a where clause", "Find charts", "Smoothing", "columns ▾"} <= reached
