"""`relive checkpoints` and `relive gc`: the checkpoints of a run, and garbage collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.completion import complete_runs
from relive.cli.display import format_short_duration, format_size, format_time, truncate
from relive.cli.targets import home_option, json_option, open_home, open_index, short_id, tell
from relive.cli.terminal_table import TerminalColumn, print_table
from relive.errors import ReliveError
from relive.store import Home
from relive.store.catalog import find_run
from relive.store.chunks import CheckpointRow
from relive.store.gc import GarbageReport, Policy, collect_garbage, offload_locations, preview_garbage
from relive.store.journal import to_json

_MAX_DOUBTS = 20


@click.command()
@click.argument("run", shell_complete=complete_runs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@home_option
def checkpoints(run: str, as_json: bool, home: Path | None) -> None:
    """List the checkpoints of RUN: the iteration, when they were taken, and what they cost."""
    index = open_index(home)
    entry = find_run(index.runs(), run)
    rows = index.checkpoints([entry]).get(entry.record.run, [])
    outside = offload_locations(index.home, [row.manifest for row in rows])
    if as_json:
        for row in rows:
            click.echo(to_json(_as_json(entry.record.run, row) | {"spooled": outside.get(row.manifest, [])}))
        return
    if rows:
        print_table(_checkpoint_columns(rows, outside))
    new_bytes = sum(row.new_bytes for row in rows)
    click.echo(
        f"{len(rows)} checkpoints of run {short_id(entry.record.run)}, {format_size(new_bytes)} written", err=True
    )


def _as_json(run: str, row: CheckpointRow) -> dict[str, Any]:
    return {
        "run": run, "rank": row.rank, "process": row.process, "where": row.where, "place": row.place,
        "name": row.name, "at": row.at, "iterations": row.iterations, "time_us": row.time_us,
        "bytes": row.size_bytes, "new_bytes": row.new_bytes, "stall_s": row.stall_s, "write_s": row.write_s,
        "manifest": row.manifest,
    }  # fmt: skip


def _checkpoint_columns(rows: list[CheckpointRow], outside: dict[str, list[str]]) -> list[TerminalColumn]:
    has_ranks = any(row.rank or row.process for row in rows)
    kept_in = [", ".join(outside.get(row.manifest, ["the home"])) for row in rows]
    return [
        *([TerminalColumn("rank", [row.journal.stem for row in rows], stays=True)] if has_ranks else []),
        TerminalColumn("where", [truncate(row.where) for row in rows], rank=0),
        TerminalColumn("when", [format_time(row.time_us) for row in rows], stays=True),
        TerminalColumn("size", [format_size(row.size_bytes) for row in rows], is_number=True, stays=True),
        TerminalColumn("new", [format_size(row.new_bytes) for row in rows], is_number=True, stays=True),
        TerminalColumn("stall", [format_short_duration(row.stall_s) for row in rows], is_number=True, stays=True),
        TerminalColumn(
            "written in", [format_short_duration(row.write_s) for row in rows], rank=2, is_number=True, stays=True
        ),
        *([TerminalColumn("kept in", kept_in, rank=3, is_cut=True, stays=True)] if outside else []),
    ]


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be removed, without removing it.")
@json_option
@home_option
def gc(dry_run: bool, as_json: bool, home: Path | None) -> None:
    """Remove checkpoints beyond `keep` and `budget_bytes`, and all data that nothing refers to.

    With the setting `spool`, data beyond `budget_bytes` is moved there instead.
    Safe to run while runs are being recorded, and safe to kill at any time.
    """
    place = open_home(home)
    policy = _retention_policy(place)
    try:
        report = preview_garbage(place, policy) if dry_run else collect_garbage(place, policy)
    except OSError as error:
        raise ReliveError(f"{error}; fix that, and run `relive gc` again") from error
    if not as_json:
        _print_report(report)
    total = format_size(report.total_bytes)
    tell(
        f"{total} would be freed; nothing was changed" if dry_run else f"{total} freed", as_json=as_json,
        dry_run=dry_run, freed_bytes=report.total_bytes, failures=list(report.failures),
        removed=[
            {"what": one.reason, "count": one.count, "bytes": one.size_bytes} for one in report.tallies if one.count
        ],
        kept=[{"run": doubt.run, "text": doubt.text} for doubt in report.doubts],
    )  # fmt: skip
    if report.failures:
        raise ReliveError(f"{report.failures[0]}; then run `relive gc` again")


def _retention_policy(home: Home) -> Policy:
    settings = home.settings
    return Policy.from_settings(settings.keep, settings.budget_bytes, settings.spool)


def _print_report(report: GarbageReport) -> None:
    removed = [tally for tally in report.tallies if tally.count]
    if removed:
        sizes = [format_size(tally.size_bytes) if tally.size_bytes else "" for tally in removed]
        counts = TerminalColumn("count", [str(tally.count) for tally in removed], is_number=True, stays=True)
        what = TerminalColumn("what", [tally.reason for tally in removed], rank=0)
        print_table([what, counts, TerminalColumn("bytes", sizes, is_number=True, stays=True)])
    for doubt in report.doubts[:_MAX_DOUBTS]:
        click.echo(f"{short_id(doubt.run)}  {doubt.text}", err=True)
    if report.doubts:
        more = len(report.doubts) - _MAX_DOUBTS
        click.echo(f"{f'and {more} more; ' if more > 0 else ''}everything that these may refer to was kept", err=True)
