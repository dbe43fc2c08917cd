"""`relive leaderboard` and `relive compare`: runs ranked by a metric, and runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relive.cli.completion import complete_columns, complete_runs
from relive.cli.display import format_value, truncate
from relive.cli.targets import (
    ask_home_then_server,
    home_option,
    open_runs,
    server_option,
    short_id,
)
from relive.cli.terminal_table import TerminalColumn, print_table, printable, table_options, terminal_width
from relive.model import Verdict
from relive.store.journal import to_json

_DEFAULT_LIMIT = 30
_FACTS = ("outcome", "filename", "version", "data_version", "took_s")


@click.command()
@click.argument("metric", shell_complete=complete_columns)
@click.option("--by", type=click.Choice(["last", "best", "min", "max", "mean"]), default="last", show_default=True,
              help="The score of a run: its last, best, lowest or highest value, or mean of the last K.")  # fmt: skip
@click.option("-k", "--last-k", "k", default=10, show_default=True, help="How many last values --by mean averages.")
@click.option("--higher", "order", flag_value="max", help="Higher is better (default: inferred from the name).")
@click.option("--lower", "order", flag_value="min", help="Lower is better (default: inferred from the name).")
@click.option("--where", help="Only runs that match this condition, for example \"wd = 0 and sweep = 'lr'\".")
@click.option("--group", multiple=True, help="One board per value of this arg, tag or fact; may be repeated.")
@click.option(
    "-c", "--column", "columns", multiple=True, help="Also show this arg, tag, fact or metric; may be repeated."
)
@click.option("--guard", multiple=True, type=click.Choice(["data", "code", "environment"]), default=["data"],
              show_default=True, help="Rank only runs together that agree in this; may be repeated.")  # fmt: skip
@click.option("--across-data", is_flag=True, help="Rank all runs together although their data differs.")
@click.option("--ranks", type=click.Choice(["canonical", "mean", "min", "max"]), default="canonical", show_default=True,
              help="For a run with several ranks: rank 0, or the mean, lowest or highest over ranks.")  # fmt: skip
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="Rows per group; 0 shows all.",
)
@click.option("--json", "style", flag_value="json", help="Print one JSON object.")
@click.option("--csv", "style", flag_value="csv", help="Print CSV, one row per run.")
@table_options
@home_option
@server_option
def leaderboard(
    metric: str, style: str | None, picked: str | None, wide: bool, home: Path | None, server: str | None, **terms: Any
) -> None:  # fmt: skip
    """Rank the runs that logged METRIC, best first.

    Runs on different data are ranked in separate groups, with the reason, unless --across-data is given.
    """
    from relive.query.compare import LeaderboardTerms, leaderboard_rows
    from relive.query.table import rows_to_pandas

    if style is not None and terms["limit"] == _DEFAULT_LIMIT:
        terms["limit"] = 0
    board = open_runs(home, server).leaderboard(metric, LeaderboardTerms.of(**terms))
    if style == "json":
        click.echo(to_json(board))
    elif style == "csv":
        click.echo(rows_to_pandas(leaderboard_rows(board)).to_csv(index=False), nl=False)
    else:
        _print_board(board, picked, wide=wide)


def _print_board(board: dict[str, Any], picked: str | None, *, wide: bool) -> None:
    better = "lower" if board["order"] == "min" else "higher"
    for number, group in enumerate(board["groups"]):
        if number:
            click.echo()
        click.secho(printable(_group_title(group, board["guard"])), bold=True)
        if group["reason"]:
            click.secho(printable(group["reason"]), fg="yellow")
        print_table(_board_columns(board["metric"], group), picked=picked, wide=wide)
        if group.get("more"):
            click.echo(f"and {group['more']} more; -n 0 shows all")
    notes = [f"{board['by']} {board['metric']}, {better} is better"]
    if board["left_out"]:
        notes.append(f"{board['left_out']} runs without it are omitted")
    if len(board["groups"]) > 1 and "data" in board["guard"] and any(group["reason"] for group in board["groups"]):
        notes.append("--across-data ranks them all together")
    click.echo("; ".join(notes), err=True)


def _group_title(group: dict[str, Any], guard: list[str]) -> str:
    parts = [f"{name} = {format_value(given)}" for name, given in group.get("group", {}).items()]
    parts.append(f"data {group['data_version'] or ('unknown' if 'data' in guard else 'of several versions')}")
    guarded = [key for key in ("code_version", "environment") if key in group]
    parts += [f"{key.partition('_')[0]} {str(group[key])[:12]}" for key in guarded]
    found = group["summary"]
    if found["count"] > 1:
        spread = f" ± {found['std']:.2g}" if found["std"] is not None else ""
        parts.append(f"{found['count']} runs, mean {found['mean']:.6g}{spread}")
    return ", ".join(parts)


def _board_columns(metric: str, group: dict[str, Any]) -> list[TerminalColumn]:
    rows = group["runs"]
    columns = list(dict.fromkeys(name for run in rows for name in run.get("columns", {})))
    args = [name for name in dict.fromkeys(n for run in rows for n in run["args"]) if name not in columns]
    places = ["" if run["place"] is None else str(run["place"]) for run in rows]
    return [
        TerminalColumn("", places, rank=0, is_number=True),
        TerminalColumn("run", [short_id(run["run"]) for run in rows], rank=0),
        TerminalColumn(metric, [_format_score(run) for run in rows], rank=0, is_number=True),
        *(TerminalColumn(name, [_format_cell(run.get("columns", {}).get(name)) for run in rows], stays=True)
          for name in columns),
        TerminalColumn("name", [run["name"] or "" for run in rows], rank=2, is_cut=True),
        *(TerminalColumn(name, [_format_cell(run["args"].get(name)) for run in rows], rank=3 + at, is_cut=True)
          for at, name in enumerate(args)),
        TerminalColumn("at", [_format_place(run["at"]) for run in rows], rank=2),
        TerminalColumn("outcome", [run["outcome"] for run in rows], rank=2),
    ]  # fmt: skip


def _format_place(at: dict[str, Any] | None) -> str:
    return " ".join(f"{loop}={item}" for loop, item in (at or {}).items())


def _format_cell(given: Any) -> str:
    return "" if given is None else format_value(given)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", shell_complete=complete_runs)
@click.option("--all", "show_all", is_flag=True, help="Also show what is equal in all runs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--wide", is_flag=True, help="Show all runs, however wide the table becomes.")
@home_option
@server_option
def compare(
    runs: tuple[str, ...], show_all: bool, as_json: bool, wide: bool, home: Path | None, server: str | None
) -> None:  # fmt: skip
    """Show the args and metrics of several runs side by side."""
    if len({*runs}) < 2:
        raise click.UsageError(
            f"compare needs two runs or more, as in: relive compare {runs[0]} RUN; `relive show` shows one"
        )
    found = ask_home_then_server(home, server, lambda place: place.compare(runs))
    if as_json:
        click.echo(to_json(found))
        return
    is_brief = not wide and not show_all and terminal_width() is not None
    print_table(
        comparison_columns(found, show_all=show_all, is_brief=is_brief), wide=wide,
        common=_common_facts(found) if is_brief else (),
    )  # fmt: skip
    differing = [what for what, same in found["same"].items() if not same]
    if differing:
        click.echo(f"these differ: {', '.join(differing)}; `relive diff` shows the details for two runs", err=True)


def _format_score(run: dict[str, Any]) -> str:
    if run["value"] is None:
        return str(run["note"])
    mark = Verdict.UNVERIFIED.mark if run.get("note") == Verdict.UNVERIFIED.word else ""
    return f"{run['value']:.6g} {mark}".rstrip()


def comparison_columns(found: dict[str, Any], *, show_all: bool, is_brief: bool = False) -> list[TerminalColumn]:
    """Returns one column per run: facts, then args, then metrics; briefly, last values and facts that differ only."""
    rows = [(fact, cells) for fact, cells in _fact_rows(found) if not is_brief or len({*cells}) > 1]
    for title, format_cell in (("arg", _format_cell), ("metric", _format_last if is_brief else _format_metric)):
        rows += [
            (f"{title} {row['name']}", [format_cell(cell) for cell in row["values"]])
            for row in found[f"{title}s"]
            if row["differs"] or show_all
        ]
    names = [short_id(run["run"]) + (f" {run['name']}" if run["name"] else "") for run in found["runs"]]
    cells = [[values[at] for _, values in rows] for at in range(len(names))]
    runs = [TerminalColumn(name, one, is_cut=True, stays=True) for name, one in zip(names, cells, strict=True)]
    return [TerminalColumn("", [title for title, _ in rows], rank=0), *runs]


def _fact_rows(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(fact, [truncate(_format_cell(run[fact]))[:14] for run in found["runs"]]) for fact in _FACTS]


def _common_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(fact, cells[0]) for fact, cells in _fact_rows(found) if len({*cells}) == 1 and cells[0]]


def _format_last(metric: dict[str, Any] | None) -> str:
    if metric is None:
        return ""
    mark = Verdict.of(metric.get("verdict", Verdict.RECORDED.word)).mark
    return f"{_format_cell(metric['last'])} {mark}".rstrip()


def _format_metric(metric: dict[str, Any] | None) -> str:
    last = _format_last(metric)
    if metric is None:
        return last
    if metric["count"] == 1 or metric["min"] is None:
        return last
    return f"{last} ({format_value(metric['min'])} to {format_value(metric['max'])})"
