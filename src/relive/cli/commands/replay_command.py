"""`relive replay`: the plan and its cost, a question, progress, and what came out."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relive.cli.completion import complete_logged_names, complete_runs
from relive.cli.display import differing_args, format_args, format_duration, format_size, format_time
from relive.cli.replay_json import answer_json, landing_text, plan_json
from relive.cli.replay_progress import showing_progress
from relive.cli.targets import home_option, open_home, short_id
from relive.cli.terminal_table import TerminalColumn, columns_of, print_table
from relive.cli.warm_processes import describe_new, end_warm_processes, find_warm_processes
from relive.model import Verdict, count_words
from relive.record.process import read_launch_context
from relive.store.journal import to_json

if TYPE_CHECKING:
    from relive.hindsight import Answer, Case, Plan, RunAnswer

_SHOWN = 20
_UNVERIFIED_CODE = 3  # some values are unverified, and none is contradicted or missing
_ADVICE = {
    Verdict.UNVERIFIED: "unverified values are marked ? in tables",
    Verdict.CONTRADICTED: "contradicted values are not in tables; `relive dataframe --contradicted` shows them, and"
    " --from-start --again computes them without checkpoints",
}


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_logged_names)
@click.option("--where", help='Only where this holds, for example "lr < 0.01 and epoch >= 8".')
@click.option(
    "--run", "runs", multiple=True, help="Only this run; may be given several times.", shell_complete=complete_runs
)
@click.option("--explain", is_flag=True, help="Show the plan and do nothing.")
@click.option(
    "--show-patch",
    "patch_of",
    metavar="RUN",
    help="Show what would be added to the code of a run.",
    shell_complete=complete_runs,
)
@click.option(
    "--from",
    "source_run",
    metavar="RUN",
    help="Take the statements from this run's version.",
    shell_complete=complete_runs,
)
@click.option("--at", metavar="FILE:LINE", help="Put the statement before this line of the version; needs --run.")
@click.option("--edit", is_flag=True, help="Change the patch in your editor; it is remembered for the version.")
@click.option("--workers", type=click.IntRange(min=1), help="How many processes (default: as the threads allow).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of each (default: as many as were recorded).")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop a worker without progress for this long, and for 10 times as long as recorded. 0: never. [default: 60]",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--guesses", is_flag=True, help="Also where the place of the statement is a guess.")
@click.option("--from-start", is_flag=True, help="Trust no checkpoint: run everything again.")
@click.option("--strict", is_flag=True, help="When a recorded value is not reproduced, try again from the start.")
@click.option("--again", is_flag=True, help="Also where there are values already.")
@click.option("--beyond-the-end", is_flag=True, help="Also what runs that ended early never came to.")
@click.option(
    "--keep-going", is_flag=True, help="End with code 0 although some runs failed or some values are not verified."
)
@click.option(
    "--env",
    type=click.Choice(["current", "rebuild"]),
    default="current",
    show_default=True,
    help="Use today's packages, or those that the run recorded.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the plan and the answer; do not ask.")
@click.option("--online", is_flag=True, help="Let wandb, mlflow and the like talk to their servers.")
@home_option
def replay(
    names: tuple[str, ...], where: str | None, runs: tuple[str, ...], home: Path | None, *, explain: bool,
    patch_of: str | None, source_run: str | None, at: str | None, edit: bool, workers: int | None,
    threads: int | None, patience: float | None, yes: bool, guesses: bool, env: str, from_start: bool, strict: bool,
    again: bool, beyond_the_end: bool, keep_going: bool, online: bool, as_json: bool,
) -> None:  # fmt: skip
    """Fill the columns NAMES for past runs: add `relive.log("name", …)` to the script, then ask here.

    The last of NAMES may be a where clause.
    """
    from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
    from relive.hindsight.abandoned import take_up_killed

    names, where = _take_where(names, where)
    place = open_home(home)
    chosen = (patch_of,) if patch_of else runs
    if at and not chosen:
        raise click.UsageError("--at needs --run RUN, since each version has lines of its own")
    question = Question(
        names, where, chosen, workers, from_start, again or bool(patch_of), threads, source_run, at, beyond_the_end,
        patience,
    )  # fmt: skip
    warm_before = {process.pid for process in find_warm_processes()}
    with ReplaySession(place) as session:
        if taken_up := take_up_killed(session):
            click.echo(f"{_count(taken_up, 'value')} taken up from a replay that was killed", err=True)
        plan = plan_replay(session, question, edit=_edit if edit else None)
        if patch_of:
            _show_patches(plan)
            return
        if not as_json:
            _show(plan)
        is_asked = not yes and not explain and not as_json and sys.stdin.isatty()
        if plan.guesses and not explain and not (guesses or (is_asked and _confirms_guesses(plan))):
            plan = plan.without_guesses()
        if explain or not plan.cases:
            _tell_nothing_done(plan, as_json=as_json)
            raise SystemExit(0 if explain or plan.is_answered else 1)
        if is_asked and not click.confirm(f"Replay {_count(len(plan.cases), 'run')}?", default=True):
            return
        begun = time.perf_counter()
        with showing_progress(plan) as watch, _ended_like_ctrl_c(signal.SIGTERM, signal.SIGHUP):
            found = execute_plan(
                session, plan, watch=watch, strict=strict, offline=not online, rebuild=env == "rebuild"
            )
        found.took_s = time.perf_counter() - begun
    if as_json:
        _print_json(plan, found)
    else:
        _report(found, names)
    _tell_warm(warm_before)
    if not found.is_verified and not keep_going:
        raise SystemExit(_UNVERIFIED_CODE if found.is_good else 1)


@contextmanager
def _ended_like_ctrl_c(*signals: signal.Signals) -> Iterator[None]:
    """Lets these signals stop a replay as Ctrl-C does: what was done is kept."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _confirms_guesses(plan: Plan) -> bool:
    what = (
        "the place is a guess" if len(plan.guesses) == 1 else f"the places in {len(plan.guesses)} of them are guesses"
    )
    return click.confirm(f"{what[0].upper()}{what[1:]}. Replay there, too?", default=False)


