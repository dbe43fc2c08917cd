"""Laws of the recorder: values come back as logged, in the iteration they were logged in, however the loop is left."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas
import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index
from relive.store.chunks import Chunks
from relive.store.gc import check_home
from relive.store.journal import decode_value, from_json, parse_run
from relive.store.journal.journal_parser import ParsedJournal


@pytest.fixture(autouse=True)
def _quickly(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records runs of the test process without a code version and without watching its files."""
    monkeypatch.setenv("RELIVE_VERSIONS", "0")
    monkeypatch.setenv("RELIVE_INPUTS", "0")


def rows(home: Path, *names: str, **how: Any) -> list[tuple[Any, ...]]:
    """The wide table without its fixed columns: loops first, then the names; None where there is nothing."""
    frame = relive.dataframe(*names, home=home, **how)
    shown = frame.drop(columns=["run", "tstamp"])
    return [tuple(None if _is_missing(x) else x for x in row) for row in shown.astype(object).itertuples(index=False)]


def _is_missing(value: Any) -> bool:
    return value is None or value is pandas.NA or (isinstance(value, float) and math.isnan(value))


def records(home: Path) -> list[Any]:
    index = Index(Home(home))
    found = [entry.record for entry in index.runs()]
    index.close()
    return found


def journals(home: Path) -> Iterator[ParsedJournal]:
    for run in sorted(Home(home).run_ids(), key=lambda run: Home(home).run_folder(run).stat().st_mtime_ns):
        yield from parse_run(Home(home), run)


def recorded(home: Path, name: str) -> list[tuple[Any, ...]]:
    """The records of a name in the journals: the items of the enclosing loops, outermost first, and the value."""
    chunks = Chunks(Home(home).chunks)
    found = []
    for journal in journals(home):
        for at in (at for at in range(len(journal)) if journal.names[journal.name[at]] == name):
            path = journal.paths[journal.path[at]]
            items = from_json(journal.items[at]) if journal.items is not None and journal.items[at] else {}
            context = [decode_value(items[loop], chunks.get) if loop in items else int(dim)
                       for loop, dim in zip(path, journal.dims[at], strict=False)]  # fmt: skip
            text = journal.text[at] if journal.text is not None else None
            value = journal.value[at] if text is None else decode_value(from_json(text), chunks.get)
            found.append((*context, value))
    return found


def last_values(home: Path) -> dict[str, Any]:
    """The last value of each name, as the journals have it."""
    return {name: recorded(home, name)[-1][-1] for journal in journals(home) for name in journal.names}


# What log returns, and what is read back


def test_log_returns_the_same_object() -> None:
    with relive.run():
        for value in (1, 1.5, None, "a", [1], object(), float("nan")):
            assert relive.log("v", value) is value


def test_log_returns_the_same_object_when_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIVE_OFF", "1")
    value = object()

    with relive.run() as run:
        assert relive.log("v", value) is value
        assert relive.data("d", value) is value
        assert relive.artifact(value) is value

    assert run is None


PLAIN = [
    0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(10**40), 0.1, -0.0, 1e308, 5e-324, float("inf"), float("-inf"), True, False,
    "", "text", "naïve ☃ 🎉", "nul\0", "\ud800", "x" * 10_000, b"bytes", [1, [2.5, "a", None]], (1, (2,)), {1, 2},
    {"a": {"b": [1]}}, {1: "a", (2, 3): None}, {"$int": "7"}, {"$array": {}}, 1 + 2j, [], {}, frozenset({1}),
    [float("inf")], PurePosixPath("a/b"),
]  # fmt: skip


def test_plain_values_come_back_as_they_were(home: Path) -> None:
    with relive.run():
        for place, value in enumerate(PLAIN):
            relive.log(f"v{place}", value)

    (found,) = rows(home, *(f"v{place}" for place in range(len(PLAIN))))
    assert list(found) == PLAIN
    for one, value in zip(found, PLAIN, strict=True):
        assert isinstance(one, (type(value), np.generic))
        assert isinstance(one, bool | np.bool_) == isinstance(value, bool)
        assert not isinstance(value, float) or math.copysign(1, one) == math.copysign(1, value)


def test_nan_comes_back_as_nan(home: Path) -> None:
    with relive.run():
        relive.log("v", float("nan"))
        relive.log("w", [float("nan")])

        assert math.isnan(relive.dataframe("v", home=home).v[0])

    frame = relive.dataframe("v", "w", home=home)
    assert math.isnan(frame.v[0])
    assert math.isnan(frame.w[0][0])
    assert math.isnan(last_values(home)["v"])
    assert relive.sql("select isnan(value) from logs where name = 'v'", home=home).values.tolist() == [[True]]


