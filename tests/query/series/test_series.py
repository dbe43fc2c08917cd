"""Curves: steps are counted through nested loops, and a pyramid says what the values themselves say."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.query.series.pyramid_builder import build_pyramids
from relive.query.series.pyramids import pyramid_path, raw_buckets
from relive.query.series.series_reader import SeriesTerms, read_series
from relive.query.series.step_axes import loop_axis, step_axis
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import ROOT, Journal, line_schema


def write_run(home: Home, values: list[float]) -> str:
    run = home.new_run()
    journal = Journal(home.run_folder(run) / "0")
    journal.line(
        line_schema.RunStarted, run=run, name="", project="p", pid=1, start="gone", host="elsewhere", wall_ns=10**18,
        clock_ns=0, entry={"kind": "script", "script": "/p/train.py", "root": "/p"}, argv=["train.py"], environment={},
    )  # fmt: skip
    loop = journal.begin_loop("step", ROOT, 0)
    for step, value in enumerate(values):
        journal.append_float("loss", value, loop, step)
    journal.end_loop(loop, len(values))
    journal.line(line_schema.RunEnded, outcome="finished", error=None, wall_ns=10**18 + 1)
    journal.close()
    return run


@pytest.fixture
def long_run(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    values = [math.sin(n / 50) + (n % 7) / 100 for n in range(25_000)]
    values[12_345], values[20_000] = math.nan, math.inf
    run = write_run(home, values)
    index = Index(home)
    index.refresh()
    return index, run, values


def curve(index: Index, run: str, **terms):
    (found,) = read_series(index, SeriesTerms((run,), ("loss",), **{"pixels": 500, **terms}))["series"]
    return found


def test_a_pyramid_says_what_the_values_say(long_run):
    index, run, values = long_run
    raw = curve(index, run)
    build_pyramids(index)
    found = curve(index, run)

    finite = [value for value in values if math.isfinite(value)]
    for one in (raw, found):
        assert one["count"] == 25_000
        assert len(one["x"]) <= 500
        assert (one["x"][0], one["x"][-1]) == (0, 24_999)
        assert min(low for low in one["low"] if low is not None) == min(finite)
        assert max(high for high in one["high"] if high is not None) == max(finite)
        assert one["nonfinite"] == [{"x": 12_345, "kind": "NaN"}, {"x": 20_000, "kind": "Infinity"}]
        for x, last in zip(one["x"], one["last"], strict=True):
            assert last == values[int(x)]


def test_a_pyramid_is_made_once_also_by_another_process(long_run):
    index, run, values = long_run
    path = pyramid_path(index.home.index, run, "loss", 0)
    done = build_pyramids(index)
    made = path.stat()
    later = build_pyramids(Index(index.home))
    other = write_run(index.home, values)
    index.refresh()

    assert done == later > 0
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert build_pyramids(index, done) > done
    assert pyramid_path(index.home.index, other, "loss", 0).exists()


def test_pyramids_are_made_anew_after_the_index_was(long_run):
    index, run, _ = long_run
    done = build_pyramids(index)
    index.rebuild()
    shutil.rmtree(pyramid_path(index.home.index, run, "loss", 0).parent, ignore_errors=True)

    build_pyramids(index, done + 5)
    assert pyramid_path(index.home.index, run, "loss", 0).exists()


def test_curves_without_envelopes_have_the_same_values(long_run):
    index, run, _ = long_run
    with_envelope, without = curve(index, run), curve(index, run, envelopes=False)

    assert (without["low"], without["high"]) == ([], [])
    assert (without["x"], without["last"]) == (with_envelope["x"], with_envelope["last"])


def test_a_deep_window_has_every_value(long_run):
    index, run, values = long_run
    build_pyramids(index)
    found = curve(index, run, start=1_000, end=1_020)

    assert found["x"] == list(range(999, 1_022))
    assert found["last"] == values[999:1_022]


def test_a_damaged_or_outdated_pyramid_is_not_believed(long_run):
    index, run, _ = long_run
    build_pyramids(index)
    whole = curve(index, run)
    path = pyramid_path(index.home.index, run, "loss", 0)
    path.write_bytes(path.read_bytes()[:-100] + b"x" * 100)
    assert curve(index, run)["last"][-1] == whole["last"][-1]
    path.unlink()

    assert curve(index, run)["count"] == 25_000


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=200), st.integers(1, 30))
def test_buckets_keep_first_last_lowest_and_highest(values, size):
    array = np.asarray(values)
    found = raw_buckets({"step": np.arange(len(array), dtype=float)}, array).reduce(size)
    finite = array[np.isfinite(array)]

    assert found.axes["step"][0] == 0
    assert found.axes["step"][-1] == len(array) - 1
    if len(finite):
        assert np.nanmin(found.low) == finite.min()
        assert np.nanmax(found.high) == finite.max()


def test_steps_are_counted_through_nested_loops():
    dims = np.asarray([[epoch, step] for epoch in range(3) for step in (0, 4, 9)])
    lengths = {(("epoch", "step"), (epoch,)): 12 for epoch in range(3)}

    assert step_axis(("epoch", "step"), dims, lengths).tolist() == [0, 4, 9, 12, 16, 21, 24, 28, 33]
    assert step_axis(("epoch", "step"), dims, {}).tolist() == [0, 4, 9, 10, 14, 19, 20, 24, 29]
    assert step_axis(("epoch",), dims[:, :1], {}).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert loop_axis(("epoch", "step"), dims, 0, lengths).tolist() == pytest.approx(
        [0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2, 7 / 3, 8 / 3]
    )


def test_silent_executions_and_global_steps_are_kept():
    late = np.asarray([[2, 0], [2, 1], [3, 0]])
    lengths = {(("epoch", "step"), (epoch,)): 10 for epoch in range(4)}
    ever_growing = np.asarray([[0, 100], [0, 101], [1, 102]])

    assert step_axis(("epoch", "step"), late, lengths).tolist() == [20, 21, 30]
    assert step_axis(("epoch", "step"), ever_growing, {}).tolist() == [100, 101, 102]
