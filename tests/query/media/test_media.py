"""What a page makes of logged values that are no numbers: by type and shape, at any step, and never more than asked."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from relive.errors import Damaged, NotFound, QueryError
from relive.query.media import MediaTerms, list_media, media_kinds, read_histograms, read_image
from relive.query.media.image_pixels import encode_png
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import encode_value

LOGS = """
import numpy as np, pandas, relive
rng = np.random.default_rng(0)
for epoch in relive.loop("epoch", range(5)):
    for step in relive.loop("step", range(2)):
        relive.log("w", rng.normal(epoch, 1, size=(200, 10)))
    relive.log("counted", np.histogram(rng.normal(size=100), 10))
    relive.log("odd", np.array([1.0, np.nan, np.inf, 2.0]))
    relive.log("note", "x" * (20_000 if epoch == 4 else 3))
    relive.log("frame", pandas.DataFrame({"a": range(80), "b": list("xy") * 40}))
    relive.log("pixels", np.full((16, 8, 3), epoch * 50, "uint8"))
    relive.log("batch", np.full((3, 1, 9, 8), epoch / 4, "float32"))
    relive.log("misc", {"a": [epoch]})
"""


@pytest.fixture(scope="module")
def logged(shared_script):
    shared_script(LOGS)
    index = Index(Home(shared_script.project / ".relive"))
    return index, index.runs()[0].record.run


def form(value):
    stored = {}

    def put(data):
        stored[str(len(stored))] = data
        return str(len(stored) - 1)

    return encode_value(value, put)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "text"), ("x" * 9000, "text"), ({"a": 1}, "json"), ([1, 2], "json"), ((1, 2), "json"),
        (np.zeros((8, 8), "uint8"), "image"), (np.zeros((8, 8), bool), "image"), (np.zeros((8, 8)), "histogram"),
        (np.zeros((64, 64, 3), "uint8"), "image"), (np.zeros((4, 64, 64), "float32"), "image"),
        (np.full((3, 64, 64), 1.5), "histogram"), (np.full((3, 64, 64), -0.1), "histogram"),
        (np.zeros((7, 64, 3), "uint8"), "histogram"), (np.zeros((2, 3, 8, 8), "uint8"), "image"),
        (np.zeros((2, 8, 8, 4), "float32"), "image"), (np.zeros(100), "histogram"), (np.zeros(3, "int32"), "histogram"),
        ([np.zeros((8, 8), "uint8"), np.zeros((9, 9, 3), "uint8")], "image"), ([np.zeros(3), np.zeros(3)], "json"),
        (np.histogram(np.zeros(5), 7), "histogram"), ((np.zeros(5), np.zeros(5)), "json"),
        (np.array(["a", "b"]), "json"), (np.zeros(3, bool), "json"), (np.zeros((0, 8, 8, 3), "uint8"), "histogram"),
    ],
)  # fmt: skip
def test_type_and_shape_say_what_a_value_is(value, kind):
    assert media_kinds.kind_of(form(value)) == kind


def test_values_are_listed_with_their_steps(logged):
    index, run = logged
    found = list_media(index, MediaTerms(run, "w"))
    by_epoch = list_media(index, MediaTerms(run, "note", "epoch"))

    assert [(one["n"], one["x"], one["kind"]) for one in found["values"]] == [(n, n, "histogram") for n in range(10)]
    assert [one["text"][:3] for one in by_epoch["values"]] == ["xxx"] * 5
    assert len(by_epoch["values"][4]["text"]) == 10_000
    assert by_epoch["values"][4]["truncated"]


def test_of_many_values_some_at_equal_distances_are_taken(logged):
    index, run = logged

    assert [one["n"] for one in list_media(index, MediaTerms(run, "w", limit=4))["values"]] == [0, 3, 6, 9]
    part = list_media(index, MediaTerms(run, "w", start=3, end=5))
    assert ([one["n"] for one in part["values"]], part["total"]) == ([3, 4, 5], 3)


def test_frames_are_tables_of_bounded_size(logged):
    index, run = logged
    value = list_media(index, MediaTerms(run, "frame", limit=1))["values"][0]

    assert value["columns"] == ["", "a", "b"]
    assert value["rows"][1] == [1, 1, "y"]
    assert (len(value["rows"]), value["truncated"]) == (50, True)


def test_histograms_have_the_same_bins_at_all_steps(logged):
    index, run = logged
    found = read_histograms(index, MediaTerms(run, "w"), 20)

    assert len(found["edges"]) == 21
    assert [sum(row["counts"]) for row in found["rows"]] == [2000] * 10
    means = [row["mean"] for row in found["rows"]]
    assert means == pytest.approx([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], abs=0.1)


def test_counts_of_other_bins_are_spread_over_the_common_ones(logged):
    index, run = logged
    found = read_histograms(index, MediaTerms(run, "counted"), 30)

    assert [sum(row["counts"]) for row in found["rows"]] == pytest.approx([100] * 5)


def test_numbers_that_are_not_finite_are_counted_apart(logged):
    index, run = logged
    row = read_histograms(index, MediaTerms(run, "odd"), 4)["rows"][0]

    assert (row["counts"], row["odd"], row["size"]) == ([1, 0, 0, 1], 2, 4)


def test_images_are_png_with_the_pixels_that_were_logged(logged):
    image = pytest.importorskip("PIL.Image")
    index, run = logged
    first = image.open(io.BytesIO(base64.b64decode(read_image(index, MediaTerms(run, "pixels"), 3, 0)["png"])))
    item = image.open(io.BytesIO(base64.b64decode(read_image(index, MediaTerms(run, "batch"), 2, 1)["png"])))

    assert (first.size, first.mode, first.getpixel((7, 15))) == ((8, 16), "RGB", (150, 150, 150))
    assert (item.size, item.mode, item.getpixel((0, 0))) == ((8, 9), "L", 128)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_png_has_any_pixels(channels):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels)).astype("uint8")

    found = np.asarray(image.open(io.BytesIO(encode_png(pixels))))
    assert (found.reshape(pixels.shape) == pixels).all()


def test_what_is_not_there_is_said(logged):
    index, run = logged
    with pytest.raises(NotFound, match="no value 99"):
        read_image(index, MediaTerms(run, "pixels"), 99, 0)
    with pytest.raises(NotFound, match="no image 3"):
        read_image(index, MediaTerms(run, "batch"), 0, 3)
    with pytest.raises(QueryError, match="is no image"):
        read_image(index, MediaTerms(run, "note"), 0, 0)

    assert list_media(index, MediaTerms(run, "nothing"))["values"] == []


@pytest.mark.parametrize(
    "broken",
    [
        {"$array": {}}, {"$array": 3}, {"$array": {"dtype": "<f4", "shape": [9], "data": "AAAA"}}, {"$image": None},
        {"$array": {"dtype": "|O", "shape": [1], "data": "AAAAAAAAAAA="}}, {"$frame": []}, {"$tuple": None},
        {"$array": {"dtype": "<f4", "shape": ["x"], "data": ""}}, {"$text": {}}, {"$image": {"dtype": "|u1"}},
        {"$array": {"dtype": "|u1", "shape": [9, 9, 3], "chunk": "../../etc/passwd"}},
    ],
)  # fmt: skip
def test_forms_that_nobody_would_write_are_no_trouble(broken):
    from relive.query.media.logged_media import _describe, safe_kind

    def get_chunk(name):
        raise NotFound(f"{name} is no chunk")

    assert safe_kind(broken) in ("json", "histogram", "text", "table", "image")
    _describe(broken, get_chunk)


def test_palettes_become_colours():
    image = pytest.importorskip("PIL.Image")
    red = image.new("RGB", (8, 8), (255, 0, 0)).quantize(4)
    stored = form(red)

    assert stored["$image"]["mode"] == "RGB"
    assert stored["$image"]["shape"] == [8, 8, 3]


def test_the_summary_of_bfloat16_is_of_its_numbers():
    torch = pytest.importorskip("torch")
    summary = form(torch.linspace(-1, 1, 1001, dtype=torch.bfloat16))["$array"]["summary"]

    assert (summary["min"], summary["max"]) == (-1.0, 1.0)


def test_an_array_that_is_damaged_is_told():
    with pytest.raises(Damaged):
        media_kinds.read_array({"$array": {"dtype": "<f4", "shape": [9], "data": "AAAA"}}, lambda _: b"")