def test_nothing_logged_and_none_logged_differ_in_sql(home: Path) -> None:
    with relive.run():
        relive.log("v", None)

    assert relive.sql("select name, type from logs", home=home).values.tolist() == [["v", "none"]]


NUMPY = [
    np.float16(1.5), np.float32(0.1), np.float64(0.1), np.int8(-128), np.int16(-1), np.int32(7), np.int64(-(2**63)),
    np.uint8(255), np.uint16(65535), np.uint32(2**32 - 1), np.uint64(2**64 - 1), np.bool_(True),
]  # fmt: skip


def test_numpy_scalars_come_back_with_their_type(home: Path) -> None:
    with relive.run():
        for value in NUMPY:
            relive.log(value.dtype.name, value)

    frame = relive.dataframe(*(value.dtype.name for value in NUMPY), home=home)
    for value in NUMPY:
        assert frame[value.dtype.name].dtype == value.dtype
        assert frame[value.dtype.name][0] == value


class ForeignArray:
    """An array of a library that is not known here, such as JAX."""

    def __init__(self, content: np.ndarray) -> None:
        self._content = content

    @property
    def shape(self) -> tuple[int, ...]:
        return self._content.shape

    @property
    def dtype(self) -> np.dtype:
        return self._content.dtype

    def item(self) -> Any:
        return self._content.item()


class TracedArray(ForeignArray):
    """An array that has no value while its function is traced."""

    def item(self) -> Any:
        raise RuntimeError("a traced array has no value")


@pytest.mark.parametrize("wrap", [np.array, ForeignArray], ids=["numpy", "another library"])
def test_arrays_without_dimensions_are_numbers(home: Path, wrap: Any) -> None:
    with relive.run():
        for value in NUMPY:
            relive.log(value.dtype.name, wrap(np.array(value)))
        relive.log("traced", TracedArray(np.array(1.5)))

    frame = relive.dataframe(*(value.dtype.name for value in NUMPY), home=home)
    for value in NUMPY:
        assert frame[value.dtype.name].dtype == value.dtype
        assert frame[value.dtype.name][0] == value
    assert "TracedArray" in last_values(home)["traced"]


ARRAYS = [
    np.arange(6.0).reshape(2, 3), np.zeros((0, 4)), np.arange(100)[::-2], np.array(["a", "bc"]),
    np.arange(4, dtype=">i4"), np.array([True, False]), np.full(2_000, np.nan, np.float32), np.array([1 + 1j]),
    np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(["2020-01-01"], "M8[D]"),
]  # fmt: skip


def test_arrays_come_back_as_they_were(home: Path) -> None:
    with relive.run():
        for place, array in enumerate(ARRAYS):
            relive.log(f"v{place}", array)

    found = relive.dataframe(*(f"v{place}" for place in range(len(ARRAYS))), home=home)
    for place, array in enumerate(ARRAYS):
        assert found[f"v{place}"][0].dtype == array.dtype
        np.testing.assert_array_equal(found[f"v{place}"][0], array)


def test_frames_and_series_come_back_as_frames(home: Path) -> None:
    frame = pandas.DataFrame({"a": [1, 2], "b": [0.5, None], "c": ["x", None]}, index=[10, 20])
    with relive.run():
        relive.log("frame", frame)
        relive.log("series", pandas.Series([1.5, 2.5], name="s"))

    found = last_values(home)
    assert found["frame"].index.tolist() == [10, 20]
    assert found["frame"].a.tolist() == [1, 2]
    assert found["frame"].b.fillna(-1).tolist() == [0.5, -1]
    assert found["series"].s.tolist() == [1.5, 2.5]


def test_a_value_that_changes_after_logging_is_recorded_as_it_was(home: Path) -> None:
    array, things = np.zeros(1_000), [1]
    with relive.run():
        relive.log("array", array)
        relive.log("things", things)
        array += 1
        things.append(2)

    found = last_values(home)
    assert not found["array"].any()
    assert found["things"] == [1]


@pytest.mark.parametrize(
    "value",
    [
        np.timedelta64(1, "s"), pandas.NaT, {np.str_("cat"): 0.9}, {np.str_("cat")},
        np.zeros(2, dtype=[("a", [("b", "i4")])]), pandas.DataFrame([[1, 2]], columns=["a", "a"]),
    ],
    ids=["timedelta64", "NaT", "str_ key", "str_ set", "nested struct", "doubled column"],
)  # fmt: skip
def test_any_logged_value_can_be_read(home: Path, value: Any) -> None:
    with relive.run():
        relive.log("v", value)

    assert len(relive.dataframe("v", home=home)) == 1


