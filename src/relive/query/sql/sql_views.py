"""The documented SQL views: runs, args, logs, loops and checkpoints, each created only if a query mentions it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.errors import NotFound
from relive.model import Verdict
from relive.query.sql.duckdb_relations import create_view
from relive.query.table import Column, Table
from relive.store import REPLAY_OFFSET
from relive.store.catalog import Index, Points, RunEntry
from relive.store.journal import decode_or_describe, from_json, slot_kinds, to_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

# Column → type, in the order in which `select *` shows them; docs/reference/sql.md explains each.
RUNS = {
    "run": "text", "name": "text", "project": "text", "tstamp": "time", "ended": "time", "took_s": "float",
    "outcome": "text", "error": "text", "filename": "text", "version": "text", "head": "text", "branch": "text",
    "dirty": "bool", "data_version": "text", "parent": "text", "world_size": "int", "host": "text", "tags": "text",
    "sweep": "text", "trial": "int",
}  # fmt: skip
ARGS = {"run": "text", "name": "text", "value": "text", "number": "float", "default": "text", "origin": "text"}
LOOPS = {
    "run": "text", "rank": "int", "process": "int", "loop": "int", "name": "text", "parent": "int",
    "parent_iteration": "int", "path": "text", "around": "text", "begun": "time", "ended": "time",
    "iterations": "int",
}  # fmt: skip
CHECKPOINTS = {
    "run": "text", "rank": "int", "process": "int", "place": "text", "name": "text", "path": "text",
    "context": "text", "iterations": "int", "tstamp": "time", "bytes": "int", "new_bytes": "int",
    "stall_s": "float", "write_s": "float", "manifest": "text",
}  # fmt: skip
_DTYPES = {"text": object, "float": np.float64, "int": np.int64, "bool": bool, "time": "datetime64[us]"}
_EMPTY = {"text": "", "float": np.nan, "int": 0, "bool": False, "time": "NaT"}


def relations(index: Index, entries: Sequence[RunEntry]) -> dict[str, Callable[[Connection], None]]:
    """Returns for each view the function that creates it on a connection."""
    return {
        "runs": lambda con: create_view(con, "runs", _table(RUNS, (run_row(entry) for entry in entries))),
        "args": lambda con: create_view(con, "args", _table(ARGS, _arg_rows(entries))),
        "loops": lambda con: create_view(con, "loops", _table(LOOPS, (_loop_row(row) for row in index.loops(entries)))),
        "checkpoints": lambda con: create_view(
            con, "checkpoints", _table(CHECKPOINTS, _checkpoint_rows(index, entries))
        ),
        "logs": lambda con: _create_logs_view(con, index, entries),
    }


def _table(schema: dict[str, str], rows: Iterable[Sequence[Any]]) -> Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    pairs = zip(schema.items(), columns, strict=True)
    return Table({name: make_column(kind, cells) for (name, kind), cells in pairs}, [])


def make_column(kind: str, cells: Sequence[Any]) -> Column:
    """Returns a column of this type (text, float, int, bool, time); None cells become nulls."""
    valid = np.fromiter((cell is not None for cell in cells), bool, len(cells))
    filled = [_EMPTY[kind] if cell is None else cell for cell in cells]
    values = np.empty(len(cells), _DTYPES[kind])  # type: ignore[call-overload]
    values[:] = filled
    return Column(values, None if valid.all() else valid)


def run_row(entry: RunEntry) -> tuple[Any, ...]:
    """Returns the row of a run in the `runs` view, in the order of RUNS."""
    record, code = entry.record, entry.record.code
    error = f"{record.error['type']}: {record.error['message']}" if record.error else None
    return (
        record.run, record.name, record.project, record.started_us, record.ended_us, record.took_s, record.outcome,
        error, record.filename, record.version, code.get("head"), code.get("user_branch"), code.get("dirty"),
        record.data_version, record.parent, record.world_size, record.process.get("host"), to_json(record.tags),
        record.sweep, record.trial,
    )  # fmt: skip


def _arg_rows(entries: Sequence[RunEntry]) -> Iterable[tuple[Any, ...]]:
    for entry in entries:
        for name, arg in entry.record.config["args"].items():
            value = arg["value"]
            yield entry.record.run, name, _arg_text(value), _arg_number(value), _arg_text(arg["default"]), arg["origin"]


def _arg_text(encoded: Any) -> str:
    return encoded if isinstance(encoded, str) else to_json(encoded)


def _arg_number(encoded: Any) -> float | None:
    """Returns the value of an arg if it is a number."""
    if isinstance(encoded, dict) and next(iter(encoded), "") in ("$float", "$int", "$np"):
        encoded = decode_or_describe(encoded, _no_chunk)
    return float(encoded) if isinstance(encoded, int | float | np.number) else None


def _no_chunk(name: str) -> bytes:
    raise NotFound(f"a number is never stored in a chunk, but one names {name}; check the home with `relive doctor`")


def _loop_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    run, rank, process, loop, name, parent, iteration, path, around, begun, ended, iterations = row
    path_text = "/".join(from_json(path))
    return (run, rank, process, loop, name, parent, iteration, path_text, around, begun, ended, iterations)


def _checkpoint_rows(index: Index, entries: Sequence[RunEntry]) -> Iterable[tuple[Any, ...]]:
    for run, rows in index.checkpoints(entries).items():
        for row in rows:
            yield (
                run, row.rank, row.process, row.place, row.name, row.path, to_json(row.at), row.iterations,
                row.time_us, row.size_bytes, row.new_bytes, row.stall_s, row.write_s, row.manifest,
            )  # fmt: skip


def _create_logs_view(con: Connection, index: Index, entries: Sequence[RunEntry]) -> None:
    """Creates the `logs` view: segments of finished runs, scanned as the query needs them, and points of live runs."""
    stored = index.stored(entries)
    live = index.points(
        [entry for entry in entries if entry.live], None, all_ranks=True, replays="all", contradicted=True
    )  # fmt: skip
    create_view(con, "logs#live", _live_table(live))
    create_view(con, "logs#types", _table({"kind": "int", "type": "text"}, slot_kinds.TYPE_NAMES.items()))
    parts = [_select_logs('"logs#live"', live.dims.shape[1], has_text=True)]
    if stored.files:
        create_view(con, "logs#runs", _table({"id": "int", "run": "text"}, stored.runs))
        create_view(con, "logs#names", _table({"id": "int", "name": "text"}, stored.names))
        paths = [(number, "/".join(path), len(path)) for number, path in stored.paths]
        create_view(con, "logs#paths", _table({"id": "int", "path": "text", "depth": "int"}, paths))
        files = ", ".join("'" + file.replace("'", "''") + "'" for file in stored.files)
        source = f"read_parquet([{files}], union_by_name = true)"
        columns = {row[0] for row in con.execute(f"describe select * from {source}").fetchall()}
        deepest = sum(1 for column in columns if column[0] == "d" and column[1:].isdecimal())
        parts.append(_select_logs(_JOINED_SEGMENTS.format(source=source), deepest, has_text="text" in columns))
    con.execute(f"create temp view logs as {' union all '.join(parts)}").fetchall()


_JOINED_SEGMENTS = (
    "(select s.* exclude (run, name, path), r.run, n.name, p.path, p.depth from {source} s"
    ' join "logs#runs" r on r.id = s.run join "logs#names" n on n.id = s.name join "logs#paths" p on p.id = s.path)'
)


_VERDICT_WORDS = " ".join(f"when {one:d} then '{one.word}'" for one in Verdict if one)


def _select_logs(source: str, deepest: int, *, has_text: bool) -> str:
    dims = f"[{', '.join(f'd{depth}' for depth in range(deepest))}]" if deepest else "[]"
    integer_kinds = ", ".join(map(str, sorted(slot_kinds.INTEGER_KINDS)))
    return (
        f"select run, rank, case when process < {REPLAY_OFFSET} then process else 0 end as process,"
        f" greatest(process - {REPLAY_OFFSET}, 0) as replay, case verdict {_VERDICT_WORDS} end as verdict, seq,"
        " make_timestamp(time_us) as tstamp, name, type,"
        f" case when kind not in ({slot_kinds.NONE}, {slot_kinds.LINE}) then value end as value,"
        f" case when kind in ({integer_kinds}) then exact end as integer,"
        f" {'text' if has_text else 'null::varchar'} as text, path,"
        f" list_slice({dims}::bigint[], 1, depth) as iterations"
        f' from {source} join "logs#types" using (kind)'
    )


def _live_table(points: Points) -> Table:
    depth = np.asarray([len(path) for path in points.paths] or [0], np.int64)
    paths = ["/".join(path) for path in points.paths]
    text = points.text if points.text is not None else np.full(len(points), None, object)
    columns = {
        "run": _level_column(points.run, points.runs), "name": _level_column(points.name, points.names),
        "path": _level_column(points.path, paths), "depth": Column(depth[points.path]),
        "text": Column(text, np.asarray([cell is not None for cell in text], bool)),
        **{key: Column(getattr(points, key)) for key in ("rank", "process", "seq", "time_us", "kind", "exact")},
        "value": Column(points.value),
        "verdict": Column(points.verdict if points.verdict is not None else np.zeros(len(points), np.uint8)),
        **{f"d{at}": Column(np.ascontiguousarray(points.dims[:, at])) for at in range(points.dims.shape[1])},
    }  # fmt: skip
    return Table(columns, [])


def _level_column(values: Any, levels: Sequence[str]) -> Column:
    named = np.empty(max(len(levels), 1), object)
    named[: len(levels)] = levels
    return Column(values, None, named)
