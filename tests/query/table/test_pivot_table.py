"""The wide table: every context has its rows, and every logged value is in the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.query.table.pivot_table import RunFacts, pivot
from relive.query.table.wide_table import Table, to_pandas
from relive.store.catalog import Points
from relive.store.journal import encode_value, slot_kinds, to_json

Record = tuple[str, int, int, tuple[str, ...], tuple[Any, ...], str, Any]  # run rank process path items name value
Cell = tuple[Any, ...]
CHUNKS: dict[str, bytes] = {}


def facts(run: str, **args: Any) -> RunFacts:
    return RunFacts(run, "mnist", 1_700_000_000_000_000, "v-" + run, "train.py", args)


def put_chunk(raw: bytes) -> str:
    CHUNKS[str(len(CHUNKS))] = raw
    return str(len(CHUNKS) - 1)


def slot(value: Any) -> tuple[int, float, int, str | None]:
    """Returns the kind, number, integer and text of a value, as the index provides them."""
    if value is None:
        return slot_kinds.NONE, np.nan, 0, None
    if type(value) is float:
        return slot_kinds.FLOAT, value, 0, None
    if type(value) is bool or (type(value) is int and -(2**63) <= value < 2**63):
        return (slot_kinds.BOOL if type(value) is bool else slot_kinds.INT), float(value), int(value), None
    if isinstance(value, np.generic):
        kind = slot_kinds.NUMPY_KINDS[value.dtype.name]
        bits = 0 if kind in slot_kinds.FLOAT_KINDS else int(value)
        return kind, float(value), bits - 2**64 if bits >= 2**63 else bits, None
    return slot_kinds.LINE, np.nan, 0, to_json(encode_value(value, put_chunk))


def points_of(records: Sequence[Record]) -> Points:
    """Returns records, given in logging order, as the columns of the index; items that aren't integers are separate."""
    runs = list(dict.fromkeys(record[0] for record in records))
    ordered = sorted(records, key=lambda record: (runs.index(record[0]), record[1], record[2]))
    names = list(dict.fromkeys(record[5] for record in ordered))
    paths = list(dict.fromkeys(record[3] for record in ordered))
    deepest = max((len(path) for path in paths), default=0)
    slots = [slot(record[6]) for record in ordered]
    non_integer_items = [
        {loop: item for loop, item in zip(record[3], record[4], strict=True) if type(item) is not int}
        for record in ordered
    ]
    dims = [[item if type(item) is int else 0 for item in record[4]] + [77] * deepest for record in ordered]
    return Points(
        runs,
        names,
        paths,
        run=np.array([runs.index(record[0]) for record in ordered], dtype=np.int32),
        name=np.array([names.index(record[5]) for record in ordered], dtype=np.int32),
        path=np.array([paths.index(record[3]) for record in ordered], dtype=np.int32),
        rank=np.array([record[1] for record in ordered], dtype=np.int32),
        process=np.array([record[2] for record in ordered], dtype=np.int32),
        seq=np.arange(len(ordered)),
        time_us=np.arange(len(ordered)),
        dims=np.array([row[:deepest] for row in dims], dtype=np.int64).reshape(len(ordered), deepest),
        kind=np.array([one[0] for one in slots], dtype=np.uint8),
        value=np.array([one[1] for one in slots], dtype=np.float64),
        exact=np.array([one[2] for one in slots], dtype=np.int64),
        text=np.array([one[3] for one in slots], dtype=object) if any(one[3] for one in slots) else None,
        items=np.array([to_json(one) if one else None for one in non_integer_items], dtype=object)
        if any(non_integer_items)
        else None,
    )


def log(path: str, items: Any, name: str, value: Any, *, run: str = "a", rank: int = 0, process: int = 0) -> Record:
    loops = tuple(path.split("/")) if path else ()
    return run, rank, process, loops, tuple(items) if loops else (), name, value


