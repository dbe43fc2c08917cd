"""The page of one run by using it: media, console, traceback, artifacts, checkpoints, memo, ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import charts_drawn, runs_of, until

pytestmark = pytest.mark.long


@pytest.fixture
def see(open_page, rich):
    """Opens a page of one of the rich runs: the newest, which failed, is 0."""

    def go(which: int, query: str = "", script: str = "rich.py"):
        return open_page(f"/runs/{runs_of(rich, script)[which]}{query}", server=rich)

    return go


def test_histograms_are_drawn_over_the_steps_and_picked_with_the_slider(see):
    page = see(1, "?tab=charts&find=media/weights")
    page.get_by_text("step 5 · 2,000 values").wait_for()
    drawn = """() => { const one = document.querySelector('.histogram canvas');
        const pixels = one.getContext('2d').getImageData(0, 0, one.width, one.height).data;
        return new Set(new Uint32Array(pixels.buffer)).size }"""
    assert page.evaluate(drawn) > 20
    page.get_by_label("Step of media/weights").press("Home")
    page.get_by_text("step 0 · 2,000 values").wait_for()

    assert "at=0" in page.url
    page.go_back()
    page.get_by_text("step 5 · 2,000 values").wait_for()


def test_counted_histograms_are_drawn_too(see):
    page = see(1, "?tab=charts&find=media/counted")

    page.get_by_text("step 5 · 2,000 values").wait_for()


def test_images_are_shown_with_a_slider(see):
    page = see(1, "?tab=charts&find=media/picture")
    image = page.locator(".images img")
    image.wait_for()
    pixel = """() => { const one = document.querySelector('.images img'), canvas = document.createElement('canvas');
        if (!one.complete || !one.naturalWidth) return -1;
        const ctx = canvas.getContext('2d'); ctx.drawImage(one, 0, 0); return ctx.getImageData(3, 3, 1, 1).data[0] }"""
    until(page, f"({pixel})() === 200")
    page.get_by_label("Step of media/picture").press("ArrowLeft")

    until(page, f"({pixel})() === 160")
    assert image.get_attribute("alt").endswith("at step 4")


def test_a_batch_is_several_images(see):
    page = see(1, "?tab=charts&find=media/batch")
    page.locator(".images img").nth(2).wait_for()

    assert page.locator(".images img").count() == 3


def test_texts_and_frames_are_tables(see):
    page = see(1, "?tab=charts&find=media/")
    page.get_by_role("cell", name="epoch 5: <b onclick=alert(1)>bold</b>").wait_for()
    texts = page.locator("[data-chart='media/caption'] .texts tbody tr")
    frame = page.locator("[data-chart='media/frame'] .frame")

    assert texts.count() == 6
    assert texts.first.inner_text().split("\t")[0].strip() == "5"
    assert frame.locator("thead th").all_inner_texts() == ["", "guess", "<i>p</i>"]
    assert frame.locator("tbody tr").first.locator("td").all_inner_texts() == ["0", "5", "0.5"]


@pytest.mark.parametrize(
    ("name", "kind", "beginning"),
    [
        ("media/weights", "PNG picture", b"\x89PNG"),
        ("media/weights", "CSV table", b"step,from,to,count\n0,"),
        ("media/batch", "PNG picture", b"\x89PNG"),
        ("media/caption", "CSV table", b"step,run,media/caption,verdict\n5,"),
        ("media/frame", "CSV table", b"run,step,,guess,<i>p</i>\n"),
    ],
)
def test_what_is_no_curve_is_saved_as_a_file(see, name, kind, beginning):
    page = see(1, f"?tab=charts&find={name}")
    page.locator(".images img, .histogram canvas, .texts, .frame").first.wait_for()
    until(page, "[...document.querySelectorAll('.images img')].every((one) => one.complete)")
    until(page, "!document.querySelector('.histogram') || document.querySelector('.histogram p').innerText")
    page.get_by_role("button", name=f"Save the chart {name}").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=kind).click()
    content = Path(download.value.path()).read_bytes()

    assert content.startswith(beginning)
    assert kind != "PNG picture" or len(content) > 1_000


def test_several_runs_have_their_images_side_by_side(open_page, rich):
    page = open_page("/?find=media/&where=filename='rich.py'", server=rich)
    page.locator("[data-chart='media/picture'] figure").nth(2).wait_for()
    histogram = page.locator("[data-chart='media/weights']")
    histogram.get_by_label("run").select_option(index=1)

    until(page, "new URLSearchParams(location.search).has('of')")


def test_an_image_is_served_as_png_and_as_nothing_else(rich, see):
    page = see(1)
    run = runs_of(rich, "rich.py")[1]
    answer = page.request.get(f"{rich.url}/api/runs/{run}/media/image?name=media/picture&n=2")

    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.body().startswith(b"\x89PNG")
    assert page.request.get(f"{rich.url}/api/runs/{run}/media/image?name=media/caption&n=2").status == 400
    assert page.request.get(f"{rich.url}/api/runs/{run}/media?name=media/picture&limti=2").status == 422


def test_the_console_has_both_streams_and_the_traceback(see):
    page = see(0, "?tab=console")
    page.get_by_text("lines 1,001 to").wait_for()
    trace = page.locator(".trace").inner_text()
    assert "ValueError: the data has <b>holes</b>" in trace
    page.get_by_role("button", name="earlier").click()
    page.get_by_text("epoch 0 <script>alert(1)</script>").wait_for()

    assert page.locator(".console .err").first.inner_text().strip() == "careful"
    assert "from=0" in page.url
    assert page.locator("text=line 999").count() == 0


def test_the_console_of_each_rank_can_be_chosen(see):
    page = see(0, "?tab=console", "ranks.py")
    page.get_by_text("rank 0", exact=True).wait_for()
    page.get_by_role("combobox").select_option("2")

    page.get_by_text("rank 2", exact=True).wait_for()


def test_artifacts_are_previewed_and_downloaded(see):
    page = see(1, "?tab=artifacts")
    page.get_by_role("cell", name="<b>x</b>").wait_for()
    page.get_by_text("hello notes <script>alert(1)</script>").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download notes.txt").click()

    assert Path(download.value.path()).read_text() == "hello notes <script>alert(1)</script>"
    assert download.value.suggested_filename == "notes.txt"


def test_checkpoints_are_on_a_timeline_with_what_restores_them(see):
    page = see(1, "?tab=checkpoints")
    page.locator(".timeline i").first.wait_for()
    rows = page.locator("[aria-label=Checkpoints] tbody tr")

    assert page.locator(".timeline i").count() == rows.count() > 0
    assert "into=dict(w=w)" in page.locator(".command code").inner_text()
    assert "w" in rows.first.inner_text()


def test_calls_that_were_reused_are_told_with_the_run_they_come_from(rich, see):
    first, page = runs_of(rich, "rich.py")[-1], see(1)
    page.get_by_role("heading", name="Remembered calls").wait_for()
    row = page.get_by_role("row", name="prepare")

    assert f"reused from {first[:8]}" in row.inner_text().replace("\t", " ")


def test_ranks_are_a_fan_with_their_skew(see):
    page = see(0, "?tab=ranks", "ranks.py")
    charts_drawn(page)
    page.get_by_text("largest skew").wait_for()
    facts = page.locator(".facts").inner_text()

    assert "3" in facts.split("ranks")[1]
    assert "4 curves" in page.locator(".plot").get_attribute("aria-label")
    box = page.locator(".plot .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 20)
    page.locator(".readings").wait_for()
    readings = page.locator(".readings").inner_text()
    assert all(f"rank {rank}" in readings for rank in range(3))


def test_infinities_and_nan_are_marked_where_they_are(see):
    page = see(1, "?tab=charts&find=odd")
    charts_drawn(page)

    page.get_by_text("3 not finite").wait_for()


def test_arrays_are_no_raw_json_anywhere(open_page, rich):
    run, other = runs_of(rich, "rich.py")[1:]
    paths = [
        f"/runs/{run}",
        "/?view=table&cols=metric:media/weights,metric:media/picture",
        f"/compare?runs={run},{other}",
    ]
    for path in paths:
        page = open_page(path, server=rich)
        page.wait_for_timeout(1200)

        assert "$array" not in page.inner_text("main")
        assert "dtype" not in page.inner_text("main")
