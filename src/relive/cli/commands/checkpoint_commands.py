"""`relive checkpoints` and `relive gc`: what is kept of a run's state, and the space that can be freed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.display import cut, duration, size, when
from relive.cli.targets import home_option, make_console, open_home, open_index, short
from relive.errors import ReliveError
from relive.store import Home
from relive.store.catalog import find_run
from relive.store.chunks import CheckpointRow
from relive.store.gc import GarbageReport, Policy, collect_garbage, kept_outside, preview_garbage
from relive.store.journal import to_text

_SHOWN_DOUBTS = 20


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@home_option
def checkpoints(run: str, as_json: bool, home: Path | None) -> None:
    """List the checkpoints of RUN: where they are, when they were taken, and what they cost."""
    index = open_index(home)
    entry = find_run(index.runs(), run)
    rows = index.checkpoints([entry]).get(entry.record.run, [])
    outside = kept_outside(index.home, [row.manifest for row in rows])
    if as_json:
        for row in rows:
            click.echo(to_text(_as_json(entry.record.run, row) | {"spooled": outside.get(row.manifest, [])}))
        return
    if rows:
        make_console().print(_table(rows, outside), markup=False)
    new_bytes = sum(row.new_bytes for row in rows)
    click.echo(f"{len(rows)} checkpoints of run {short(entry.record.run)}, {size(new_bytes)} written", err=True)


def _as_json(run: str, row: CheckpointRow) -> dict[str, Any]:
    return {
        "run": run, "rank": row.rank, "process": row.process, "where": row.where, "place": row.place,
        "name": row.name, "at": row.at, "iterations": row.iterations, "time_us": row.time_us,
        "bytes": row.size_bytes, "new_bytes": row.new_bytes, "stall_s": row.stall_s, "write_s": row.write_s,
        "manifest": row.manifest,
    }  # fmt: skip


def _table(rows: list[CheckpointRow], outside: dict[str, list[str]]) -> Any:
    has_ranks = any(row.rank or row.process for row in rows)
    columns = (["rank"] if has_ranks else [], ["where", "when", "size", "new", "stall", "written in"])
    table = _plain_table(*columns[0], *columns[1], *(["kept in"] if outside else []))
    for row in rows:
        cells = [cut(row.where), when(row.time_us), size(row.size_bytes), size(row.new_bytes)]
        cells += [_short_s(row.stall_s), _short_s(row.write_s)]
        place = [", ".join(outside.get(row.manifest, ["the home"]))] if outside else []
        table.add_row(*([row.journal.stem] if has_ranks else []), *cells, *place)
    return table


def _short_s(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else duration(seconds)


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@home_option
def gc(dry_run: bool, home: Path | None) -> None:
    """Give up checkpoints beyond `keep` and `budget_bytes`, and remove what nothing names any more.

    With the setting `spool`, what is beyond `budget_bytes` is moved there instead.
    May run while runs are being recorded, and be killed at any moment.
    """
    place = open_home(home)
    policy = _policy(place)
    try:
        report = preview_garbage(place, policy) if dry_run else collect_garbage(place, policy)
    except OSError as error:
        raise ReliveError(f"{error}; see to that, and run `relive gc` again") from error
    _print(report)
    total = size(report.total_bytes)
    click.echo(f"{total} would be freed; nothing was changed" if dry_run else f"{total} freed")
    if report.troubles:
        raise ReliveError(f"{report.troubles[0]}; then run `relive gc` again")


def _policy(home: Home) -> Policy:
    settings = home.settings
    return Policy.of(settings.keep, settings.budget_bytes, settings.spool)


def _print(report: GarbageReport) -> None:
    going = [tally for tally in report.tallies if tally.count]
    if going:
        table = _plain_table("what", "count", "bytes")
        for tally in going:
            table.add_row(tally.reason, str(tally.count), size(tally.size_bytes) if tally.size_bytes else "")
        make_console().print(table, markup=False)
    for doubt in report.doubts[:_SHOWN_DOUBTS]:
        click.echo(f"{short(doubt.run)}  {doubt.text}", err=True)
    if report.doubts:
        more = len(report.doubts) - _SHOWN_DOUBTS
        click.echo(f"{f'and {more} more; ' if more > 0 else ''}all that these may name was kept", err=True)


def _plain_table(*headings: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        is_number = heading in ("size", "new", "stall", "written in", "count", "bytes")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    return table
