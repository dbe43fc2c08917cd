"""Much at once: ten thousand runs in the list, tables of pages, and long curves that move with the pointer."""

from __future__ import annotations

import pytest

from relive.store import Home
from relive.store.catalog import Index
from relive.store.ledger import append_lines

from ..conftest import Server
from ..written_runs import write_runs
from .conftest import charts_drawn, until

pytestmark = pytest.mark.long

# Scrolls through the whole list, a screen in each frame; answers with the frames, those with rows, and the most rows.
SCROLL = """() => new Promise((done) => {
    const list = document.querySelector('.runs');
    const step = Math.ceil(list.scrollHeight / 120);
    let frames = 0; let filled = 0; let most = 0;
    const next = () => {
        frames++;
        const rows = document.querySelectorAll('.runs .row');
        most = Math.max(most, rows.length);
        const { top, bottom } = list.getBoundingClientRect();
        const isSeen = ({ top: from, bottom: to }) => to > top + 60 && from < bottom;
        if ([...rows].some((row) => isSeen(row.getBoundingClientRect()))) filled++;
        list.scrollTop += step;
        if (list.scrollTop + list.clientHeight < list.scrollHeight - 1) requestAnimationFrame(next);
        else done([frames, filled, most]);
    };
    requestAnimationFrame(next);
})"""
# Keeps the picture of the curves, or answers with how many of its bytes differ much from the one that was kept.
PICTURE = """() => {
    const canvas = document.querySelector('.plot canvas');
    const { data } = canvas.getContext('2d').getImageData(60, 10, canvas.width - 75, canvas.height - 40);
    const kept = window.kept;
    window.kept = data;
    return kept ? [data.length, data.reduce((sum, byte, at) => sum + (Math.abs(byte - kept[at]) > 64), 0)] : null;
}"""
HOLD = """(x) => {
    const over = document.querySelector('.plot .u-over');
    const { left, top } = over.getBoundingClientRect();
    const tell = (target, kind, at) => target.dispatchEvent(new MouseEvent(
        kind, { bubbles: true, cancelable: true, shiftKey: true, clientX: left + at, clientY: top + 50 }));
    tell(over, 'mousedown', 400);
    for (let at = 400; at >= x; at -= 7) tell(window, 'mousemove', at);
    window.release = () => tell(window, 'mouseup', x);
}"""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    store = tmp_path_factory.mktemp("many") / "team"
    write_runs(store, 10_000)
    Index(Home(store)).refresh()
    server = Server(store, "--open").start()
    yield server
    server.kill()


@pytest.mark.slow
def test_ten_thousand_runs_scroll_and_can_be_used(many, open_page):
    page = open_page("/?view=table&cols=arg:number", server=many)
    page.set_default_timeout(300_000)
    page.get_by_text("10000 runs").wait_for()
    frames, filled, most = page.evaluate(SCROLL)

    assert frames == filled  # never an empty list
    assert most < 120  # only the rows that are seen exist
    page.get_by_role("button", name="number").click()
    until(page, "new URLSearchParams(location.search).get('sort') === '-arg:number'")
    until(page, "document.querySelector('.runs .row:not(.waiting)')?.innerText.includes('9,999')")


def test_long_tables_have_pages(tmp_path, open_page):
    store = tmp_path / "team"
    args = {f"arg{n:04}": n for n in range(1_199)}
    write_runs(store, args=args, packages={f"package{n:04}": "1.0" for n in range(600)})
    (run,) = Home(store).run_ids()
    facts = {"artifact": None, "args": {}, "code": {}, "data_version": None, "environment": {}}
    versions = [
        {"k": "version", "t": n, "by": "ann", "version": n, "run": run, "metrics": {"loss": {"last": 0.25}}, **facts}
        for n in range(1, 701)
    ]
    append_lines(
        Home(store).registry / "net.lines", lambda _: [*versions, {"k": "retired", "t": 9, "by": "bob", "version": 1}]
    )
    server = Server(store, "--open").start()
    try:
        page = open_page(f"/runs/{run}", server=server)
        page.get_by_text("and 1,100 more").wait_for()
        page.get_by_role("link", name="all args").click()
        page.get_by_text("args 1 to 500 of 1,200").wait_for()
        page.get_by_role("button", name="later").click()
        page.get_by_role("button", name="later").click()
        page.get_by_text("args 1,001 to 1,200 of 1,200").wait_for()
        page.get_by_role("rowheader", name="arg1198").wait_for()

        assert page.get_by_role("button", name="later").is_disabled()
        page.go_back()
        page.get_by_text("args 501 to 1,000 of 1,200").wait_for()
        page.goto(f"{server.url}/runs/{run}?tab=environment&from=500")
        page.get_by_text("package0599").wait_for()
        page.goto(f"{server.url}/models/net?from=500")
        page.get_by_text("versions 501 to 700 of 700").wait_for()
        assert page.locator("[aria-label=Versions] tbody tr").last.inner_text().endswith("retired")
        assert "loss 0.25" in page.locator("[aria-label=Versions] tbody tr").first.inner_text()
    finally:
        server.kill()


def test_a_picture_that_was_moved_is_the_one_that_is_drawn(tmp_path, open_page):
    """The runs have values over 2,000 steps, so that the picture of them is moved; at rest it is drawn anew."""
    write_runs(tmp_path / "team", 4, steps=2_000)
    server = Server(tmp_path / "team", "--open").start()
    try:
        page = open_page("/?size=l&zoom=500..1500", server=server)
        charts_drawn(page)
        page.wait_for_timeout(800)
        page.evaluate(HOLD, 253)
        page.evaluate(PICTURE)
        page.evaluate("() => window.release()")
        page.wait_for_timeout(1500)
        size, differing = page.evaluate(PICTURE)
    finally:
        server.kill()

    assert differing < 0.002 * size