def table_of(records: Sequence[Record], *names: str, runs: Sequence[RunFacts] = (), with_rank: bool = False) -> Table:
    found = runs or [facts(run) for run in dict.fromkeys(record[0] for record in records)]
    return pivot(points_of(records), names, found, get_chunk=CHUNKS.__getitem__, with_rank=with_rank)


def table_rows(table: Table, *columns: str) -> list[Cell]:
    """Returns rows as tuples, with None for missing values, even among floats."""
    out = []
    for name in columns:
        column = table.columns[name]
        valid = np.ones(len(table), dtype=bool) if column.valid is None else column.valid
        values = column.array()
        out.append([values[row] if valid[row] else None for row in range(len(table))])
    return list(zip(*out, strict=True))


# ---------------------------------------------------------------------------------------------- joining


def test_a_value_of_an_outer_loop_is_joined_onto_the_rows_of_inner_loops() -> None:
    records = [
        log("", (), "params", 7),
        *(log("epoch/step", (0, step), "loss", step / 2) for step in range(2)),
        log("epoch", (0,), "acc", 0.9),
        log("epoch/step", (1, 0), "loss", 2.0),
    ]

    table = table_of(records, "params", "loss", "acc")

    assert list(table.columns) == [
        "project", "run", "tstamp", "version", "filename", "epoch", "step", "params", "loss", "acc",
    ]  # fmt: skip
    assert table.dims == list(table.columns)[:7]
    assert table_rows(table, "epoch", "step", "params", "loss", "acc") == [
        (0, 0, 7, 0.0, 0.9),
        (0, 1, 7, 0.5, 0.9),
        (1, 0, 7, 2.0, None),
    ]


def test_an_outer_context_without_inner_rows_keeps_a_row_of_its_own() -> None:
    records = [log("epoch", (0,), "acc", 0.5), log("epoch/step", (1, 0), "loss", 1.0), log("epoch", (1,), "acc", 0.6)]

    table = table_of(records, "loss", "acc")

    assert table_rows(table, "epoch", "step", "loss", "acc") == [(0, None, None, 0.5), (1, 0, 1.0, 0.6)]


def test_sibling_loops_give_separate_rows_and_never_a_cross_product() -> None:
    records = [
        *(log("epoch/step", (0, step), "loss", float(step)) for step in range(2)),
        *(log("epoch/val_step", (0, step), "val", float(step)) for step in range(3)),
        log("epoch", (0,), "acc", 0.5),
    ]

    table = table_of(records, "loss", "val", "acc")

    assert table_rows(table, "epoch", "step", "val_step", "loss", "val", "acc") == [
        (0, 0, None, 0.0, None, 0.5),
        (0, 1, None, 1.0, None, 0.5),
        (0, None, 0, None, 0.0, 0.5),
        (0, None, 1, None, 1.0, 0.5),
        (0, None, 2, None, 2.0, 0.5),
    ]


def test_two_values_of_a_name_in_one_context_repeat_the_row_in_order() -> None:
    records = [log("epoch", (0,), "best", 0.1), log("epoch", (0,), "lr", 5), log("epoch", (0,), "best", 0.2)]

    assert table_rows(table_of(records, "best", "lr"), "epoch", "best", "lr") == [(0, 0.1, 5), (0, 0.2, 5)]


def test_names_repeated_in_one_context_pair_up_by_occurrence() -> None:
    records = [log("", (), name, value) for name, value in [("a", 1), ("b", 10), ("a", 2), ("b", 20), ("a", 3)]]

    assert table_rows(table_of(records, "a", "b"), "a", "b") == [(1, 10), (2, 20), (3, None)]


def test_an_inner_row_gets_the_last_outer_value_logged_before_it() -> None:
    records = [
        log("", (), "phase", "warm"),
        log("step", (0,), "loss", 1.0),
        log("", (), "phase", "main"),
        log("step", (1,), "loss", 2.0),
    ]

    assert table_rows(table_of(records, "phase", "loss"), "step", "phase", "loss") == [
        (0, "warm", 1.0),
        (1, "main", 2.0),
    ]


