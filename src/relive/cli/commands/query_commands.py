"""`relive dataframe` and `relive sql`: tables over all runs, printed or written to a file."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from relive.cli.targets import home_option, make_console, make_table, open_home
from relive.model import Verdict

_MAX_ROWS = 40
_MEANINGS = {
    Verdict.UNVERIFIED: "replayed, and nothing shows that it is right",
    Verdict.CONTRADICTED: "replayed, and the record differs",
}


def _output_options(command: Any) -> Any:
    for option in (
        click.option("--csv", "style", flag_value="csv", help="Print CSV."),
        click.option("--json", "style", flag_value="json", help="Print JSON, one object per row."),
        click.option("--parquet", type=click.Path(dir_okay=False, path_type=Path), help="Write a Parquet file."),
        home_option,
    ):
        command = option(command)
    return command


@click.command()
@click.argument("names", nargs=-1)
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
    home: Path | None, *, sources: bool, contradicted: bool,
) -> None:  # fmt: skip
    """Show one wide table over all runs, with a column for each of NAMES."""
    from relive.query import QueryEngine
    from relive.query.table import to_pandas

    table = QueryEngine(open_home(home)).table(
        names, where=where, ranks=ranks, replays=replays, sources=sources, contradicted=contradicted
    )
    is_printed = parquet is None and style is None
    _write_output(_with_marks(to_pandas(table), table.verdicts) if is_printed else to_pandas(table), style, parquet)
    if is_printed:
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
def sql(query: str, style: str | None, parquet: Path | None, home: Path | None) -> None:
    """Run read-only SQL over runs, args, logs, loops, checkpoints and frame('a', 'b')."""
    from relive.query import QueryEngine

    _write_output(QueryEngine(open_home(home)).sql(query).df(), style, parquet)


def _write_output(frame: Any, style: str | None, parquet: Path | None) -> None:
    if parquet is not None:
        write_parquet(frame, parquet)
        click.echo(f"{len(frame)} rows written to {parquet}", err=True)
    elif style == "csv":
        click.echo(frame.to_csv(index=False), nl=False)
    elif style == "json":
        for line in json_lines(frame):
            click.echo(line)
    else:
        _print_table(frame)


def _print_table(frame: Any) -> None:
    table = make_table()
    for name in frame.columns:
        table.add_column(str(name), justify="right" if frame[name].dtype.kind in "if" else "left", no_wrap=True)
    half = _MAX_ROWS // 2
    rows = [
        _format_cells(row) for row in frame.head(half if len(frame) > _MAX_ROWS else _MAX_ROWS).itertuples(index=False)
    ]
    if len(frame) > _MAX_ROWS:
        rows += [["…"] * len(frame.columns), *(_format_cells(row) for row in frame.tail(half).itertuples(index=False))]
    for row in rows:
        table.add_row(*row)
    make_console().print(table, markup=False)
    click.echo(f"{len(frame)} rows", err=True)


def _format_cells(row: Any) -> list[str]:
    return [_format_cell(cell) for cell in row]


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
