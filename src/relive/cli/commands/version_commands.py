"""`relive versions` and `relive checkout`: code versions. `relive diff` and `relive diverge`: how two runs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.commands.leaderboard_commands import comparison_columns
from relive.cli.completion import complete_runs
from relive.cli.display import format_size, format_time
from relive.cli.targets import home_option, json_option, make_console, open_home, open_index, short_id, tell
from relive.cli.terminal_table import TerminalColumn, columns_of, print_table, table_options
from relive.store.catalog import find_run
from relive.store.journal import to_json
from relive.store.versions import version_checkout

_DIVERGE_CODES = {"identical": 0, "parted": 1, "nothing to compare": 3}  # 2 is a wrong option

_VERSION_COLUMNS = (
    TerminalColumn("version", rank=0),
    TerminalColumn("first run"),
    TerminalColumn("HEAD", rank=2),
    TerminalColumn("scripts", rank=3, is_cut=True),
    TerminalColumn("runs", is_cut=True),
)


@click.command()
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=30, show_default=True, help="How many to show; 0 shows all."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@table_options
@home_option
def versions(limit: int, as_json: bool, picked: str | None, wide: bool, home: Path | None) -> None:
    """List the code versions, newest first, with the runs of each."""
    from relive.query.compare import list_code_versions

    found = list_code_versions(open_index(home))
    shown = found[:limit] if limit else found
    if as_json:
        for one in shown:
            click.echo(to_json(one))
        return
    print_table(columns_of(_VERSION_COLUMNS, map(_version_row, shown)), picked=picked, wide=wide)
    if len(shown) < len(found):
        click.echo(f"{len(found) - len(shown)} more; relive versions -n 0 shows all", err=True)


def _version_row(one: dict[str, Any]) -> list[str]:
    runs = " ".join(short_id(run["run"]) for run in one["runs"][:8])
    more = f" and {len(one['runs']) - 8} more" if len(one["runs"]) > 8 else ""
    head = f"{one['head'][:8]}{' + changes' if one['dirty'] else ''}" if one["head"] else "none"
    return [one["version"][:12], format_time(one["first_us"]), head, " ".join(one["scripts"]), runs + more]


@click.command()
@click.argument("old", metavar="RUN", shell_complete=complete_runs)
@click.argument("new", metavar="RUN", shell_complete=complete_runs)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@home_option
def diff(old: str, new: str, as_json: bool, home: Path | None) -> None:
    """Show the differences between two runs: code, args, data, environment, metrics."""
    from relive.query.compare import diff_runs

    found = diff_runs(open_index(home), old, new)
    if as_json:
        click.echo(to_json(found))
        return
    console = make_console()
    for title, lines in (("data", found["data"]), ("environment", found["environment"])):
        console.print(f"[bold]{title}[/]", highlight=False)
        for line in lines or ["the same"]:
            console.print(f"  {line}", highlight=False, markup=False)
    console.print("[bold]args and metrics[/]", highlight=False)
    print_table(comparison_columns(found, show_all=False), wide=True)
    console.print("[bold]code[/]", highlight=False)
    _print_code(console, found)


def _print_code(console: Any, found: dict[str, Any]) -> None:
    if found["code"] is None:
        console.print("  one of the runs has no code version", highlight=False)
        return
    if not found["code"]:
        console.print("  the same", highlight=False)
        return
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in found["code"].splitlines():
        style = "bold" if line.startswith(("diff ", "+++", "---")) else styles.get(line[:1], "")
        console.print(Text(line.encode("utf-8", "replace").decode(), style=style))


@click.command()
@click.argument("one", metavar="RUN", shell_complete=complete_runs)
@click.argument("other", metavar="[RUN]", required=False, shell_complete=complete_runs)
@click.option("--ranks", is_flag=True, help="Compare the ranks of one RUN with each other.")
@click.option("--ignore", multiple=True, metavar="NAME", help="Leave a variable or logged name out; may be repeated.")
@click.option("--replay", is_flag=True, help="Replay the iterations between the last agreement and the difference.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with everything.")
@home_option
def diverge(
    one: str, other: str | None, ranks: bool, ignore: tuple[str, ...], replay: bool, as_json: bool, home: Path | None
) -> None:
    """Say where two runs parted: the first iteration and object that differ, and what differed before.

    Exit code 0 if they are identical as far as they are recorded, 1 if they parted, 3 if nothing could be compared.
    """
    from relive.cli.divergence_text import rank_lines, run_lines
    from relive.hindsight.divergence import diverge_ranks, diverge_runs

    if ranks == (other is not None) or (ranks and replay):
        raise click.UsageError("name two runs, or one run and --ranks; --replay is for two runs")
    place = open_home(home)
    if other is None:
        of_ranks = diverge_ranks(place, one)
        found, lines = of_ranks.to_json(), rank_lines(of_ranks)
    else:
        of_runs = diverge_runs(place, one, other, ignored=ignore, replays=replay)
        found, lines = of_runs.to_json(), run_lines(of_runs)
    if as_json:
        click.echo(to_json(found))
    else:
        click.echo("\n".join(lines))
    raise SystemExit(_DIVERGE_CODES[found["verdict"]])


@click.command()
@click.argument("run", shell_complete=complete_runs)
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
@home_option
def checkout(run: str, folder: Path, as_json: bool, home: Path | None) -> None:
    """Write the code version of RUN to FOLDER, which must be new or empty. Your repository is only read."""
    index = open_index(home)
    record = find_run(index.runs(), run).record
    version_checkout.checkout(index.home, record.code, folder)
    tell(
        f"version {record.version[:12]} of run {short_id(record.run)} is in {folder}", as_json=as_json,
        run=record.run, version=record.version, folder=str(folder),
    )  # fmt: skip
    for file in record.code.get("large", []):
        click.echo(f"not stored in the version: {file['path']} ({format_size(file['size_bytes'])})", err=True)
    if left_out := record.code.get("left_out"):
        click.echo(f"{left_out} untracked files are not in the version", err=True)
