"""Points of finished runs as Parquet files, sorted so that one name over many runs is one short read."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]

KEYS = ("run", "name", "path", "rank", "process", "seq", "time_us", "loop", "kind", "value", "exact")
TEXTS = ("text", "items")
ORDER = "name, run, rank, process, seq"
# Version 2 encodings (delta, byte stream split) with zstd: 9 bytes a point and the fastest to write of those tried.
FORMAT = "format parquet, compression zstd, parquet_version v2"
MERGE_FROM = 24  # so many segments are merged into one: reading has a cost per file
GRACE_S = 600  # a reader that listed the old files just now may still open them


def connect() -> duckdb.DuckDBPyConnection:
    """A connection of its own to this process's engine; making an engine takes longer than most questions."""
    connection = _engine(os.getpid()).cursor()
    connection.execute("set enable_progress_bar = false")
    return connection


@cache
def _engine(_pid: int) -> duckdb.DuckDBPyConnection:
    """A forked child must not use its parent's engine, whose threads it does not have."""
    import duckdb

    return duckdb.connect(":memory:")


def write(folder: Path, columns: Columns) -> str:
    """Write a segment; gives the name of its file, which exists only when it is whole."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    name = f"{time.time_ns():x}-{os.getpid()}.parquet"
    with contextlib.closing(connect()) as connection:
        # DuckDB takes a NaN in a numpy column for a NULL, so NaNs are told apart by a column of their own.
        connection.register("points", {**columns, "is_nan": np.isnan(columns["value"])})
        value = "case when is_nan then 'nan'::double else value end as value"
        query = f"select * exclude (is_nan) replace ({value}) from points order by {ORDER}"
        _copy(connection, query, folder / name)
    return name


def merge(folder: Path, files: Sequence[str], keep_runs: Sequence[int]) -> str:
    """Write one segment from several, without the rows of runs that are gone."""
    import numpy as np

    name = f"{time.time_ns():x}-{os.getpid()}.parquet"
    with contextlib.closing(connect()) as connection:
        connection.register("kept", {"run": np.asarray(keep_runs, np.int64)})
        source = _scan(folder, files)
        query = f"select * from {source} where run in (select run from kept) order by {ORDER}"
        _copy(connection, query, folder / name)
    return name


def read(
    folder: Path, files: Sequence[str], *, runs: Sequence[int], names: Sequence[int] | None, rank: int | None
) -> Columns:
    """The rows of some runs and names, as numpy columns."""
    if not files or not runs:
        return {}
    with contextlib.closing(connect()) as connection:
        # A range keeps the order of the rows and lets whole groups be passed over; a join would do neither.
        where = [f"run between {min(runs)} and {max(runs)}"]
        if names is not None:
            where.append(f"name in ({', '.join(map(str, names)) or 'null'})")
        if rank is not None:
            where.append(f"rank = {rank}")
        rows = connection.execute(f"select * from {_scan(folder, files)} where {' and '.join(where)}")
        columns = {key: _plain(column) for key, column in rows.fetchnumpy().items()}
    return _of_runs(columns, runs)


def _of_runs(columns: Columns, runs: Sequence[int]) -> Columns:
    """Without the rows of runs that lie in the range but were not asked for, or are gone."""
    import numpy as np

    low = min(runs)
    wanted = np.zeros(max(runs) - low + 1, bool)
    wanted[np.asarray(runs) - low] = True
    keep = wanted[columns["run"] - low]
    return columns if keep.all() else {key: column[keep] for key, column in columns.items()}


def sweep(folder: Path, used: Sequence[str]) -> None:
    """Remove files that no longer belong to the index, once nobody can be reading them."""
    for path in folder.glob("*.parquet*"):
        with contextlib.suppress(FileNotFoundError):
            if path.name not in used and time.time() - path.stat().st_mtime > GRACE_S:
                path.unlink()


def _copy(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> None:
    partial = target.with_suffix(".parquet.partial")
    connection.execute(f"copy ({query}) to {_quoted(str(partial))} ({FORMAT})")
    partial.rename(target)


def _scan(folder: Path, files: Sequence[str]) -> str:
    listed = ", ".join(_quoted(str(folder / file)) for file in files)
    return f"read_parquet([{listed}], union_by_name = true)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _plain(column: Any) -> Any:
    """DuckDB gives masked arrays where there may be NULLs: texts become None, missing loop columns 0."""
    import numpy as np

    if not isinstance(column, np.ma.MaskedArray):
        return column
    if column.dtype == object:
        plain: Any = column.data.copy()
        plain[np.ma.getmaskarray(column)] = None
        return plain
    return column.filled(np.nan if column.dtype.kind == "f" else 0)
