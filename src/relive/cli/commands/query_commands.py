"""`relive dataframe` and `relive sql`: tables over all runs, printed or written to a file."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from relive.cli.completion import complete_columns
from relive.cli.targets import home_option, open_home
from relive.cli.terminal_table import TerminalColumn, print_table, table_options, terminal_width
from relive.model import SHORT_ID_DIGITS, Verdict

_MAX_ROWS = 40
_SHORT = {"run": SHORT_ID_DIGITS, "version": SHORT_ID_DIGITS, "tstamp": len("2026-01-01 00:00:00")}
_PLACES = {"run": -1, "tstamp": 2, "filename": 3, "version": 4, "project": 5}  # loops and values are between
_MEANINGS = {
    Verdict.UNVERIFIED: "replayed, and nothing shows that it is right",
    Verdict.CONTRADICTED: "replayed, and the record differs",
}


def _output_options(command: Any) -> Any:
    for option in (
        click.option("--csv", "style", flag_value="csv", help="Print CSV."),
        click.option("--json", "style", flag_value="json", help="Print JSON, one object per row."),
        click.option("--parquet", type=click.Path(dir_okay=False, path_type=Path), help="Write a Parquet file."),
        table_options,
        home_option,
    ):
        command = option(command)
    return command


@click.command()
@click.argument("names", nargs=-1, shell_complete=complete_columns)
@click.option("--where", help='Only rows that match this condition, for example "lr < 0.1 and epoch > 3".')
@click.option(
    "--ranks",
    type=click.Choice(["canonical", "all"]),
    default="canonical",
    show_default=True,
    help="Rank 0 only, or all ranks.",
)
@click.option(
    "--replays",
    type=click.Choice(["latest", "all", "none"]),
    default="latest",
    show_default=True,
    help="Which replayed values to include.",
)
@click.option("--sources", is_flag=True, help="Add a column per name with the source of each value.")
@click.option("--contradicted", is_flag=True, help="Include replayed values that the record contradicts.")
@_output_options
def dataframe(
    names: tuple[str, ...], where: str | None, ranks: str, replays: str, style: str | None, parquet: Path | None,
    home: Path | None, picked: str | None, *, wide: bool, sources: bool, contradicted: bool,
) -> None:  # fmt: skip
    """Show one wide table over all runs, with a column for each of NAMES."""
    from relive.query import QueryEngine
    from relive.query.table import to_pandas

    table = QueryEngine(open_home(home)).table(
        names, where=where, ranks=ranks, replays=replays, sources=sources, contradicted=contradicted
    )
    is_printed = parquet is None and style is None
    if not is_printed:
        _write_output(to_pandas(table), style, parquet)
    else:
        _print_table(_with_marks(to_pandas(table), table.verdicts), asked=names, picked=picked, wide=wide)
        _explain_marks({word for counts in table.verdict_counts.values() for word in counts})
    for name, count in table.left_out.items():
        click.echo(f"{name}: {count:,} contradicted values are left out; --contradicted shows them", err=True)


def _with_marks(frame: Any, verdicts: Mapping[str, str]) -> Any:
    """Returns the table as texts, with the mark of its verdict behind each value, in place of columns of verdicts."""
    for name, beside in verdicts.items():
        marks = [Verdict.of(word).mark if isinstance(word, str) else "" for word in frame[beside]]
        texts = [f"{text} {mark}".rstrip() for text, mark in zip(map(_format_cell, frame[name]), marks, strict=True)]
        frame = frame.assign(**{name: texts}).drop(columns=beside)
    return frame


def _explain_marks(words: Collection[str]) -> None:
    for verdict in (Verdict.UNVERIFIED, Verdict.CONTRADICTED):
        if verdict.word in words:
            click.echo(f"{verdict.mark} {verdict.word}: {_MEANINGS[verdict]}; `relive show RUN` says why", err=True)


@click.command()
@click.argument("query")
@_output_options
def sql(
    query: str, style: str | None, parquet: Path | None, home: Path | None, picked: str | None, *, wide: bool
) -> None:  # fmt: skip
    """Run read-only SQL over runs, args, logs, loops, checkpoints and frame('a', 'b')."""
    from relive.query import QueryEngine

    found = QueryEngine(open_home(home)).sql(query).df()
    if parquet is None and style is None:
        _print_table(found, asked=None, picked=picked, wide=wide)
    else:
        _write_output(found, style, parquet)


def _write_output(frame: Any, style: str | None, parquet: Path | None) -> None:
    if parquet is not None:
        write_parquet(frame, parquet)
        click.echo(f"{len(frame)} rows written to {parquet}", err=True)
    elif style == "csv":
        click.echo(frame.to_csv(index=False), nl=False)
    else:
        for line in json_lines(frame):
            click.echo(line)


def _print_table(frame: Any, *, asked: Collection[str] | None, picked: str | None, wide: bool) -> None:
    """Prints the first and the last rows; on a terminal with short ids, and what was asked for before the rest.

    Without names that were asked for, the columns have the order and the content of the query.
    """
    is_narrow = not wide and terminal_width() is not None
    if asked is None:
        numbers = [frame[name].dtype.kind in "if" for name in frame]
        columns = [
            TerminalColumn(str(name), _texts(frame[name]), is_number=is_number, is_cut=True, stays=True)
            for name, is_number in zip(frame, numbers, strict=True)
        ]
    else:
        columns = [_column(frame[name], str(name), is_asked=name in asked, is_narrow=is_narrow) for name in frame]
        if is_narrow:
            columns.sort(key=lambda column: 0 if column.title in asked else _PLACES.get(column.title, 0))
    print_table(columns, picked=picked, wide=wide)
    click.echo(f"{len(frame)} rows", err=True)


def _texts(values: Any) -> list[str]:
    """Returns the first and the last cells of a column, with … between them if there are more."""
    half = _MAX_ROWS // 2
    if len(values) <= _MAX_ROWS:
        return [_format_cell(cell) for cell in values]
    return [*map(_format_cell, values.head(half)), "…", *map(_format_cell, values.tail(half))]


def _column(values: Any, name: str, *, is_asked: bool, is_narrow: bool) -> TerminalColumn:
    texts = _texts(values)
    if is_narrow and name in _SHORT and not is_asked:
        texts = [text[: _SHORT[name]] for text in texts]
    is_number = values.dtype.kind in "if"
    rank = 0 if is_asked or name == "run" else _PLACES.get(name, 1)
    return TerminalColumn(name, texts, rank=rank, is_number=is_number, is_cut=not is_number and bool(rank))


def _format_cell(cell: Any) -> str:
    import pandas

    if cell is None or cell is pandas.NaT or cell is pandas.NA:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def json_lines(frame: Any) -> Iterator[str]:
    """Yields each row as a JSON object, with all bits of its numbers; JSON has no NaN and no infinity, only null."""
    names = [str(name) for name in frame.columns]
    columns = [_plain_column(frame[name]) for name in frame.columns]
    for row in zip(*columns, strict=True):
        yield json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":"))


def _plain_column(column: Any) -> list[Any]:
    if column.dtype.kind == "M":
        zone = "Z" if column.dt.tz is not None else ""
        moments = column.dt.tz_convert("UTC") if zone else column
        texts = moments.dt.strftime("%Y-%m-%dT%H:%M:%S.%f")
        return [text[:-3] + zone if isinstance(text, str) else None for text in texts]
    return [_plain(value) for value in column.tolist()]


def _plain(value: Any) -> Any:
    """Returns a value in a form that JSON has; whatever else becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(type(value), "tolist"):  # arrays and scalars of numpy
        return _plain(value.tolist())
    import pandas

    return None if value is pandas.NA or value is pandas.NaT else str(value)


def write_parquet(frame: Any, path: Path) -> None:
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.register("frame", frame)
    target = str(path).replace("'", "''")
    connection.execute(f"copy (select * from frame) to '{target}' (format parquet, compression zstd)")
    connection.close()