@pytest.mark.long
def test_torch_and_images_come_back_as_they_were(script) -> None:
    script(
        """
        import torch, relive
        for dtype in "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint64 bool".split():
            relive.log(dtype, torch.tensor(1, dtype=getattr(torch, dtype)))
        relive.log("loss", torch.tensor(0.1, requires_grad=True))
        relive.log("big", torch.tensor(2**64 - 1, dtype=torch.uint64))
        relive.log("tensor", torch.arange(6.0).reshape(2, 3).t())
        relive.log("half", torch.full((2,), 1.5, dtype=torch.bfloat16))
        relive.log("sparse", torch.eye(2).to_sparse())
        relive.log("grad", torch.ones(2, requires_grad=True) * 2)
        relive.log("complex", torch.tensor(1j))
        relive.log("meta", torch.tensor(1.0, device="meta"))
        relive.log("méta", torch.tensor(1.0, device="meta"))
        relive.log("after", 1)
        """
    )

    names = "bfloat16 float32 int8 uint64 bool loss big".split()
    frame = relive.dataframe(*names, home=script.home)
    assert [str(frame[name].dtype) for name in names] == "float32 float32 int8 uint64 bool float32 uint64".split()
    assert frame.loss[0] == np.float32(0.1)
    assert int(frame.big[0]) == 2**64 - 1
    found = last_values(script.home)
    assert found["tensor"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["half"].tolist() == [1.5, 1.5]
    assert found["sparse"].tolist() == [[1, 0], [0, 1]]
    assert found["grad"].tolist() == [2, 2]
    assert found["complex"] == 1j
    assert found["after"] == 1


# Loops


def test_values_carry_the_iteration_of_their_loops(home: Path) -> None:
    with relive.run():
        for epoch in relive.loop("epoch", range(2)):
            for step in relive.loop("step", range(2)):
                relive.log("loss", 10 * epoch + step)
            relive.log("acc", epoch)
        relive.log("final", 1)

    assert recorded(home, "loss") == [(0, 0, 0), (0, 1, 1), (1, 0, 10), (1, 1, 11)]
    assert recorded(home, "acc") == [(0, 0), (1, 1)]
    assert recorded(home, "final") == [(1,)]


@pytest.mark.parametrize("leave", ["break", "continue", "return", "raise", "end", "empty"])
def test_a_value_logged_after_a_loop_is_outside_of_it(home: Path, leave: str) -> None:
    def train() -> None:
        for step in relive.loop("step", range(0 if leave == "empty" else 3)):
            relive.log("loss", step)
            if leave == "break":
                break
            if leave == "return":
                return
            if leave == "raise":
                raise KeyError(step)
            if leave == "continue":
                continue

    with relive.run():
        for epoch in relive.loop("epoch", range(2)):
            try:
                train()
            except KeyError:
                relive.log("caught", epoch)
            relive.log("acc", epoch)
        relive.log("final", 1)

    assert recorded(home, "acc") == [(0, 0), (1, 1)]
    assert recorded(home, "final") == [(1,)]
    if leave == "raise":
        assert recorded(home, "caught") == [(0, 0), (1, 1)]
    if leave != "empty":
        assert len(recorded(home, "loss")) == (6 if leave in ("continue", "end") else 2)


def test_an_exception_through_nested_loops_leaves_them_all(home: Path) -> None:
    with relive.run():
        error = None
        try:
            for a in relive.loop("a", range(2)):
                for b in relive.loop("b", range(2)):
                    for c in relive.loop("c", range(2)):
                        relive.log("v", a + b + c)
                        raise ValueError
        except ValueError as caught:
            error = caught  # its traceback holds the frames
            relive.log("caught", 1)
        relive.log("after", 1)
        del error

    assert recorded(home, "v") == [(0, 0, 0, 0)]
    assert recorded(home, "caught") == [(1,)]
    assert recorded(home, "after") == [(1,)]


def test_a_generator_with_a_loop_inside_can_be_closed_early(home: Path) -> None:
    def batches() -> Any:
        yield from relive.loop("batch", range(5))

    with relive.run():
        source = batches()
        relive.log("first", next(source))
        source.close()
        relive.log("closed", 1)
        for batch in batches():
            relive.log("v", batch)
            break
        relive.log("after", 1)

    assert recorded(home, "first") == [(0, 0)]
    assert recorded(home, "closed") == [(1,)]
    assert recorded(home, "v") == [(0, 0)]
    assert recorded(home, "after") == [(1,)]


def test_collecting_a_loop_left_long_ago_does_not_change_the_current_place(home: Path) -> None:
    with relive.run():
        for epoch in relive.loop("epoch", range(3)):
            kept_iterator = iter(relive.loop("step", range(5)))
            relive.log("step_value", next(kept_iterator))
            relive.log("inside", epoch)
        del kept_iterator
        gc.collect()
        relive.log("after", 1)

    assert recorded(home, "step_value") == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert recorded(home, "after") == [(1,)]


def test_an_iterator_that_outlives_an_epoch_follows_the_epochs(home: Path) -> None:
    with relive.run():
        steps = iter(relive.loop("step", itertools.count()))
        for _epoch in relive.loop("epoch", range(3)):
            for _ in range(2):
                relive.log("loss", next(steps))

    assert recorded(home, "loss") == [(0, 0, 0), (0, 1, 1), (1, 2, 2), (1, 3, 3), (2, 4, 4), (2, 5, 5)]


def test_zipped_loops_advance_together(home: Path) -> None:
    with relive.run():
        for a, b in zip(relive.loop("a", range(3)), relive.loop("b", range(10, 40, 10)), strict=True):
            relive.log("v", a + b)
        relive.log("after", 1)

    assert recorded(home, "v") == [(0, 10, 10), (1, 20, 21), (2, 30, 32)]
    assert recorded(home, "after") == [(1,)]


def test_while_loops_and_enumerate_work(home: Path) -> None:
    with relive.run():
        source = iter(relive.loop("step", [5, 6, 7]))
        while (item := next(source, None)) is not None:
            relive.log("v", item)
        for place, item in enumerate(relive.loop("row", [5, 6])):
            relive.log("w", item + place)
        relive.log("after", 1)

    assert recorded(home, "v") == [(5, 5), (6, 6), (7, 7)]
    assert recorded(home, "w") == [(5, 5), (6, 7)]
    assert recorded(home, "after") == [(1,)]


def test_a_loop_inside_one_of_its_own_name_has_a_column_of_its_own(home: Path) -> None:
    with relive.run():
        for a in relive.loop("fold", range(2)):
            for b in relive.loop("fold", range(2)):
                relive.log("v", 10 * a + b)

    frame = relive.dataframe("v", home=home)
    assert frame[["fold", "fold_2", "v"]].values.tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 10], [1, 1, 11]]


