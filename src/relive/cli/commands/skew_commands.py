"""`relive skew` and `relive watch`: how far the ranks of a run differ, and alerts while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from relive.cli.completion import complete_columns, complete_runs
from relive.cli.display import format_value
from relive.cli.targets import home_option, open_runs, server_option, short_id, tell
from relive.cli.terminal_table import TerminalColumn, columns_of, print_table
from relive.errors import NotFound, ReliveError
from relive.record.process import read_launch_context
from relive.store import Home, append_lines
from relive.store.journal import to_json
from relive.store.sync import ServerUnreachable

if TYPE_CHECKING:
    from relive.query import RunsBackend
    from relive.query.compare import RuleStatus, SkewRule

ALERTED = 3  # exit code of an alert; 1 is an error and 2 a wrong option
_MAX_STEPS = 40
_ATTEMPTS, _TIMEOUT_S = 3, 10.0


@click.command()
@click.argument("run", shell_complete=complete_runs)
@click.argument("name", shell_complete=complete_columns)
@click.option("--json", "style", flag_value="json", help="Print one JSON object.")
@click.option("--csv", "style", flag_value="csv", help="Print CSV, one row per step.")
@home_option
@server_option
def skew(run: str, name: str, style: str | None, home: Path | None, server: str | None) -> None:
    """Show how far the ranks of RUN differ in NAME, step by step."""
    from relive.query.compare import skew_rows
    from relive.query.table import rows_to_pandas

    found = open_runs(home, server).skew(run, name)
    if style == "json":
        click.echo(to_json(found))
    elif style == "csv":
        click.echo(rows_to_pandas(skew_rows(found)).to_csv(index=False), nl=False)
    else:
        print_table(_step_columns(found["steps"]), wide=True)
        worst = "no skew can be computed" if found["max_skew"] is None else f"largest skew {found['max_skew']:.6g}"
        lost = f"; no values of ranks {', '.join(map(str, found['missing_ranks']))}" if found["missing_ranks"] else ""
        click.echo(f"{len(found['steps'])} steps, {len(found['ranks'])} ranks, {worst}{lost}", err=True)


def _step_columns(steps: list[dict[str, Any]]) -> list[TerminalColumn]:
    loops = list(dict.fromkeys(loop for step in steps for loop in step["at"]))
    numbers = ("canonical", "mean", "min", "max", "skew")
    headings = [TerminalColumn(heading, is_number=True) for heading in (*loops, *numbers, "ranks", "farthest")]
    half = _MAX_STEPS // 2
    shown = steps if len(steps) <= _MAX_STEPS else [*steps[:half], None, *steps[-half:]]
    rows = []
    for step in shown:
        if step is None:
            rows.append(["…"] * len(headings))
            continue
        cells = [format_value(step["at"].get(loop, "")) for loop in loops]
        cells += ["" if step[key] is None else format_value(step[key]) for key in numbers]
        rows.append([*cells, str(step["ranks"]), "" if step["worst_rank"] is None else str(step["worst_rank"])])
    return columns_of(headings, rows)


@click.command()
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option("--skew", "rules", multiple=True, required=True, metavar="NAME>NUMBER",
              help='The rule, for example "loss>0.05"; may be repeated.')  # fmt: skip
@click.option("--for", "steps", default=1, show_default=True, help="How many consecutive steps must break the rule.")
@click.option("--webhook", metavar="URL", help="Also post each alert to this URL, as JSON.")
@click.option("--every", "every_s", default=2.0, show_default=True, help="Seconds between two checks.")
@click.option("--keep-going", is_flag=True, help="Continue after an alert, until the runs end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per alert.")
@home_option
@server_option
def watch(
    run: str | None, rules: tuple[str, ...], steps: int, webhook: str | None, every_s: float, keep_going: bool,
    as_json: bool, home: Path | None, server: str | None,
) -> None:  # fmt: skip
    """Watch RUN, or all live runs, until they end; exit code 3 if a rule was broken.

    A rule is broken when the skew of a name (the distance of rank 0 from the mean of all ranks) exceeds a number.
    """
    from relive.query.compare import SkewRule

    parsed_rules = [SkewRule.parse(text, steps) for text in rules]
    _check_webhook(webhook)
    place, alerted = open_runs(home, server), False
    log = Home(home.absolute()) if home is not None else read_launch_context().home
    for alert in _alerts(place, run, parsed_rules, every_s):
        alerted = True
        log.create()  # it may not exist if the runs are on a server
        append_lines(log.path / "alerts.lines", lambda _, new=alert: [{"t": time.time_ns(), **new}])  # type: ignore[misc]
        tell(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {alert['text']}", as_json=as_json, **alert)
        if webhook is not None:
            _post_alert(webhook, alert)
        if not keep_going:
            break
    raise SystemExit(ALERTED if alerted else 0)


def _alerts(place: RunsBackend, word: str | None, rules: list[SkewRule], every_s: float) -> Iterator[dict[str, Any]]:
    """Yields each broken rule of each run once, until all runs have ended and been checked."""
    runs, unseen = _select_runs(place, word), {rule.name for rule in rules}
    broken: set[tuple[str, SkewRule]] = set()
    while True:
        going = False
        for run in runs:
            for rule in rules:
                if (run, rule) in broken:
                    continue
                seen = _check_rule(place, run, rule, every_s)
                going = going or seen.live
                if seen.logged:
                    unseen.discard(rule.name)
                if seen.alert is not None:
                    broken.add((run, rule))
                    yield seen.alert
        if not going:
            break
        time.sleep(every_s)
    if unseen:
        raise NotFound(f"no watched run logged {', '.join(sorted(unseen))}; correct the name in the rule")


def _check_rule(place: RunsBackend, run: str, rule: SkewRule, every_s: float) -> RuleStatus:
    """Checks a rule once; waits for a server that can't be reached, since a watch has nothing else to do."""
    is_reported = False
    while True:
        try:
            return place.check_rule(run, rule)
        except ServerUnreachable as error:
            if not is_reported:
                click.echo(f"{error}; retrying", err=True)
            is_reported = True
            time.sleep(max(every_s, error.retry_after_s or 0.0))


def _select_runs(place: RunsBackend, word: str | None) -> list[str]:
    if word is not None:
        return [place.get_run(word).record.run]
    live = place.live()
    if not live:
        raise NotFound("no run is live; name an ended run to check it, as in `relive watch last --skew …`")
    click.echo(f"watching {', '.join(map(short_id, live))}", err=True)
    return live


def _check_webhook(url: str | None) -> None:
    if url is not None and urlsplit(url).scheme not in ("http", "https"):
        raise ReliveError(f"{url!r} is not a webhook URL; write one that begins with https://")


def _post_alert(url: str, alert: dict[str, Any]) -> None:
    """Posts an alert to a webhook; a failure is reported by host only, since the URL may hold a secret."""
    import urllib.error
    import urllib.request

    body = to_json(alert).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", "User-Agent": "relive"})
    reason: Exception | None = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(2.0**attempt / 2)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
                return
        except (urllib.error.URLError, OSError) as error:
            reason = error
    click.echo(f"the webhook at {urlsplit(url).hostname} did not accept the alert ({reason}); check it", err=True)
