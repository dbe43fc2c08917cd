"""`relive dataframe` and `relive sql`: tables over all runs, printed or written to a file."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relive.cli.completion import complete_columns
from relive.cli.targets import home_option, open_home
from relive.cli.terminal_table import TerminalColumn, print_table, table_options, terminal_width
from relive.model import SHORT_ID_DIGITS, Verdict

if TYPE_CHECKING:
    from relive.query.table import Table

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

    table = QueryEngine(open_home(home)).table(
        names, where=where, ranks=ranks, replays=replays, sources=sources, contradicted=contradicted
    )
    is_printed = parquet is None and style is None
    if not is_printed:
        _write_output(table, style, parquet)
    else:
        _print_table(table, asked=names, picked=picked, wide=wide)
        _explain_marks({word for counts in table.verdict_counts.values() for word in counts})
    for name, count in table.left_out.items():
        click.echo(f"{name}: {count:,} contradicted values are left out; --contradicted shows them", err=True)


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

    found = QueryEngine(open_home(home)).sql(query).table()
    if parquet is None and style is None:
        _print_table(found, asked=None, picked=picked, wide=wide)
    else:
        _write_output(found, style, parquet)


def _write_output(table: Table, style: str | None, parquet: Path | None) -> None:
    if style == "json" and parquet is None:
        for line in json_lines(table):
            click.echo(line)
        return
    from relive.query.table import to_pandas

    frame = to_pandas(table)
    if parquet is not None:
        write_parquet(frame, parquet)
        click.echo(f"{len(frame)} rows written to {parquet}", err=True)
    else:
        click.echo(frame.to_csv(index=False), nl=False)


def _print_table(table: Table, *, asked: Collection[str] | None, picked: str | None, wide: bool) -> None:
    """Prints the first and the last rows; on a terminal with short ids, and what was asked for before the rest.

    Without names that were asked for, the columns have the order and the content of the query.
    """
    is_narrow = not wide and terminal_width() is not None
    shown = [name for name in table.columns if name not in table.verdicts.values()]
    texts = {name: _texts(table, name) for name in shown}
    numbers = {name: _is_number(table, name) for name in shown}
    if asked is None:
        columns = [
            TerminalColumn(name, texts[name], is_number=numbers[name], is_cut=True, stays=True) for name in shown
        ]  # fmt: skip
    else:
        columns = [
            _column(name, texts[name], is_number=numbers[name], is_asked=name in asked, is_narrow=is_narrow)
            for name in shown
        ]  # fmt: skip
        if is_narrow:
            columns.sort(key=lambda column: 0 if column.title in asked else _PLACES.get(column.title, 0))
    print_table(columns, picked=picked, wide=wide)
    click.echo(f"{len(table)} row{'' if len(table) == 1 else 's'}", err=True)


def _is_number(table: Table, name: str) -> bool:
    column = table.columns[name]
    return column.levels is None and column.values.dtype.kind in "if"


def _texts(table: Table, name: str) -> list[str]:
    """Returns the first and the last cells of a column, with … between them if there are more.

    Behind each value is the mark of its verdict, in place of a column of verdicts.
    """
    half = _MAX_ROWS // 2
    parts = [slice(None)] if len(table) <= _MAX_ROWS else [slice(None, half), slice(-half, None)]
    texts = [[_format_cell(cell) for cell in table.columns[name].cells(part)] for part in parts]
    if beside := table.verdicts.get(name):
        words = [table.columns[beside].cells(part) for part in parts]
        texts = [[*map(_with_mark, *both)] for both in zip(texts, words, strict=True)]
    return texts[0] if len(texts) == 1 else [*texts[0], "…", *texts[1]]


def _with_mark(text: str, word: Any) -> str:
    return f"{text} {Verdict.of(word).mark}".rstrip() if isinstance(word, str) else text


def _column(name: str, texts: list[str], *, is_number: bool, is_asked: bool, is_narrow: bool) -> TerminalColumn:
    if is_narrow and name in _SHORT and not is_asked:
        texts = [text[: _SHORT[name]] for text in texts]
    rank = 0 if is_asked or name == "run" else _PLACES.get(name, 1)
    return TerminalColumn(name, texts, rank=rank, is_number=is_number, is_cut=not is_number and bool(rank))


def _format_cell(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def json_lines(table: Table) -> Iterator[str]:
    """Yields each row as a JSON object, with all bits of its numbers; JSON has no NaN and no infinity, only null."""
    names = [str(name) for name in table.columns]
    columns = [[_plain(cell) for cell in column.cells()] for column in table.columns.values()]
    for row in zip(*columns, strict=True):
        yield json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Returns a value in a form that JSON has; whatever else becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(type(value), "tolist"):  # arrays and scalars of numpy
        return _plain(value.tolist())
    return str(value)


def write_parquet(frame: Any, path: Path) -> None:
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.register("frame", frame)
    target = str(path).replace("'", "''")
    connection.execute(f"copy (select * from frame) to '{target}' (format parquet, compression zstd)")
    connection.close()