def test_an_outer_value_that_no_inner_row_holds_keeps_a_row_of_its_own() -> None:
    records = [
        log("", (), "best", 1.0),
        log("step", (0,), "loss", 1.0),
        log("", (), "best", 2.0),
        log("", (), "best", 3.0),
    ]

    assert table_rows(table_of(records, "best", "loss"), "step", "best", "loss") == [
        (0, 1.0, 1.0),
        (None, 2.0, None),
        (None, 3.0, None),
    ]


def test_a_name_with_fewer_values_than_rows_is_not_filled_from_an_outer_context() -> None:
    records = [log("", (), "a", 0), *(log("step", (0,), name, number) for number, name in enumerate("ababb"))]

    assert table_rows(table_of(records, "a", "b"), "step", "a", "b") == [
        (None, 0, None),
        (0, 0, 1),
        (0, 2, 3),
        (0, None, 4),
    ]


def test_a_name_logged_at_two_depths_shows_both_values() -> None:
    records = [log("epoch/step", (0, 0), "loss", 1.0), log("epoch", (0,), "loss", 0.5)]

    assert table_rows(table_of(records, "loss"), "epoch", "step", "loss") == [(0, 0, 1.0), (0, None, 0.5)]


def test_ranks_and_child_processes_are_never_mixed() -> None:
    records = [
        log("step", (0,), "loss", 1.0),
        log("", (), "host", "n0"),
        log("step", (0,), "loss", 2.0, rank=1),
        log("step", (0,), "loss", 3.0, process=99),
    ]

    table = table_of(records, "loss", "host", with_rank=True)

    assert table_rows(table, "rank", "process", "loss", "host") == [
        (0, 0, 1.0, "n0"),
        (0, 99, 3.0, None),
        (1, 0, 2.0, None),
    ]


# ---------------------------------------------------------------------------------------------- runs and args


def test_rows_follow_the_order_of_the_requested_runs_and_other_runs_are_left_out() -> None:
    records = [log("", (), "f1", place, run=run) for place, run in enumerate("abc")]

    table = table_of(records, "f1", runs=[facts("c"), facts("a")])

    assert table_rows(table, "run", "f1") == [("c", 2), ("a", 0)]


def test_args_are_values_at_the_root_and_what_was_logged_wins_over_them() -> None:
    records = [
        *(log("step", (step,), "loss", float(step)) for step in range(2)),
        log("", (), "lr", 0.5, run="b"),
        log("step", (0,), "loss", 7.0, run="b"),
    ]

    table = table_of(records, "lr", "loss", runs=[facts("a", lr=0.1), facts("b", lr=0.2)])

    assert table_rows(table, "run", "lr", "loss") == [("a", 0.1, 0.0), ("a", 0.1, 1.0), ("b", 0.5, 7.0)]


def test_a_run_with_only_an_arg_has_one_row_and_one_with_none_of_the_names_has_none() -> None:
    records = [log("step", (0,), "loss", 1.0)]

    table = table_of(records, "lr", "loss", runs=[facts("x", lr=3), facts("y", seed=1), facts("a"), facts("z", lr=4)])

    assert table_rows(table, "run", "step", "lr", "loss") == [
        ("x", None, 3, None),
        ("a", 0, None, 1.0),
        ("z", None, 4, None),
    ]


def test_with_no_names_there_is_one_row_per_run() -> None:
    table = table_of([log("step", (0,), "loss", 1.0)], runs=[facts("b"), facts("a")])

    assert table_rows(table, "run", "version", "filename") == [("b", "v-b", "train.py"), ("a", "v-a", "train.py")]
    assert list(table.columns) == ["project", "run", "tstamp", "version", "filename"]


def test_a_run_without_any_of_the_names_gives_an_empty_table() -> None:
    table = table_of([], "loss", runs=[facts("a")])

    assert len(table) == 0
    assert list(to_pandas(table).columns) == ["project", "run", "tstamp", "version", "filename", "loss"]


# ---------------------------------------------------------------------------------------------- names