def test_one_name_for_two_loops_in_a_row_is_one_column(home: Path) -> None:
    with relive.run():
        for n in relive.loop("epoch", range(2)):
            relive.log("warmup", n)
        for n in relive.loop("epoch", range(2, 4)):
            relive.log("loss", n)

    assert recorded(home, "loss") == [(2, 2), (3, 3)]
    assert recorded(home, "warmup") == [(0, 0), (1, 1)]


ITEMS = [
    range(3), range(2, 9, 3), range(5, 0, -2), range(-3, 3, 2), range(10**12, 10**12 + 2), range(0, 10**11, 6 * 10**10),
    [3, 1, 2], (0, 10, 20), [2**63 - 1, -(2**63)], np.arange(3).tolist(), ["a", "b"], [0.1, 0.01], ["a", 1, 0.5],
    ["é" * 900, "\ud800"],
]  # fmt: skip


def test_the_loop_column_shows_the_items_if_they_are_numbers_or_text(home: Path) -> None:
    with relive.run():
        for place, items in enumerate(ITEMS):
            for iteration, _item in enumerate(relive.loop("item", items)):
                relive.log(f"v{place}", iteration)
        for item in relive.loop("item", iter([4, 5])):
            relive.log("iterator", item)
        relive.log("after", 1)

    for place, items in enumerate(ITEMS):
        assert recorded(home, f"v{place}") == [(item, iteration) for iteration, item in enumerate(items)]
    assert rows(home, "iterator", "after") == [(4, 4, 1), (5, 5, 1)]
    assert rows(home, "v10", "after") == [("a", 0, 1), ("b", 1, 1)]


def test_other_items_are_shown_as_iteration_numbers(home: Path) -> None:
    with relive.run():
        for n, _batch in enumerate(relive.loop("batch", [np.zeros(2), object(), None, True, (1, 2)])):
            relive.log("v", n)

    assert recorded(home, "v") == [(n, n) for n in range(5)]


