"""Points of finished runs in Parquet files, sorted by name so that one name of many runs is one short read."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from relive.store.catalog.row_seals import refuse
from relive.store.durable_files import stage

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]

TEXTS = ("text", "items")
ROW_ORDER = "name, run, rank, process, seq"
# Version 2 encodings (delta, byte stream split) with zstd: 9 bytes per point, and the fastest to write of those tried.
PARQUET_OPTIONS = "format parquet, compression zstd, parquet_version v2"
MERGE_FROM = 24  # this many segments are merged into one, because reading has a cost per file
_READ_BYTES = 4 << 20
GRACE_S = 600  # unused files are kept this long, because a reader that has listed them may still open them


class SegmentFile(NamedTuple):
    """A segment on disk, and what its bytes are verified with."""

    name: str
    size_bytes: int
    digest: str


def verify_segment(folder: Path, file: SegmentFile) -> None:
    """Reads the bytes of a segment, once in a process; raises `IndexDamaged` if they are not what was written."""
    path = folder / file.name
    try:
        facts = path.stat()
        is_whole = _file_digest(path, facts.st_mtime_ns, facts.st_ino, facts.st_size) == file[1:]
    except FileNotFoundError:
        refuse(f"the segment {file.name} is missing")
    if not is_whole:
        refuse(f"the segment {file.name} was changed")


@lru_cache(10_000)
def _file_digest(path: Path, _mtime_ns: int, _inode: int, _size_bytes: int) -> tuple[int, str]:
    """Returns the size and the digest of a file, once for each state of it."""
    hash_, size = xxhash.xxh3_64(), 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            hash_.update(part)
            size += len(part)
    return size, hash_.hexdigest()


def _measure(path: Path) -> SegmentFile:
    facts = path.stat()
    return SegmentFile(path.name, *_file_digest(path, facts.st_mtime_ns, facts.st_ino, facts.st_size))


def connect() -> duckdb.DuckDBPyConnection:
    """Returns a new connection to this process's DuckDB engine; starting an engine takes longer than most queries."""
    connection = _engine(os.getpid()).cursor()
    connection.execute("set enable_progress_bar = false")
    return connection


@cache
def _engine(_pid: int) -> duckdb.DuckDBPyConnection:
    """Returns the engine of a process. A forked child must not use its parent's, whose threads it lacks."""
    import duckdb

    return duckdb.connect(":memory:")


def write_segment(folder: Path, columns: Columns) -> SegmentFile:
    """Writes a segment. The file appears under that name only when it is complete."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    name = f"{time.time_ns():x}-{os.getpid()}.parquet"
    with contextlib.closing(connect()) as connection:
        # DuckDB reads a NaN in a numpy column as NULL, so NaNs are flagged in a column of their own.
        connection.register("points", {**columns, "is_nan": np.isnan(columns["value"])})
        value = "case when is_nan then 'nan'::double else value end as value"
        query = f"select * exclude (is_nan) replace ({value}) from points order by {ROW_ORDER}"
        _copy_to_parquet(connection, query, folder / name)
    return _measure(folder / name)


def merge_segments(folder: Path, files: Sequence[str], keep_runs: Sequence[int]) -> SegmentFile:
    """Merges several segments into one, without the rows of deleted runs."""
    import numpy as np

    name = f"{time.time_ns():x}-{os.getpid()}.parquet"
    with contextlib.closing(connect()) as connection:
        connection.register("kept", {"run": np.asarray(keep_runs, np.int64)})
        source = _scan_sql(folder, files)
        query = f"select * from {source} where run in (select run from kept) order by {ROW_ORDER}"
        _copy_to_parquet(connection, query, folder / name)
    return _measure(folder / name)


def read_segments(
    folder: Path, files: Sequence[str], *, runs: Sequence[int], names: Sequence[int] | None, rank: int | None
) -> Columns:
    """Returns the rows of the given runs and names as numpy columns."""
    if not files or not runs:
        return {}
    with contextlib.closing(connect()) as connection:
        # A range keeps the order of the rows and is pushed down to skip row groups; a join would do neither.
        where = [f"run between {min(runs)} and {max(runs)}"]
        if names is not None:
            where.append(f"name in ({', '.join(map(str, names)) or 'null'})")
        if rank is not None:
            where.append(f"rank = {rank}")
        rows = connection.execute(f"select * from {_scan_sql(folder, files)} where {' and '.join(where)}")
        columns = {key: _unmask(column) for key, column in rows.fetchnumpy().items()}
    return _select_runs(columns, runs)


def _select_runs(columns: Columns, runs: Sequence[int]) -> Columns:
    """Removes the rows of other runs inside the range: those not asked for, and deleted ones."""
    import numpy as np

    keep = np.isin(columns["run"], runs)
    return columns if keep.all() else {key: column[keep] for key, column in columns.items()}


def delete_unused(folder: Path, used: Sequence[str]) -> None:
    """Deletes files that no longer belong to the index, once no reader can still be opening them."""
    for path in folder.glob("*.parquet*"):
        with contextlib.suppress(FileNotFoundError):
            if path.name not in used and time.time() - path.stat().st_mtime > GRACE_S:
                path.unlink()


def dim_keys(columns: Columns) -> list[str]:
    """Returns the names of the loop columns d0, d1, …, outermost first."""
    return sorted((key for key in columns if key[0] == "d" and key[1:].isdecimal()), key=lambda key: int(key[1:]))


def _copy_to_parquet(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> None:
    with stage(target, durable=False) as partial:
        connection.execute(f"copy ({query}) to {_quote(str(partial))} ({PARQUET_OPTIONS})")


def _scan_sql(folder: Path, files: Sequence[str]) -> str:
    listed = ", ".join(_quote(str(folder / file)) for file in files)
    return f"read_parquet([{listed}], union_by_name = true)"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unmask(column: Any) -> Any:
    """Replaces the masked arrays that DuckDB returns for columns with NULLs: texts become None, loop columns 0."""
    import numpy as np

    if not isinstance(column, np.ma.MaskedArray):
        return column
    if column.dtype == object:
        plain: Any = column.data.copy()
        plain[np.ma.getmaskarray(column)] = None
        return plain
    return column.filled(np.nan if column.dtype.kind == "f" else 0)