def _take_where(names: tuple[str, ...], where: str | None) -> tuple[tuple[str, ...], str | None]:
    """`relive replay grad_norm "epoch >= 8"`: what isn't a name is a clause."""
    if where is None and len(names) > 1 and any(sign in names[-1] for sign in "<>=() "):
        return names[:-1], names[-1]
    return names, where


def _edit(files: Mapping[str, str]) -> dict[str, str]:
    """Let the user change the files of a patch, one after the other."""
    return {file: click.edit(text, extension=".py") or text for file, text in files.items()}


# --- the plan ---------------------------------------------------------------------------------------------------------


def _show(plan: Plan) -> None:
    if not plan.cases:
        click.echo("nothing to replay", err=True)
        return
    shown = plan.cases[:_SHOWN]
    args, _ = differing_args(
        [{name: arg["value"] for name, arg in case.record.config["args"].items()} for case in shown]
    )  # fmt: skip
    print_table(columns_of(_PLAN_COLUMNS, [_plan_row(case, own) for case, own in zip(shown, args, strict=True)]))
    if len(plan.cases) > _SHOWN:
        click.echo(f"… and {len(plan.cases) - _SHOWN} more runs")
    reasons = dict.fromkeys(note for case in plan.cases for note in (*case.plan.reasons, *case.patch.notes))
    for reason in reasons:
        click.echo(f"note: {reason}")
    if unsure := [short_id(case.record.run) for case in plan.guesses]:
        click.echo(f"note: the place is a guess in {', '.join(unsure)}; look at it with --show-patch RUN")
    click.echo(
        f"{_count(len(plan.cases), 'run')}, {format_duration(plan.work_s)} of work, "
        f"about {format_duration(plan.cost_s)} with {_count(plan.workers, 'worker')}"
    )


_PLAN_COLUMNS = (
    TerminalColumn("run", rank=0),
    TerminalColumn("started", rank=4),
    TerminalColumn("version", rank=5),
    TerminalColumn("args", rank=3, is_cut=True),
    TerminalColumn("statement", rank=2, is_cut=True),
    TerminalColumn("confidence", stays=True),
    TerminalColumn("depth", rank=3),
    TerminalColumn("iterations", rank=2, is_number=True),
    TerminalColumn("segments", rank=6, is_number=True),
    TerminalColumn("how", stays=True),
    TerminalColumn("predicted", rank=0, is_number=True),
)


def _plan_row(case: Case, args: Mapping[str, Any]) -> list[str]:
    record, own = case.record, dict(list(args.items())[:4])
    lines = landing_text(case)
    return [
        short_id(record.run), format_time(record.started_us), record.version[:8], format_args(own), lines,
        case.patch.confidence, case.plan.depth, str(case.plan.iterations or ""), str(len(case.plan.segments)),
        case.plan.resume, format_duration(case.plan.cost_s),
    ]  # fmt: skip


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _show_patches(plan: Plan) -> None:
    seen: dict[str, list[str]] = {}
    for case in plan.cases:
        seen.setdefault(case.patch.diff, []).append(short_id(case.record.run))
    for diff, runs in seen.items():
        click.echo(f"# for {', '.join(runs)}")
        click.echo(diff, nl=False)
    _tell_refusals(plan.refusals)


