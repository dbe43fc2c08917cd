"""`relive leaderboard` and `relive compare`: which run is best, and runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.display import cut, value
from relive.cli.targets import home_option, look_up, make_console, open_runs, server_option, short
from relive.store.journal import to_text

_SHOWN = 30


@click.command()
@click.argument("metric")
@click.option("--by", type=click.Choice(["last", "best", "min", "max", "mean"]), default="last", show_default=True,
              help="What stands for a run: last, best, lowest or highest value, or mean of the last K.")  # fmt: skip
@click.option("-k", "--last-k", "k", default=10, show_default=True, help="How many last values --by mean takes.")
@click.option("--higher", "order", flag_value="max", help="Higher is better (unless the name says otherwise).")
@click.option("--lower", "order", flag_value="min", help="Lower is better.")
@click.option("--where", help="Only runs for which this is true, for example \"wd = 0 and sweep = 'lr'\".")
@click.option("--group", multiple=True, help="A board for each value of this arg, tag or fact; may be repeated.")
@click.option("-c", "--column", "columns", multiple=True, help="Show this arg, tag, fact or metric too.")
@click.option("--guard", multiple=True, type=click.Choice(["data", "code", "environment"]), default=["data"],
              show_default=True, help="What keeps runs from standing side by side; may be repeated.")  # fmt: skip
@click.option("--across-data", is_flag=True, help="Rank runs side by side although their data differs.")
@click.option("--ranks", type=click.Choice(["canonical", "mean", "min", "max"]), default="canonical", show_default=True,
              help="Of a run with several ranks: rank 0, or mean, lowest or highest over all.")  # fmt: skip
@click.option("-n", "--limit", default=_SHOWN, show_default=True, help="Rows in a group; 0 shows all.")
@click.option("--json", "style", flag_value="json", help="As one JSON object.")
@click.option("--csv", "style", flag_value="csv", help="As CSV, one row a run.")
@home_option
@server_option
def leaderboard(metric: str, style: str | None, home: Path | None, server: str | None, **terms: Any) -> None:
    """Rank the runs that logged METRIC, best first.

    Runs on other data stand in a group of their own, with the reason, unless --across-data is given.
    """
    from relive.query.compare import LeaderboardTerms, rows_of
    from relive.query.table import to_frame

    if style is not None and terms["limit"] == _SHOWN:
        terms["limit"] = 0
    board = open_runs(home, server).leaderboard(metric, LeaderboardTerms.of(**terms))
    if style == "json":
        click.echo(to_text(board))
    elif style == "csv":
        click.echo(to_frame(rows_of(board)).to_csv(index=False), nl=False)
    else:
        _print_board(board)


def _print_board(board: dict[str, Any]) -> None:
    console = make_console()
    better = "lower" if board["order"] == "min" else "higher"
    for number, group in enumerate(board["groups"]):
        if number:
            console.print()
        console.print(_title(group, board["guard"]), highlight=False, markup=False, style="bold")
        if group["reason"]:
            console.print(group["reason"], highlight=False, markup=False, style="yellow")
        console.print(_board_table(board["metric"], group), markup=False)
        if group.get("more"):
            console.print(f"and {group['more']} more; -n 0 shows all", highlight=False)
    notes = [f"{board['by']} {board['metric']}, {better} is better"]
    if board["left_out"]:
        notes.append(f"{board['left_out']} runs without it are left out")
    if len(board["groups"]) > 1 and "data" in board["guard"] and any(group["reason"] for group in board["groups"]):
        notes.append("--across-data ranks all of them side by side")
    click.echo("; ".join(notes), err=True)


def _title(group: dict[str, Any], guard: list[str]) -> str:
    parts = [f"{name} = {value(given)}" for name, given in group.get("group", {}).items()]
    parts.append(f"data {group['data_version'] or ('unknown' if 'data' in guard else 'of several versions')}")
    guarded = [key for key in ("code_version", "environment") if key in group]
    parts += [f"{key.partition('_')[0]} {str(group[key])[:12]}" for key in guarded]
    found = group["summary"]
    if found["count"] > 1:
        spread = f" ± {found['std']:.2g}" if found["std"] is not None else ""
        parts.append(f"{found['count']} runs, mean {found['mean']:.6g}{spread}")
    return ", ".join(parts)


def _board_table(metric: str, group: dict[str, Any]) -> Any:
    from rich.table import Table

    columns = list(dict.fromkeys(name for run in group["runs"] for name in run.get("columns", {})))
    args = [name for name in dict.fromkeys(n for run in group["runs"] for n in run["args"]) if name not in columns]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "run", metric, "at", *columns, *args, "outcome"):
        table.add_column(heading, justify="right" if heading in ("", metric) else "left", no_wrap=heading == "run")
    for run in group["runs"]:
        table.add_row(
            "" if run["place"] is None else str(run["place"]),
            short(run["run"]) + (f" {run['name']}" if run["name"] else ""),
            f"{run['value']:.6g}" if run["value"] is not None else run["note"],
            " ".join(f"{loop}={item}" for loop, item in (run["at"] or {}).items()),
            *(_cell(run.get("columns", {}).get(name)) for name in columns),
            *(_cell(run["args"].get(name)) for name in args),
            run["outcome"],
        )
    return table


def _cell(given: Any) -> str:
    return "" if given is None else value(given)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--all", "show_all", is_flag=True, help="Also what is the same in all of them.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@home_option
@server_option
def compare(runs: tuple[str, ...], show_all: bool, as_json: bool, home: Path | None, server: str | None) -> None:
    """Show args and metrics of several runs side by side."""
    found = look_up(home, server, lambda place: place.compare(runs))
    if as_json:
        click.echo(to_text(found))
        return
    console = make_console()
    console.print(side_by_side(found, show_all=show_all), markup=False)
    differing = [what for what, same in found["same"].items() if not same]
    if differing:
        click.echo(f"not the same: {', '.join(differing)}; `relive diff` tells more about two of them", err=True)


def side_by_side(found: dict[str, Any], *, show_all: bool) -> Any:
    """A table with a column for each run: facts, then args, then metrics."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for run in found["runs"]:
        table.add_column(short(run["run"]) + (f" {run['name']}" if run["name"] else ""), overflow="fold")
    for fact in ("outcome", "filename", "version", "data_version", "took_s"):
        table.add_row(fact, *(cut(_cell(run[fact]))[:14] for run in found["runs"]), style="dim")
    for title, one in (("arg", _cell), ("metric", _metric)):
        for row in found[f"{title}s"]:
            if row["differs"] or show_all:
                table.add_row(f"{title} {row['name']}", *(one(cell) for cell in row["values"]))
    return table


def _metric(told: dict[str, Any] | None) -> str:
    if told is None:
        return ""
    span = f" ({value(told['min'])} to {value(told['max'])})" if told["count"] > 1 and told["min"] is not None else ""
    return f"{_cell(told['last'])}{span}"