def test_names_and_loops_that_collide_with_a_dimension_get_a_prefix() -> None:
    records = [log("run/epoch", (4, 0), name, 1) for name in ("epoch", "run", "loop_run", "logged_run")]

    table = table_of(records, "logged_run", "epoch", "run", "loop_run")

    assert list(table.columns)[5:] == [
        "loop_run", "epoch", "logged_run", "logged_epoch", "logged_run_2", "logged_loop_run",
    ]  # fmt: skip


def test_a_loop_nested_in_one_of_its_name_has_its_own_column() -> None:
    table = table_of([log("step/step", (1, 2), "loss", 1.0)], "loss")

    assert table_rows(table, "step", "step_2", "loss") == [(1, 2, 1.0)]


def test_loop_columns_are_ordered_outermost_first_in_any_logging_order() -> None:
    records = [log("epoch/step", (0, 0), "loss", 1.0), log("fold/epoch", (0, 0), "loss", 1.0, run="b")]

    assert table_of(records, "loss").dims[5:] == ["fold", "epoch", "step"]


def test_loops_nested_in_both_orders_still_make_a_table() -> None:
    records = [log("x/y", (1, 2), "loss", 1.0), log("y/x", (3, 4), "loss", 2.0)]

    assert table_rows(table_of(records, "loss"), "x", "y", "loss") == [(1, 2, 1.0), (4, 3, 2.0)]


# ---------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.0, float("nan")], "float64"),
        ([1.0, None], "float64"),
        ([1, 2], "int64"),
        ([True, False], "bool"),
        ([1, 2.5], "float64"),
        ([2**53 + 1, 2.5], "object"),
        ([True, 1], "object"),
        ([True, 0.5], "object"),
        ([np.float32(0.1), np.float32(1)], "float32"),
        ([np.float32(0.1), 0.1], "float64"),
        ([np.uint64(2**64 - 1)], "uint64"),
        ([np.uint64(3), -3], "int64"),
        ([np.uint64(2**64 - 1), -3], "object"),
        ([np.uint64(2**64 - 1), 0.5], "object"),
        ([np.int8(3), np.int16(4)], "int16"),
        (["a", "b"], "object"),
        (["a", 1.5, 3, True, np.float32(0.1)], "object"),
        ([2**70, 1], "object"),
        ([[1, 2], {"a": 1}, (1, 2)], "object"),
        ([None, None], "float64"),
    ],
)
@pytest.mark.parametrize("as_args", [False, True])
def test_logged_values_keep_their_type_and_value(values: list[Any], dtype: str, as_args: bool) -> None:
    runs = [facts(str(place), **({"x": value} if as_args else {})) for place, value in enumerate(values)]
    records = [] if as_args else [log("", (), "x", value, run=str(place)) for place, value in enumerate(values)]

    table = table_of(records, "x", runs=runs)

    back = [row[0] for row in table_rows(table, "x")]
    assert table.columns["x"].values.dtype == dtype
    assert dtype != "object" or [repr(value) for value in back] == [repr(value) for value in values]
    assert all(got == value or (got != got and value != value) for got, value in zip(back, values, strict=True))


def test_arrays_come_back_as_arrays_and_are_read_once_for_any_number_of_rows() -> None:
    array = np.arange(600.0).reshape(20, 30)
    records = [log("", (), "hist", array), *(log("step", (step,), "loss", 1.0) for step in range(3))]
    reads: list[str] = []

    def read(chunk: str) -> bytes:
        reads.append(chunk)
        return CHUNKS[chunk]

    table = pivot(points_of(records), ["hist", "loss"], [facts("a")], get_chunk=read)

    assert [np.array_equal(cell, array) for cell in table["hist"]] == [True] * 3
    assert len(reads) == 1