def _tell_refusals(refusals: Sequence[tuple[str, str]]) -> None:
    grouped: dict[str, list[str]] = {}
    for run, reason in refusals:
        grouped.setdefault(reason, []).append(short_id(run))
    for reason, runs in grouped.items():
        listed = ", ".join(runs[:6]) + (f" and {len(runs) - 6} more" if len(runs) > 6 else "")
        click.echo(f"left out {listed}: {reason}", err=True)


def _tell_nothing_done(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        _print_json(plan, None)
    else:
        _tell_refusals(plan.refusals)


def _print_json(plan: Plan, found: Answer | None) -> None:
    click.echo(to_json({"plan": plan_json(plan), "answer": answer_json(found) if found is not None else None}))


# --- afterwards -------------------------------------------------------------------------------------------------------


def _report(found: Answer, names: Sequence[str]) -> None:
    for run in found.runs:
        _report_run(run)
    _tell_refusals(found.refusals)
    if found.is_stopped:
        click.echo("stopped; what was done is kept", err=True)
    judged = f": {count_words(found.verdicts)}" if found.added else ""
    given = sum(run.added > 0 for run in found.runs)
    click.echo(
        f"{_count(given, 'run')}, {_count(found.added, 'value')} added{judged};"
        f" {found.reproduced:,} recorded values came out the same{_shortfall(found)}, {format_duration(found.took_s)}"
    )
    if beyond := sum(run.beyond for run in found.runs):
        click.echo(
            f"{_count(beyond, 'value')} that never happened: `relive dataframe --replays all --sources` has them"
        )
    is_explained = bool(beyond or found.refusals or any(run.missing for run in found.runs))
    if not found.added and not found.is_stopped and not is_explained:
        why = "the statement was not reached, or what it prints has no number"
        click.echo(f"no value of {', '.join(names)} was logged: {why}", err=True)


def _tell_warm(before: set[int]) -> None:
    warm_s = read_launch_context().settings.warm_seconds
    if warm_s and (told := describe_new(before, warm_s)):
        click.echo(told, err=True)


def _shortfall(found: Answer) -> str:
    """Counts the runs that did not give all that they were asked for."""
    left_out = {run for run, _ in found.refusals}
    others = [run for run in found.runs if run.run not in left_out]
    counts = {
        "failed": sum(bool(run.missing) and not run.added for run in others),
        "incomplete": sum(bool(run.missing) and run.added > 0 for run in others),
        "without a value": sum(not run.missing and not run.added and not run.beyond for run in others),
        "left out": len(left_out),
    }
    words = [f"{_count(count, 'run')} {what}" for what, count in counts.items() if count]
    return "; " + ", ".join(words) if words else ""


def _report_run(run: RunAnswer) -> None:
    for note in run.notes:
        click.echo(f"{short_id(run.run)}: {note}", err=True)
    for traceback in run.tracebacks:
        click.echo(traceback, err=True, nl=False)
    for missing in run.missing:
        click.echo(f"{short_id(run.run)}: {missing}", err=True)
    if run.mismatches:
        first = run.mismatches[0]
        click.echo(
            f"{short_id(run.run)}: {len(run.mismatches)} recorded values came out differently, first {first.name} at"
            f" {first.where}: {first.then} then, {first.now} now",
            err=True,
        )
    verdict = Verdict.of(run.verdict)
    likely = "likely cause: " if run.mismatches and not run.differing else ""
    for cause in run.causes:
        click.echo(f"{short_id(run.run)}: {likely}{cause}", err=True)
    if run.added and verdict.is_marked:
        click.echo(f"{short_id(run.run)}: {_ADVICE[verdict]}", err=True)


# --- the processes that stay ------------------------------------------------------------------------------------------


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def stop(as_json: bool) -> None:
    """End the processes that stay after a replay so that the next one starts quickly.

    Those that a replay is using go on.
    """
    ended, busy = end_warm_processes()
    if as_json:
        click.echo(to_json({"ended": [one._asdict() for one in ended], "busy": [one._asdict() for one in busy]}))
        return
    for process in ended:
        click.echo(f"ended process {process.pid}, which held {format_size(process.memory_bytes)}")
    for process in busy:
        click.echo(f"process {process.pid} works for a replay, and goes on; stop that with Ctrl-C", err=True)
    if not ended and not busy:
        click.echo("no process is waiting for the next replay")