def test_a_loop_has_the_attributes_of_its_items() -> None:
    class Loader:
        batch_size = 4

        def __len__(self) -> int:
            return 7

        def __iter__(self) -> Any:
            return iter(range(7))

    with relive.run():
        loop = relive.loop("step", Loader())

        assert len(loop) == 7
        assert loop.batch_size == 4
        assert list(loop) == list(range(7))
        assert list(loop) == list(range(7))
        assert list(relive.loop("x", (n for n in range(3)))) == [0, 1, 2]
        with pytest.raises(TypeError):
            len(relive.loop("x", iter([])))
        with pytest.raises(TypeError, match="not iterable"):
            list(relive.loop("x", 5))
        with pytest.raises(AttributeError):
            _ = loop.no_such_thing


def test_a_progress_bar_around_a_loop_changes_nothing(home: Path) -> None:
    class Bar:
        def __init__(self, iterable: Any) -> None:
            self.iterable, self.total = iterable, len(iterable)

        def __iter__(self) -> Any:
            for item in self.iterable:
                yield item
                self.total -= 1

    with relive.run():
        for epoch in relive.loop("epoch", range(2)):
            for step in Bar(relive.loop("step", range(3))):
                relive.log("loss", step)
                if step == 1:
                    break
            relive.log("acc", epoch)
        relive.log("after", 1)

    assert recorded(home, "loss") == [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]
    assert recorded(home, "acc") == [(0, 0), (1, 1)]
    assert recorded(home, "after") == [(1,)]


def test_a_batch_that_the_script_drops_is_freed() -> None:
    class Batch:
        pass

    with relive.run():
        for batch in relive.loop("step", (Batch() for _ in range(3))):
            watch = weakref.ref(batch)
            del batch

            assert watch() is None


def test_an_error_of_the_items_reaches_the_script(home: Path) -> None:
    def broken() -> Any:
        yield 1
        raise OSError("disk of the user")

    with relive.run():
        with pytest.raises(OSError, match="disk of the user"):
            _ = [relive.log("v", item) for item in relive.loop("step", broken())]
        relive.log("after", 1)

    assert rows(home, "v", "after") == [(1, 1, 1)]


def test_two_values_of_one_name_in_one_context_are_both_kept_in_order(home: Path) -> None:
    with relive.run():
        for _step in relive.loop("step", range(2)):
            for n in range(3):
                relive.log("v", n)
            relive.log("w", "once")

    assert rows(home, "v", "w") == [(step, n, "once") for step in range(2) for n in range(3)]


# Threads and tasks


