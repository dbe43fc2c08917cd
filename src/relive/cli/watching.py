"""`relive skew` and `relive watch`: how far ranks are apart, and an alarm while the run goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from relive.cli.choosing import home_option, make_console, open_home, open_index, short
from relive.cli.showing import value
from relive.errors import NotFound, QueryError, ReliveError
from relive.store import Home, Index, RunEntry, add_lines, find_run, read_run, to_text

ALERTED = 3  # the exit code; 1 is an error and 2 a wrong option
_SHOWN_STEPS = 40
_TRIES, _TIMEOUT_S = 3, 10.0


@click.command()
@click.argument("run")
@click.argument("name")
@click.option("--json", "style", flag_value="json", help="As one JSON object.")
@click.option("--csv", "style", flag_value="csv", help="As CSV, one row a step.")
@home_option
def skew(run: str, name: str, style: str | None, home: Path | None) -> None:
    """Show how far the ranks of RUN are apart in NAME, step by step."""
    from relive.query import flat_steps, skew, to_frame

    found = skew(open_index(home), run, name)
    if style == "json":
        click.echo(to_text(found))
    elif style == "csv":
        click.echo(to_frame(flat_steps(found)).to_csv(index=False), nl=False)
    else:
        make_console().print(_table(found["steps"]), markup=False)
        worst = "no skew can be told" if found["max_skew"] is None else f"largest skew {found['max_skew']:.6g}"
        lost = f"; no values of ranks {', '.join(map(str, found['missing_ranks']))}" if found["missing_ranks"] else ""
        click.echo(f"{len(found['steps'])} steps, {len(found['ranks'])} ranks, {worst}{lost}", err=True)


def _table(steps: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    loops = list(dict.fromkeys(loop for step in steps for loop in step["at"]))
    numbers = ("canonical", "mean", "min", "max", "skew")
    for heading in (*loops, *numbers, "ranks", "farthest"):
        table.add_column(heading, justify="right", no_wrap=True)
    half = _SHOWN_STEPS // 2
    shown = steps if len(steps) <= _SHOWN_STEPS else [*steps[:half], None, *steps[-half:]]
    for step in shown:
        if step is None:
            table.add_row(*["…"] * len(table.columns))
            continue
        cells = [value(step["at"].get(loop, "")) for loop in loops]
        cells += ["" if step[key] is None else value(step[key]) for key in numbers]
        table.add_row(*cells, str(step["ranks"]), "" if step["worst_rank"] is None else str(step["worst_rank"]))
    return table


@click.command()
@click.argument("run", required=False)
@click.option("--skew", "rules", multiple=True, required=True, metavar="NAME>NUMBER",
              help='The rule, for example "loss>0.05"; may be repeated.')  # fmt: skip
@click.option("--for", "steps", default=1, show_default=True, help="How many steps on end it must be so.")
@click.option("--webhook", metavar="URL", help="Also send each alert there, as JSON.")
@click.option("--every", "every_s", default=2.0, show_default=True, help="Seconds between two looks.")
@click.option("--keep-going", is_flag=True, help="Go on after an alert, until the runs end.")
@home_option
def watch(
    run: str | None, rules: tuple[str, ...], steps: int, webhook: str | None, every_s: float, keep_going: bool,
    home: Path | None,
) -> None:  # fmt: skip
    """Watch RUN, or all that are live, until they end; exit code 3 if a rule was broken.

    A rule is broken when the skew of a name (how far rank 0 is from the mean of all ranks) is above a number.
    """
    from relive.query import Rule

    wanted = [Rule.parse(text, steps) for text in rules]
    _check_webhook(webhook)
    place, alerted = open_home(home), False
    for alert in _alerts(place, run, wanted, every_s):
        alerted = True
        add_lines(place.path / "alerts.lines", lambda _, new=alert: [{"t": time.time_ns(), **new}])  # type: ignore[misc]
        click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {alert['text']}")
        if webhook is not None:
            _send(webhook, alert)
        if not keep_going:
            break
    raise SystemExit(ALERTED if alerted else 0)


def _alerts(home: Home, word: str | None, rules: list[Any], every_s: float) -> Iterator[dict[str, Any]]:
    """Every broken rule of every run, once, while they go on and when they have ended."""
    from relive.query import alert, first_breach, ranks_at_work, settled, spread

    index = Index(home)
    runs, broken, unseen = _chosen(index, word), set[tuple[str, Any]](), {rule.name for rule in rules}
    while True:
        going = False
        for run in runs:
            entry = _now(index, run)
            going = going or bool(entry.live)
            for rule in rules:
                if (run, rule) in broken:
                    continue
                try:
                    found = spread(index, entry, rule.name)
                except QueryError:  # not logged yet
                    continue
                unseen.discard(rule.name)
                breach = first_breach(found, rule, settled(found, ranks_at_work(entry)))
                if breach is not None:
                    broken.add((run, rule))
                    yield alert(found, rule, breach)
        if not going:
            break
        time.sleep(every_s)
    if unseen:
        raise NotFound(f"nothing that was watched logged {', '.join(sorted(unseen))}; correct the name in the rule")


def _chosen(index: Index, word: str | None) -> list[str]:
    entries = index.runs()
    if word is not None:
        return [find_run(entries, word).record.run]
    live = [entry.record.run for entry in entries if entry.live]
    if not live:
        raise NotFound("no run is live; name one that has ended to check it, as in `relive watch last --skew …`")
    click.echo(f"watching {', '.join(map(short, live))}", err=True)
    return live


def _now(index: Index, run: str) -> RunEntry:
    """The run as it is now; while it goes on only its own journals are read."""
    entry = read_run(index.home, run)
    return entry if entry is not None and entry.live else find_run(index.runs(), run)


def _check_webhook(url: str | None) -> None:
    if url is not None and urlsplit(url).scheme not in ("http", "https"):
        raise ReliveError(f"{url!r} is no address to send alerts to; write one that begins with https://")


def _send(url: str, alert: dict[str, Any]) -> None:
    """Tell a webhook; one that doesn't answer is told about, and the watch goes on. The address may hold a secret."""
    import urllib.error
    import urllib.request

    body = to_text(alert).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", "User-Agent": "relive"})
    reason: Exception | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(2.0**attempt / 2)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
                return
        except (urllib.error.URLError, OSError) as error:
            reason = error
    click.echo(f"the webhook at {urlsplit(url).hostname} did not take the alert ({reason}); check it", err=True)