def test_items_that_are_not_integers_are_in_the_loop_column_and_distinguish_contexts() -> None:
    records = [
        *(log("fold/step", (fold, 1), "loss", float(place)) for place, fold in enumerate(["a", "b", 0, "a"])),
        log("fold", ("b",), "acc", 0.5),
        log("fold", (0,), "acc", 0.7),
    ]

    assert table_rows(table_of(records, "loss", "acc"), "fold", "step", "loss", "acc") == [
        ("a", 1, 0.0, None),
        ("b", 1, 1.0, 0.5),
        (0, 1, 2.0, 0.7),
        ("a", 1, 3.0, None),
    ]


def test_items_of_any_size_distinguish_contexts() -> None:
    seeds = [-(2**63), 2**63 - 1, 0, -1, 5]
    records = [log("seed/split", (seed, -seed % 2**62), "loss", float(place)) for place, seed in enumerate(seeds)]
    records += [log("seed", (seed,), "acc", float(place)) for place, seed in enumerate(seeds)]

    table = table_of(records, "loss", "acc")

    assert table_rows(table, "seed", "loss", "acc") == [(seed, float(at), float(at)) for at, seed in enumerate(seeds)]


def test_pandas_gets_nullable_integers_and_booleans_and_utc_times() -> None:
    records = [
        log("epoch", (0,), "n", 2**60 + 1),
        log("epoch", (0,), "ok", True),
        log("epoch", (0,), "note", "hi"),
        log("epoch", (1,), "loss", 1.0),
    ]

    frame = to_pandas(table_of(records, "n", "ok", "note", "loss"))

    assert frame.dtypes[["n", "ok", "loss", "tstamp", "epoch"]].astype(str).tolist() == [
        "Int64", "boolean", "float64", "datetime64[us]", "int64",
    ]  # fmt: skip
    assert frame["n"].tolist() == [2**60 + 1, pd.NA]
    assert frame["tstamp"][0] == pd.Timestamp("2023-11-14 22:13:20")
    assert frame["note"].isna().tolist() == [False, True]
    assert frame["run"].tolist() == ["a", "a"]


def test_pandas_leaves_objects_alone() -> None:
    values = [2**70, 1, 1.5, "x", np.arange(3)]
    frame = to_pandas(table_of([log("", (), "x", value, run=str(at)) for at, value in enumerate(values)], "x"))

    assert frame["x"].dtype == object
    assert [type(value) for value in frame["x"]] == [int, int, float, str, np.ndarray]


def test_taking_rows_keeps_nulls_and_columns() -> None:
    records = [log("epoch", (0,), "n", 1), log("epoch", (1,), "m", 2), log("epoch", (2,), "n", 3)]

    table = table_of(records, "n", "m").take(np.array([True, True, False]))

    assert table_rows(table, "run", "epoch", "n", "m") == [("a", 0, 1, None), ("a", 1, None, 2)]


# ---------------------------------------------------------------------------------------------- the reference


@dataclass
class Row:
    """A row of the reference implementation: its context, its time, and its cells."""

    group: Cell
    path: tuple[str, ...]
    items: Cell
    time: int
    cells: dict[str, int | None] = field(default_factory=dict)  # name → record number; None if the cell must stay empty

    def is_inside(self, context: Cell) -> bool:
        group, path, items = context
        depth = len(path)
        deeper = len(self.path) > depth
        return deeper and self.group == group and self.path[:depth] == path and self.items[:depth] == items


def reference_rows(records: Sequence[Record]) -> list[Row]:
    """Returns the rows by the definition, one context after the other, deepest first."""
    contexts: dict[Cell, dict[str, list[int]]] = {}
    for number, (run, rank, process, path, items, name, _) in enumerate(records):
        contexts.setdefault(((run, rank, process), path, items), {}).setdefault(name, []).append(number)
    rows: list[Row] = []
    for context in sorted(contexts, key=lambda context: -len(context[1])):
        inner = [row for row in rows if row.is_inside(context)]
        joined = {_join(row, name, logged) for row in inner for name, logged in contexts[context].items()}
        own = _own_rows(context, contexts[context])
        rows += [row for row, news in own if not inner or not news <= joined]
    return sorted(rows, key=lambda row: row.time)