def test_threads_log_to_the_run_of_their_process(home: Path) -> None:
    with relive.run():
        for epoch in relive.loop("epoch", range(2)):
            threads = [threading.Thread(target=relive.log, args=("t", 10 * epoch + n)) for n in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with ThreadPoolExecutor(2) as pool:
                assert list(pool.map(lambda n: relive.log("p", n), range(4))) == [0, 1, 2, 3]
            relive.log("main", epoch)

    assert sorted(recorded(home, "t")) == [(0,), (1,), (2,), (10,), (11,), (12,)]
    assert sorted(recorded(home, "p")) == sorted([(n,) for n in range(4)] * 2)
    assert recorded(home, "main") == [(0, 0), (1, 1)]


def test_loops_in_threads_are_independent(home: Path) -> None:
    barrier = threading.Barrier(4)

    def work(who: int) -> None:
        for n in relive.loop("turn", range(50)):
            barrier.wait(10)
            relive.log(f"v{who}", n)
        relive.log(f"after{who}", who)

    with relive.run():
        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for who in range(4):
        assert recorded(home, f"v{who}") == [(n, n) for n in range(50)]
        assert recorded(home, f"after{who}") == [(who,)]


def test_tasks_each_have_their_own_place(home: Path) -> None:
    async def work(who: int) -> None:
        for n in relive.loop("turn", range(3)):
            await asyncio.sleep(0)
            relive.log(f"v{who}", n)
            await asyncio.sleep(0.001)
        relive.log("after", who)

    async def main() -> None:
        for _epoch in relive.loop("epoch", [7]):
            await asyncio.gather(*(work(who) for who in range(3)))
        relive.log("end", 1)

    with relive.run():
        asyncio.run(main())

    for who in range(3):
        assert recorded(home, f"v{who}") == [(7, n, n) for n in range(3)]
    assert sorted(recorded(home, "after")) == [(7, 0), (7, 1), (7, 2)]
    assert recorded(home, "end") == [(1,)]


@pytest.mark.parametrize("leave", ["end", "break", "raise", "cancel"])
def test_async_loops_are_left_as_loops_are(home: Path, leave: str) -> None:
    async def source() -> Any:
        for n in range(3):
            await asyncio.sleep(0)
            yield n

    async def train() -> None:
        async for n in relive.loop("batch", source()):
            relive.log("v", n)
            if n == 1 and leave == "break":
                break
            if n == 1 and leave == "raise":
                raise KeyError
            if n == 1 and leave == "cancel":
                raise asyncio.CancelledError

    async def main() -> None:
        try:
            await train()
        except (KeyError, asyncio.CancelledError):
            relive.log("caught", 1)
        relive.log("after", 1)

    with relive.run():
        asyncio.run(main())

    assert recorded(home, "v") == [(n, n) for n in range(3 if leave == "end" else 2)]
    assert recorded(home, "after") == [(1,)]
    if leave in ("raise", "cancel"):
        assert recorded(home, "caught") == [(1,)]


# Runs


def test_each_with_is_a_run_and_what_is_outside_belongs_to_none_of_them(home: Path) -> None:
    with relive.run("one", tags={"n": 1}) as one:
        relive.log("v", 1)
    with relive.run("two") as two:
        relive.log("v", 2)

    found = records(home)
    assert [(r.run, r.name, r.outcome, r.parent) for r in found] == [
        (one, "one", "finished", None),
        (two, "two", "finished", None),
    ]
    assert found[0].tags == {"n": 1}
    assert recorded(home, "v") == [(1,), (2,)]


def test_a_run_inside_a_run_is_its_child_and_the_outer_goes_on_where_it_was(home: Path) -> None:
    with relive.run("outer") as outer:
        for fold in relive.loop("fold", range(2)):
            relive.log("before", fold)
            with relive.run(f"inner {fold}"):
                relive.log("inside", fold)
            relive.log("after", fold)

    found = {r.name: r for r in records(home)}
    assert found["outer"].parent is None
    assert found["inner 0"].parent == found["inner 1"].parent == outer
    assert rows(home, "before", "after") == [(0, 0, 0), (1, 1, 1)]
    assert recorded(home, "inside") == [(0,), (1,)]


def test_runs_of_two_threads_at_once_do_not_mix(home: Path) -> None:
    first_is_open, second_is_open, first_is_closed = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with relive.run("first"):
            relive.log("v", 1)
            first_is_open.set()
            second_is_open.wait(10)
            relive.log("v", 2)
        first_is_closed.set()

    def second() -> None:
        first_is_open.wait(10)
        with relive.run("second"):
            relive.log("v", 10)
            second_is_open.set()
            first_is_closed.wait(10)
            relive.log("v", 20)
        relive.log("v", 100)

    with relive.run("outer"):
        threads = [threading.Thread(target=work) for work in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        relive.log("v", 1000)

    frame = relive.dataframe("v", home=home)
    by_run = frame.groupby("run").v.apply(list).to_dict()
    named = {r.name: by_run[r.run] for r in records(home)}
    assert named == {"first": [1, 2], "second": [10, 20], "outer": [100, 1000]}
    assert [r.parent for r in records(home)] == [None, None, None]


def test_a_run_left_by_an_exception_has_failed_and_the_exception_propagates(home: Path) -> None:
    def train() -> None:
        with relive.run():
            relive.log("v", 1 / 0)

    with pytest.raises(ZeroDivisionError):
        train()

    (record,) = records(home)
    assert record.outcome == "failed"
    assert record.error["type"] == "ZeroDivisionError"
    assert record.error["place"].startswith(f"{__file__}:")


def test_logging_to_a_run_that_has_ended_warns(home: Path) -> None:
    from relive.record.process.user_warnings import reset_warnings

    with relive.run():
        loop = iter(relive.loop("step", range(3)))
        next(loop)
    reset_warnings()
    next(loop)

    with pytest.warns(UserWarning, match=r"\[log-lost\] 'late' was logged to a run that has ended"):
        relive.log("late", 1)
    loop.close()

    assert [r.outcome for r in records(home)] == ["finished"]


def test_tags_and_names_of_any_kind_do_not_stop_a_run(home: Path) -> None:
    with relive.run("né\ud800", tags={"path": Path("a"), "x": float("nan")}) as run:
        relive.log("v", 1)

    assert run is not None
    assert recorded(home, "v") == [(1,)]


def test_a_long_tag_is_kept_like_a_long_value(home: Path) -> None:
    notes = "what we tried before\n" * 1_000
    with relive.run("long", tags={"notes": notes, "sweep": 4}) as run:
        relive.log("v", 1)

    (record,) = records(home)
    assert (record.run, record.tags["sweep"]) == (run, 4)
    assert decode_value(record.tags, Chunks(Home(home).chunks).get) == {"notes": notes, "sweep": 4}
    assert not [finding for finding in check_home(Home(home), deep=True) if finding.damage]


# In scripts


def test_the_command_is_the_whole_line_and_argv_is_the_scripts(script) -> None:
    script(
        "import relive\nrelive.arg('lr', 1.0), relive.arg('api_key', '')\n",
        "--fast", "--kwargs", "lr=0.5", "api_key=abcdef",
    )  # fmt: skip

    record = records(script.home)[0]
    train = str(script.project / "train.py")
    assert record.environment["command"][1:] == [train, "--fast", "--kwargs", "lr=0.5", "api_key=***"]
    assert record.config["argv"] == [train, "--fast"]


def test_data_that_is_read_through_a_link_counts_once(script) -> None:
    (script.project / "real").mkdir()
    (script.project / "real" / "train.csv").write_text("1,2")
    (script.project / "link").symlink_to("real")
    by_name = "import relive\nrelive.data('train', 'real/train.csv')\nopen('{}/train.csv').read()\n"

    script(by_name.format("real"))
    script(by_name.format("link"))

    by_link, plain = records(script.home)
    assert by_link.data["read"] == plain.data["read"] == []
    assert by_link.data_version == plain.data_version


def test_importing_relive_alone_does_nothing(script) -> None:
    done = script(
        """
        import os, random, signal, sys, threading
        before = (sys.argv[:], dict(os.environ), [signal.getsignal(n) for n in signal.valid_signals()],
                  threading.enumerate(), os.listdir("."), random.getstate(), sys.exit, sys.excepthook, sys.stdout)
        import relive
        from relive import log
        after = (sys.argv[:], dict(os.environ), [signal.getsignal(n) for n in signal.valid_signals()],
                 threading.enumerate(), os.listdir("."), random.getstate(), sys.exit, sys.excepthook, sys.stdout)
        print(before == after, sys.argv[1:], "numpy" in sys.modules)
        """,
        "--own", "x=1",
    )  # fmt: skip

    assert done.stdout == "True ['--own', 'x=1'] False\n"
    assert done.stderr == ""
    assert not script.home.exists()


def test_log_works_under_any_name(script) -> None:
    script(
        """
        from relive import log, loop as iterations
        import relive as rl
        for n in iterations("n", range(2)):
            log("a", n)
            rl.log("b", n)
        """
    )

    assert rows(script.home, "a", "b") == [(0, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize("how", ["-c", "-", "-m", "exec", "interactive"])
def test_recording_works_however_the_code_is_started(script, how: str) -> None:
    import subprocess
    import sys

    code = "import relive\nfor n in relive.loop('n', range(2)):\n    relive.log('v', n)\n\n"
    script.write(code, "pkg/__main__.py")
    script.write(f"exec(compile({code!r}, '<cell>', 'exec'), {{}})\n", "nb.py")
    words = {"-c": ["-c", code], "-": ["-"], "-m": ["-m", "pkg"], "exec": ["nb.py"], "interactive": ["-i", "-q"]}[how]

    done = subprocess.run(
        [sys.executable, *words], input=code if how in ("-", "interactive") else "", cwd=script.project, check=False,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0
    assert done.stdout.replace("0\n1\n", "") == ""
    assert recorded(script.home, "v") == [(0, 0), (1, 1)]
    assert [r.outcome for r in records(script.home)] == ["finished"]


def test_threads_whose_first_calls_coincide_share_one_run(script) -> None:
    script(
        """
        import threading, relive
        barrier = threading.Barrier(8)
        def work(n):
            barrier.wait()
            relive.log("v", n)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        """
    )

    assert sorted(recorded(script.home, "v")) == [(n,) for n in range(8)]
    assert len(records(script.home)) == 1


def test_a_signal_handler_may_log_at_any_moment(script) -> None:
    done = script(
        """
        import os, signal, relive
        def handle(number, frame):
            global seen
            seen += 1
            relive.log("signal", seen)
            relive.log(f"name{seen % 50}", {"n": seen})
        seen = 0
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)   # while the run is being opened, too
        for n in relive.loop("n", range(20_000)):
            relive.log("v", n)
        signal.setitimer(signal.ITIMER_REAL, 0)
        relive.log("seen", seen)
        print(seen)
        """
    )

    frame = relive.sql("select name, count(*) n from logs group by name", home=script.home).set_index("name").n
    assert done.stderr == ""
    assert len(records(script.home)) == 1
    assert frame["v"] == 20_000
    assert int(done.stdout) > 10
    assert frame["signal"] == int(done.stdout)


def test_what_a_signal_handler_raises_reaches_the_script(script) -> None:
    done = script(
        """
        import signal, relive
        class Preempted(Exception): pass
        class Handler:
            def __call__(self, number, frame): raise Preempted
        def time_out(number, frame): raise TimeoutError
        def busy():
            while True:
                relive.log("v", {"a": [1, 2]})
        relive.log("first", 1)
        for handler, error in ((Handler(), Preempted), (time_out, TimeoutError)) * 3:
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                busy()
            except error:
                print("reached")
        relive.log("last", 1)
        """,
        timeout=60,
    )

    assert done.stdout == "reached\n" * 6
    assert done.stderr == ""
    assert rows(script.home, "first", "last") == [(1, 1)]


# Data and artifacts


def test_any_kind_of_data_is_recorded(script) -> None:
    (script.project / "folder").mkdir()
    (script.project / "folder" / "a.csv").write_text("1")
    (script.project / "train.csv").write_text("1,2")
    done = script(
        """
        import numpy as np
        from pathlib import Path
        import relive
        print(relive.data("file", "train.csv"), relive.data("folder", Path("folder")))
        print(relive.data("array", np.arange(3)).sum())
        print(relive.data("missing", "nope.csv"), relive.data("none", None), relive.data("url", "s3://b/k", etag="e"))
        relive.data("né\\ud800", "train.csv")
        relive.log("v", 1)
        """
    )

    declared = records(script.home)[0].data["declared"]
    assert done.stdout == "train.csv folder\n3\nnope.csv None s3://b/k\n"
    assert done.stderr.count("ReliveWarning") == 1
    assert "[data-missing]" in done.stderr
    assert {"file", "folder", "array", "url"} <= declared.keys()
    assert "missing" not in declared
    assert declared["file"]["size_bytes"] == 3
    assert recorded(script.home, "v") == [(1,)]


def test_any_kind_of_artifact_is_stored(home: Path, tmp_path: Path) -> None:
    (tmp_path / "models" / "dæp").mkdir(parents=True)
    (tmp_path / "models" / "dæp" / "☃.bin").write_bytes(b"deep")
    (tmp_path / "mødel.pt").write_bytes(b"weights" * 10)
    (tmp_path / "empty").write_bytes(b"")
    with relive.run():
        relive.artifact(tmp_path / "mødel.pt")
        relive.artifact(str(tmp_path / "models"), name="alle modelle ☃")
        relive.artifact(tmp_path / "empty")
        relive.artifact(b"raw", name="raw.bin")
        relive.artifact({"a": [1, 2]}, name="plain")
        relive.artifact(np.arange(1000), name="array")
        relive.artifact({1, 2}, name="../../escape")
        with pytest.warns(UserWarning, match=r"\[artifact-missing\]"):
            assert relive.artifact(tmp_path / "nope") == tmp_path / "nope"
        relive.log("v", 1)

    found = {a["name"]: a for a in records(home)[0].artifacts}
    chunks = Chunks(Home(home).chunks)
    assert set(found) == {"mødel.pt", "alle modelle ☃", "empty", "raw.bin", "plain", "array", "../../escape"}
    assert b"".join(chunks.get(name) for name in found["mødel.pt"]["chunks"]) == b"weights" * 10
    assert [file["path"] for file in found["alle modelle ☃"]["files"]] == ["dæp/☃.bin"]
    assert found["empty"]["size_bytes"] == 0
    assert recorded(home, "v") == [(1,)]


def test_an_artifact_that_cannot_be_read_does_not_stop_recording(home: Path) -> None:
    from relive.record.process.user_warnings import reset_warnings

    class Unpicklable:
        def __reduce__(self) -> Any:
            raise OSError("no")

    reset_warnings()
    with relive.run():
        with pytest.warns(UserWarning, match=r"\[artifact-lost\]"):
            relive.artifact("/proc/self/mem")
        relive.artifact(Unpicklable())
        relive.log("v", 1)

    assert recorded(home, "v") == [(1,)]
    (record,) = records(home)
    assert record.outcome == "finished"
    assert record.artifacts == ()


def test_a_warning_shows_the_line_of_the_user_even_through_a_context_manager(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relive.record.process import user_warnings

    user_warnings.reset_warnings()
    monkeypatch.setenv("RELIVE_TRIAL", "v1")
    with pytest.warns(UserWarning, match="trial-not-a-number") as caught, relive.run():
        relive.log("x", 1.0)

    assert [warning.filename for warning in caught] == [__file__]
