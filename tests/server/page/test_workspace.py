"""The workspace by doing it: choose, filter, sort, group, zoom; every control is in the address."""

from __future__ import annotations

import csv
import io
import json
import re
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from .conftest import PHONE, charts_drawn, until

pytestmark = pytest.mark.long


def query(page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def wait_for(page, name: str, value: str | None) -> None:
    check = f"new URLSearchParams(location.search).get({json.dumps(name)}) === {json.dumps(value)}"
    until(page, check)


def test_the_runs_and_their_charts_are_there(open_page):
    page = open_page()
    charts_drawn(page, 2)

    assert "8 runs, 8 shown" in page.inner_text(".count")
    assert page.locator("[role=row].row").count() == 8
    assert page.locator("section.section").evaluate_all("all => all.map(one => one.ariaLabel)")[:2] == ["train", "val"]


def test_numbers_are_whole(open_page):
    page = open_page("/?cols=metric:train/memory_bytes,metric:val/acc&view=table")
    page.get_by_text("25,275,099").first.wait_for()

    assert page.locator("text=0.975").count() >= 1


def test_runs_are_hidden_shown_pinned_coloured_and_chosen_alone(open_page):
    page = open_page()
    charts_drawn(page)
    first = page.locator(".row").first
    run = first.locator(".who a").get_attribute("title")

    first.locator(".eye").click()
    wait_for(page, "hide", run)
    page.get_by_text("8 runs, 7 shown").wait_for()
    page.go_back()
    wait_for(page, "hide", None)
    first.hover()
    first.get_by_role("button", name=re.compile("More for")).click()
    page.get_by_role("button", name=re.compile("pin to the top")).click()
    wait_for(page, "pins", run)
    first.get_by_role("button", name=re.compile("More for")).click()
    page.get_by_role("button", name="Colour 5").click()
    wait_for(page, "colors", f"{run}:4")
    page.locator(".runs").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("o")
    page.get_by_text("8 runs, 1 shown").wait_for()


def test_pinned_runs_are_at_the_top_and_the_focus_goes_with_them(open_page):
    names = "[...document.querySelectorAll('.row .who a')].map(one => one.title)"
    page = open_page("/?cols=arg:lr&sort=arg:lr")
    charts_drawn(page)
    before = page.evaluate(f"() => {names}")
    page.locator(".runs").focus()
    page.keyboard.press("End")
    page.keyboard.press("p")
    until(page, f"{names}.join() === {json.dumps(','.join([before[7], *before[:7]]))}")
    page.keyboard.press("End")
    page.keyboard.press("p")
    wait_for(page, "pins", f"{before[7]},{before[6]}")

    until(page, f"{names}.join() === {json.dumps(','.join([*before[6:], *before[:6]]))}")  # in the order of the list
    assert page.locator(".row.focus .who a").get_attribute("title") == before[6]
    assert page.evaluate("() => document.activeElement.className") == "runs"
    page.keyboard.press("Space")
    wait_for(page, "hide", before[6])
    assert query(page)["pins"] == f"{before[7]},{before[6]}"  # hidden, and still pinned
    page.keyboard.press("Space")
    wait_for(page, "hide", None)
    page.get_by_role("combobox", name="Filter: a where clause").fill("lr < 0.05")
    page.get_by_text("0 of 8 runs and 2 pinned, 2 shown").wait_for()
    page.go_back()
    page.reload()
    until(page, f"{names}.slice(0, 2).join() === {json.dumps(','.join(before[6:]))}")
    page.locator(".runs").focus()
    page.keyboard.press("p")
    until(page, f"{names}.join() === {json.dumps(','.join([before[7], *before[:7]]))}")


def test_a_filter_is_completed_and_says_where_it_is_wrong(open_page):
    page = open_page()
    box = page.get_by_role("combobox", name="Filter: a where clause")
    box.click()
    box.press_sequentially("mod")
    page.get_by_role("option", name="model arg").wait_for()
    page.keyboard.press("Tab")
    box.press_sequentially("= 'large'")
    page.get_by_text("3 of 8 runs").wait_for()

    assert query(page)["where"] == "model = 'large'"
    box.fill("lrr < 0.2")
    page.get_by_role("button", name="use lr").wait_for()
    assert page.inner_text(".wrong mark") == "lrr"
    page.get_by_role("button", name="use lr").click()
    page.get_by_text("3 of 8 runs").wait_for()


def test_columns_are_sorted_picked_and_reordered(open_page):
    page = open_page("/?cols=arg:lr,metric:val/acc&view=table")
    page.get_by_role("button", name="lr", exact=True).click()
    wait_for(page, "sort", "-arg:lr")
    until(page, "document.querySelector('.row [role=gridcell]:nth-child(2)')?.innerText === '0.4'")
    page.get_by_role("button", name="lr", exact=True).press("Alt+ArrowRight")
    wait_for(page, "cols", "metric:val/acc,arg:lr")
    page.get_by_title("Pick and order columns").click()
    page.get_by_role("searchbox", name="Find columns").fill("f1")
    page.get_by_role("checkbox", name="f1", exact=True).check()
    wait_for(page, "cols", "metric:val/acc,arg:lr,metric:f1")
    page.get_by_role("button", name="max of f1").click()

    page.get_by_role("columnheader", name="max(f1)").wait_for()


def test_groups_have_bands(open_page):
    page = open_page()
    page.get_by_label("group by").select_option("arg:model")
    page.locator(".legend li").nth(2).wait_for()

    assert query(page)["group"] == "arg:model"
    assert "small" in page.inner_text(".legend")
    page.get_by_label("band").select_option("range")
    wait_for(page, "band", "range")


CONTROLS = {
    "x": ("[aria-label=Charts] select >> nth=0", "epoch"),
    "logx": ("text=log x", None),
    "logy": ("text=log y", None),
    "size": ("[aria-label=Charts] select >> nth=1", "l"),
    "find": ("#find", "loss"),
    "view": ("text=table >> nth=0", None),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_in_the_address_and_comes_back_from_it(open_page, name):
    page = open_page()
    charts_drawn(page)
    selector, value = CONTROLS[name]
    control = page.locator(selector)
    if value is None:
        control.click()
    elif name == "find":
        control.fill(value)
    else:
        control.select_option(value)
    until(page, f"new URLSearchParams(location.search).has('{name}')")
    address = page.url

    again = open_page(address.removeprefix(page.evaluate("location.origin")))
    again.wait_for_timeout(800)
    assert again.url == address
    if value is not None:
        assert again.locator(selector).input_value() == value
    page.go_back() if name != "find" else None


def test_smoothing_is_in_the_address(open_page):
    page = open_page("/?smooth=0.6")
    charts_drawn(page)

    assert page.get_by_label("Smoothing").input_value() == "0.6"
    page.get_by_label("Smoothing").press("ArrowRight")
    wait_for(page, "smooth", "0.61")


def test_a_chart_zooms_pans_and_shows_all_again(open_page):
    page = open_page("/?find=probe&size=l")
    charts_drawn(page)
    box = page.locator(".plot .u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=5)
    page.mouse.up()
    until(page, "new URLSearchParams(location.search).has('zoom')")
    low, high = map(float, query(page)["zoom"].split(".."))
    assert low == pytest.approx(125, abs=3)
    assert high == pytest.approx(250, abs=3)

    before = query(page)["zoom"]
    page.locator(".plot").press("Shift+ArrowRight")
    until(page, f"!location.search.includes({json.dumps(before)})")
    assert float(query(page)["zoom"].split("..")[0]) > low
    page.locator(".plot").press("0")
    wait_for(page, "zoom", None)


def test_one_crosshair_has_the_values_of_every_run(open_page):
    page = open_page("/?size=s&cols=run")
    charts_drawn(page, 3)
    box = page.locator("[data-chart='train/loss'] .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.locator("[data-chart='train/loss'] .readings").wait_for()

    assert page.locator("[data-chart='train/loss'] .readings div").count() == 8
    assert page.locator(".readings").count() >= 2
    assert page.inner_text("[data-chart='train/loss'] .readings b").startswith("step 4")


def test_step_450_of_500_is_drawn_at_nine_tenths_of_the_axis(open_page):
    """The values of `probe` are 0, and 1 at step 450 only: the highest pixel of the curve is there."""
    page = open_page("/?find=probe&size=l&top=1")
    charts_drawn(page)
    place = page.evaluate(
        """() => {
            const over = document.querySelector('.plot .u-over').getBoundingClientRect();
            const canvas = document.querySelector('.plot canvas');
            const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
            const left = Math.round((over.left - box.left) * scale), width = Math.round(over.width * scale);
            const top = Math.round((over.top - box.top) * scale), height = Math.round(over.height * scale);
            const pixels = canvas.getContext('2d').getImageData(left, top, width, height).data;
            for (let y = 0; y < height; y++) {
                const found = [];
                for (let x = 0; x < width; x++) {
                    const at = 4 * (y * width + x);
                    const [red, green, blue, alpha] = pixels.slice(at, at + 4);
                    const colour = Math.max(red, green, blue) - Math.min(red, green, blue);
                    if (alpha > 200 && colour > 100) found.push(x);
                }
                if (found.length) return found.reduce((a, b) => a + b) / found.length / width;
            }
            return null;
        }"""
    )

    assert place == pytest.approx(0.9, abs=0.004)


def test_what_is_not_a_number_is_marked(open_page):
    page = open_page("/?find=train/loss")
    charts_drawn(page)

    page.get_by_text("2 not finite").wait_for()


def test_a_chart_is_saved_as_numbers_curves_and_picture(open_page):
    page = open_page("/?find=val/acc&x=epoch")
    charts_drawn(page)
    saved = {}
    for kind in ("CSV numbers", "SVG curves", "PNG picture"):
        page.get_by_role("button", name="Save the chart val/acc").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=kind).click()
        saved[kind] = Path(download.value.path()).read_bytes()

    rows = list(csv.reader(io.StringIO(saved["CSV numbers"].decode())))
    assert rows[0][0] == "epoch"
    assert [row[0] for row in rows[1:]] == ["0", "1", "2", "3"]
    assert float(rows[4][1]) in {1 - lr / 4 - seed / 1000 for lr in (0.1, 0.2, 0.3, 0.4) for seed in (0, 1, 9)}
    assert saved["SVG curves"].startswith(b"<svg")
    assert saved["PNG picture"].startswith(b"\x89PNG")


def test_sections_close_and_stay_closed(open_page):
    page = open_page()
    charts_drawn(page)
    page.get_by_role("button", name=re.compile("^.?train")).click()
    wait_for(page, "closed", "train")
    page.reload()
    charts_drawn(page)

    assert page.locator("section[aria-label=train] .card").count() == 0


def test_a_phone_shows_both_runs_and_charts(open_page):
    page = open_page(viewport=PHONE)
    charts_drawn(page)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".row").count() == 8


def test_the_sheet_of_keys_opens_and_closes(open_page):
    page = open_page()
    charts_drawn(page)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.keyboard.press("/")

    assert page.evaluate("document.activeElement.id") == "where"


def test_the_first_load_is_small(filled):
    with urllib.request.urlopen(f"{filled.url}/", timeout=10) as answer:
        html = answer.read().decode()
    sizes = []
    for name in re.findall(r'(?:src|href)="\.?/?(static/[^"]+)"', html):
        asked = urllib.request.Request(f"{filled.url}/{name}", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            sizes.append(len(answer.read()))

    assert len(sizes) == 3
    assert sum(sizes) + len(html) < 150_000