def _join(row: Row, name: str, logged: list[int]) -> int | None:
    if name in row.cells:
        return None
    before = [number for number in logged if number < row.time]
    row.cells[name] = before[-1] if before else logged[0]
    return row.cells[name]


def _own_rows(context: Cell, names: dict[str, list[int]]) -> list[tuple[Row, set[int]]]:
    out = []
    for iteration in range(max(map(len, names.values()))):
        news = {logged[iteration] for logged in names.values() if iteration < len(logged)}
        row = Row(*context, time=min(news))
        for name, logged in names.items():
            row.cells[name] = logged[0] if len(logged) == 1 else logged[iteration] if iteration < len(logged) else None
        out.append((row, news))
    return out


def reference_table(records: Sequence[Record], names: Sequence[str], runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    requested = [run.run for run in runs]
    selected = [record for record in records if record[5] in names and record[0] in requested]
    selected = sorted(selected, key=lambda record: (requested.index(record[0]), record[1], record[2]))
    out = []
    for run in runs:
        logged = {record[5] for record in selected if record[0] == run.run}
        args = {name: run.args[name] for name in names if name in run.args and name not in logged}
        run_rows = [row for row in reference_rows(selected) if row.group[0] == run.run]
        for row in run_rows:
            cells = {name: selected[number][6] for name, number in row.cells.items() if number is not None}
            group = {"run": run.run, "rank": row.group[1], "process": row.group[2]}
            out.append({**args, **cells, **group, **dict(zip(row.path, row.items, strict=True))})
        if not run_rows and args:
            out.append({**args, "run": run.run, "rank": 0, "process": 0})
    return out


# Few of everything, so that values meet in a context often enough.
PATHS = [(), ("epoch",), ("epoch", "step"), ("epoch", "val"), ("epoch", "step", "micro"), ("fold",)]
ITEMS: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "fold": lambda: st.sampled_from(["x", "y", 0]),
    "epoch": lambda: st.integers(0, 1),
    "step": lambda: st.sampled_from([-1, -1, 2]),
    "val": lambda: st.integers(0, 1),
    "micro": lambda: st.sampled_from([0, 1, 2**62]),
}


@st.composite
def a_record(draw: st.DrawFn) -> Record:
    path = draw(st.sampled_from(PATHS))
    items = tuple(draw(ITEMS[loop]()) for loop in path)
    run, rank, process = draw(st.sampled_from([("a", 0, 0)] * 7 + [("a", 0, 42), ("a", 1, 0), ("b", 0, 0)]))
    return run, rank, process, path, items, draw(st.sampled_from("ppqqrs")), None


@given(
    st.lists(a_record(), max_size=30),
    st.lists(st.sampled_from("pqrst"), min_size=1, unique=True),
    st.permutations(["a", "b", "c"]),
    st.sets(st.sampled_from([("a", "p"), ("b", "q"), ("c", "t")])),
)
@settings(max_examples=120, deadline=None)
def test_the_table_equals_the_reference_implementation(
    bare: list[Record], names: list[str], order: list[str], args: set[tuple[str, str]]
) -> None:
    records = [(*record[:6], number) for number, record in enumerate(bare)]
    runs = [facts(run, **{name: -5 for who, name in args if who == run}) for run in order]

    table = table_of(records, *names, runs=runs, with_rank=True)

    loops = [dim for dim in table.dims if dim in ITEMS]
    columns = ["run", "rank", "process", *loops, *names]
    expected = reference_table(records, names, runs)
    assert table_rows(table, *columns) == [tuple(row.get(name) for name in columns) for row in expected]
    assert {loop for row in expected for loop in row if loop in ITEMS} == set(loops)


@given(st.lists(a_record(), max_size=40))
@settings(max_examples=100, deadline=None)
def test_every_logged_value_is_in_the_table(bare: list[Record]) -> None:
    records = [(*record[:6], number) for number, record in enumerate(bare)]

    table = table_of(records, *"pqrs")

    in_table = {value for row in table_rows(table, *"pqrs") for value in row} - {None}
    assert in_table == set(range(len(records)))
