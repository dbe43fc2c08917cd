"""`relive dataframe` and `relive sql`: tables over all runs, on the screen or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.targets import home_option, make_console, open_home

_SHOWN_ROWS = 40


def _output_options(command: Any) -> Any:
    for option in (
        click.option("--csv", "style", flag_value="csv", help="As CSV on stdout."),
        click.option("--json", "style", flag_value="json", help="As JSON, one object a row."),
        click.option("--parquet", type=click.Path(dir_okay=False, path_type=Path), help="Into a Parquet file."),
        home_option,
    ):
        command = option(command)
    return command


@click.command()
@click.argument("names", nargs=-1)
@click.option("--where", help='Only rows for which this is true, for example "lr < 0.1 and epoch > 3".')
@click.option("--ranks", type=click.Choice(["canonical", "all"]), default="canonical", show_default=True)
@click.option("--replays", type=click.Choice(["latest", "all", "none"]), default="latest", show_default=True)
@click.option("--sources", is_flag=True, help="A column beside each name that tells where its values come from.")
@_output_options
def dataframe(
    names: tuple[str, ...], where: str | None, ranks: str, replays: str, style: str | None, parquet: Path | None,
    home: Path | None, *, sources: bool,
) -> None:  # fmt: skip
    """One wide table over all runs, with a column for each of NAMES."""
    from relive.query import Query

    query = Query(open_home(home))
    _put_out(query.dataframe(names, where=where, ranks=ranks, replays=replays, sources=sources), style, parquet)


@click.command()
@click.argument("query")
@_output_options
def sql(query: str, style: str | None, parquet: Path | None, home: Path | None) -> None:
    """Run read-only SQL over runs, args, logs, loops, checkpoints and frame('a', 'b')."""
    from relive.query import Query

    _put_out(Query(open_home(home)).sql(query).df(), style, parquet)


def _put_out(frame: Any, style: str | None, parquet: Path | None) -> None:
    if parquet is not None:
        write_parquet(frame, parquet)
        click.echo(f"{len(frame)} rows written to {parquet}", err=True)
    elif style == "csv":
        click.echo(frame.to_csv(index=False), nl=False)
    elif style == "json":
        click.echo(frame.to_json(orient="records", lines=True, date_format="iso", default_handler=str), nl=False)
    else:
        _print(frame)


def _print(frame: Any) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in frame.columns:
        table.add_column(str(name), justify="right" if frame[name].dtype.kind in "if" else "left", no_wrap=True)
    half = _SHOWN_ROWS // 2
    rows = [
        _cells(row) for row in frame.head(half if len(frame) > _SHOWN_ROWS else _SHOWN_ROWS).itertuples(index=False)
    ]
    if len(frame) > _SHOWN_ROWS:
        rows += [["…"] * len(frame.columns), *(_cells(row) for row in frame.tail(half).itertuples(index=False))]
    for row in rows:
        table.add_row(*row)
    make_console().print(table, markup=False)
    click.echo(f"{len(frame)} rows", err=True)


def _cells(row: Any) -> list[str]:
    import pandas

    def text(cell: Any) -> str:
        if cell is None or cell is pandas.NaT or cell is pandas.NA:
            return ""
        return f"{cell:.6g}" if isinstance(cell, float) else str(cell)

    return [text(cell) for cell in row]


def write_parquet(frame: Any, path: Path) -> None:
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.register("frame", frame)
    target = str(path).replace("'", "''")
    connection.execute(f"copy (select * from frame) to '{target}' (format parquet, compression zstd)")
    connection.close()
