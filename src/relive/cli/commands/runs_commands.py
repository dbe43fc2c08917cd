"""`relive runs`, `show`, `rm`, `pin` and `unpin`: list, show, remove and pin runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relive.cli.completion import complete_runs
from relive.cli.display import (
    differing_args,
    format_args,
    format_duration,
    format_last_value,
    format_size,
    format_time,
    format_times,
    format_value,
    truncate,
)
from relive.cli.targets import (
    ask_home_then_server,
    home_option,
    json_option,
    make_console,
    open_home,
    open_index,
    server_option,
    short_id,
    tell,
)
from relive.cli.terminal_table import TerminalColumn, print_table, table_options, terminal_width
from relive.errors import ReliveError
from relive.model import FAILED, FINISHED, INTERRUPTED, KILLED, PRUNED, RUNNING, RunRecord, Verdict, count_words
from relive.store import Home, list_journals
from relive.store.catalog import Index, RunEntry, Summary, find_run
from relive.store.gc import is_pinned
from relive.store.gc import pin as pin_folder
from relive.store.gc import unpin as unpin_folder
from relive.store.journal import from_json, line_schema, read_lines, to_json

if TYPE_CHECKING:
    from relive.query import RunDetails

_STYLES = {RUNNING: "green", FINISHED: "", PRUNED: "", FAILED: "red", INTERRUPTED: "yellow", KILLED: "yellow"}


@click.command()
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=30, show_default=True, help="How many runs to show; 0 shows all."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@table_options
@home_option
@server_option
def runs(
    limit: int, as_json: bool, picked: str | None, wide: bool, home: Path | None, server: str | None
) -> None:  # fmt: skip
    """List the runs, newest first; live runs are marked."""
    total, shown = ask_home_then_server(home, server, lambda place: place.list_runs(limit))
    if as_json:
        for run in shown:
            click.echo(to_json(run))
        return
    is_whole = wide or terminal_width() is None
    args = [run["args"] for run in shown]
    own, equal = (args, {}) if is_whole else differing_args(args)
    styles = [_STYLES.get(run["outcome"], "") for run in shown]
    common = [("", f"{name}={format_value(given)}") for name, given in equal.items()]
    found = _run_columns(shown, own, is_whole=is_whole)
    print_table(found, picked=picked, wide=wide, styles=styles, common=common)
    if len(shown) < total:
        click.echo(f"{total - len(shown)} more; relive runs -n 0 shows all", err=True)


def _run_columns(
    shown: Sequence[dict[str, Any]], args: Sequence[Mapping[str, Any]], *, is_whole: bool
) -> list[TerminalColumn]:  # fmt: skip
    starts, digits = [run["started_us"] for run in shown], 6 if is_whole else 4
    return [
        TerminalColumn("run", [short_id(run["run"]) for run in shown], rank=0),
        TerminalColumn("when", [*map(format_time, starts)] if is_whole else format_times(starts), stays=True),
        TerminalColumn("took", [_format_took(run) for run in shown], rank=4, stays=True),
        TerminalColumn("script", [_script_of(run) for run in shown], rank=3, is_cut=True),
        TerminalColumn("args", [*map(format_args, args)], rank=2, is_cut=True),
        TerminalColumn("outcome", [_format_outcome(run) for run in shown], stays=True),
        TerminalColumn("last values", [_format_last_values(run, digits) for run in shown], is_cut=True, stays=True),
    ]  # fmt: skip


def _script_of(run: Mapping[str, Any]) -> str:
    return f"{run['filename']} ({run['name']})" if run["name"] else str(run["filename"])


def _format_took(run: Mapping[str, Any]) -> str:
    return format_duration(None if run["ended_us"] is None else (run["ended_us"] - run["started_us"]) / 1e6)


def _format_outcome(run: Mapping[str, Any]) -> str:
    mark = "● " if run["outcome"] == RUNNING else ""
    return f"{mark}{run['outcome']}{', incomplete' if run.get('incomplete') else ''}"


def _format_last_values(run: Mapping[str, Any], digits: int) -> str:
    marks = {name: f" {Verdict.of(word).mark}" for name, word in run.get("marked", {}).items()}
    last = list(run["last"].items())[:6]
    return " ".join(f"{name}={_format_last(given, digits)}{marks.get(name, '')}" for name, given in last)


def _format_last(given: float | str | None, digits: int = 6) -> str:
    """Formats a number, or another value given as JSON text; a server sends None for values that are not numbers."""
    if given is None:
        return "no number"
    return format_value(from_json(given) if isinstance(given, str) else given, digits)


@click.command()
@click.argument("run", shell_complete=complete_runs)
@click.option("--json", "as_json", is_flag=True, help="Print the whole record as JSON.")
@click.option("--console", "is_console", is_flag=True, help="Print what the run printed instead.")
@click.option("--rank", type=click.IntRange(0), default=0, help="With --console: of this rank (default: 0).")
@home_option
@server_option
def show(run: str, as_json: bool, is_console: bool, rank: int, home: Path | None, server: str | None) -> None:
    """Show the record of RUN: config, code, data, metrics, environment, artifacts."""
    if is_console:
        _print_console(run, rank, home, server)
        return
    found = ask_home_then_server(home, server, lambda place: place.get_run(run))
    if as_json:
        click.echo(to_json(found.record))
        return
    console = make_console()
    record = found.record
    console.print(f"[bold]run {record.run}[/] {record.name}", highlight=False)
    for title, rows in _sections(found):
        console.print(f"\n[bold]{title}[/]", highlight=False)
        for key, text in rows:
            console.print(f"  {key:<14} {text}", highlight=False, markup=False)


def _print_console(run: str, rank: int, home: Path | None, server: str | None) -> None:
    """Prints the recorded lines, with a note where some are missing."""
    at, expected = 0, 0
    while True:
        page = ask_home_then_server(home, server, lambda place: place.console(run, rank, at))  # noqa: B023 - called now
        for line in page["lines"]:
            if line["n"] > expected:
                click.echo(f"… {line['n'] - expected} lines are not kept …", err=True)
            expected = line["n"] + 1
            click.echo(line["text"])
        at += len(page["lines"])
        if not page["lines"] or at >= page["total"]:
            break
    if not at:
        click.echo("nothing is recorded of what it printed; it printed nothing, or `console` is off", err=True)


def _sections(found: RunDetails) -> list[tuple[str, list[tuple[str, str]]]]:
    record = found.record
    return [
        ("outcome", [*_outcome_rows(record), *_retention_rows(found)]),
        ("config", _config_rows(record)),
        ("code", _code_rows(record)),
        ("data", _data_rows(record)),
        ("metrics", _metric_rows(found.metrics)),
        *([("replays", rows)] if (rows := _replay_rows(found.replays)) else []),
        ("environment", _environment_rows(record)),
        ("artifacts", _artifact_rows(record)),
        *([("memo", rows)] if (rows := _memo_rows(found.folder, record.run)) else []),
    ]


def _outcome_rows(record: RunRecord) -> list[tuple[str, str]]:
    rows = [
        ("outcome", record.outcome),
        ("started", format_time(record.started_us)),
        ("took", format_duration(record.took_s)),
    ]
    if record.error:
        rows.append(("error", f"{record.error['type']}: {record.error['message']} at {record.error['place']}"))
    if record.world_size > 1:
        rows.append(("ranks", f"{len(record.ranks)} of {record.world_size}"))
    rows += [("parent run", record.parent)] if record.parent else []
    rows += [(f"tag {name}", format_value(form)) for name, form in record.tags.items()]
    rows += [("incomplete", text) for text in record.incomplete]
    return rows + [("warning", text) for text in record.warnings]


def _retention_rows(found: RunDetails) -> list[tuple[str, str]]:
    """Returns why `relive gc` keeps all checkpoints of a local run: it is promoted or pinned."""
    if found.folder is None:
        return []
    from relive.store.registry import Registry

    promoted = Registry(Home(found.folder.parent.parent)).promoted_runs().get(found.record.run)
    rows = [("promoted to", ", ".join(promoted))] if promoted else []
    return [*rows, ("pinned", "yes")] if is_pinned(found.folder) else rows


def _config_rows(record: RunRecord) -> list[tuple[str, str]]:
    args = record.config["args"].items()
    rows = [(name, f"{format_value(a['value'])}" + _default_note(a)) for name, a in args]
    return [*rows, ("argv", " ".join(record.config["argv"]))]


def _default_note(arg: dict[str, Any]) -> str:
    return f"   (default {format_value(arg['default'])})" if arg["value"] != arg["default"] else ""


def _code_rows(record: RunRecord) -> list[tuple[str, str]]:
    code = record.code
    if not code.get("version"):
        return [("version", "not recorded"), ("script", record.filename)]
    head = code.get("head")
    state = "with uncommitted changes" if code.get("dirty") else "as committed"
    return [
        ("version", f"{code['version'][:12]} on {str(code.get('branch')).removeprefix('refs/heads/')}"),
        ("HEAD", f"{head[:12]} {state}" if head else "none: the project is not in git, or has no commits yet"),
        ("script", record.filename),
        *[
            ("not stored", f"{f['path']} {format_size(f['size_bytes'])} {(f['digest'] or 'not hashed')[:12]}")
            for f in code.get("large", [])
        ],
    ]


def _data_rows(record: RunRecord) -> list[tuple[str, str]]:
    rows = [("version", record.data_version or "no data read or declared")]
    rows += [(name, _describe_data(found)) for name, found in record.data["declared"].items()]
    rows += [(f"read {found.get('role', '')}".strip(), _describe_data(found)) for found in record.data["read"][:20]]
    more = len(record.data["read"]) - 20
    return [*rows, ("", f"and {more} more files")] if more > 0 else rows


def _describe_data(found: dict[str, Any]) -> str:
    amount = format_size(found["size_bytes"]) if found.get("size_bytes") is not None else ""
    where = found.get("path") or found.get("kind", "")
    return " ".join(part for part in (where, amount, str(found.get("digest") or "")[:12]) if part)


def _metric_rows(found: list[Summary]) -> list[tuple[str, str]]:
    return [
        (
            s.name,
            f"{format_last_value(s)} {Verdict(s.verdict).mark}".rstrip()
            + f"   {s.count} values"
            + _format_range(s)
            + (f" in {'/'.join(s.path)}" if s.path else "")
            + (f"   ({Verdict(s.verdict).word})" if s.verdict else ""),
        )
        for s in found
    ]


def _replay_rows(replays: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns for each replay how many values of each name have which verdict, and why."""
    rows = []
    for replay in replays:
        counts = [f"{name}: {count_words(found)}" for name, found in replay["verdicts"].items()]
        text = "; ".join(counts) or f"{', '.join(replay['names'])}: {replay['verdict']}"
        rows.append((f"replay {replay['replay']}", text))
        rows += [("", cause) for cause in replay["causes"]]
    return rows


def _format_range(summary: Summary) -> str:
    if summary.lowest is None or summary.count == 1:
        return ""
    return f", {format_value(summary.lowest)} to {format_value(summary.highest)}"


def _environment_rows(record: RunRecord) -> list[tuple[str, str]]:
    found = record.environment
    rows = [
        (key, truncate(format_value(form)))
        for key, form in found.items()
        if key not in ("packages", "variables", "gpus")
    ]
    rows += [("gpu", truncate(format_value(gpu))) for gpu in found.get("gpus") or []]
    rows += [(name, str(text)) for name, text in (found.get("variables") or {}).items()]
    packages = found.get("packages") or {}
    main_packages = [f"{name} {packages[name]}" for name in ("torch", "numpy", "relive") if name in packages]
    return [*rows, ("packages", f"{len(packages)} recorded: {', '.join(main_packages)}")]


def _artifact_rows(record: RunRecord) -> list[tuple[str, str]]:
    return [(a["name"], f"{a['kind']} {format_size(a['size_bytes'])} {a['digest'][:12]}") for a in record.artifacts]


def _memo_rows(folder: Path | None, run: str) -> list[tuple[str, str]]:
    """Counts the memoized calls of all ranks and workers by outcome: reused, and from which run, or computed."""
    by_function: dict[str, Counter[str]] = {}
    for _, path in list_journals(folder) if folder is not None else ():
        for line in line_schema.lines_of(line_schema.CallRemembered, read_lines(path).lines):
            by_function.setdefault(line.function, Counter())[_describe_memo_line(line, run)] += 1
    return [
        (name, ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
        for name, outcomes in by_function.items()
    ]


def _describe_memo_line(line: line_schema.CallRemembered, run: str) -> str:
    if line.outcome == "hit":
        source = line.from_
        return "reused from " + ("this run" if source == run else f"run {short_id(source)}" if source else "no run")
    found = f"{line.found}, " if line.found else ""
    return "computed" + (f" ({found}{line.kept})" if found or line.kept != "stored" else "")


@click.command()
@click.argument("run", nargs=-1, required=True, shell_complete=complete_runs)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@home_option
def rm(run: tuple[str, ...], yes: bool, as_json: bool, home: Path | None) -> None:
    """Remove RUN permanently: its journals and the values in them. `relive gc` then frees data that only it used."""
    import shutil

    from relive.store.registry import Registry

    place = open_home(home)
    index = Index(place)
    entries = index.runs()
    entries_to_remove = [find_run(entries, word) for word in run]
    held = Registry(place).promoted_runs()
    for entry in entries_to_remove:
        if entry.record.outcome == RUNNING:
            raise ReliveError(f"run {short_id(entry.record.run)} is running; stop it first (pid {_pid(entry)})")
        if versions := held.get(entry.record.run):
            remedy = f"retire that first with `relive retire {versions[0]}`"
            raise ReliveError(f"run {short_id(entry.record.run)} was promoted to {', '.join(versions)}; {remedy}")
    if not yes:
        listed = ", ".join(short_id(entry.record.run) for entry in entries_to_remove)
        click.confirm(f"Remove {listed} permanently?", abort=True)
    for entry in entries_to_remove:
        folder = place.run_folder(entry.record.run)
        hidden = folder.with_name(f".{folder.name}")
        folder.rename(hidden)  # hides the run atomically, so that a kill while deleting leaves no partial run
        shutil.rmtree(hidden)
    index.runs()
    if as_json:
        click.echo(to_json({"removed": [entry.record.run for entry in entries_to_remove]}))


def _pid(entry: RunEntry) -> Any:
    return entry.record.process.get("pid")


@click.command()
@click.argument("run", nargs=-1, required=True, shell_complete=complete_runs)
@json_option
@home_option
def pin(run: tuple[str, ...], as_json: bool, home: Path | None) -> None:
    """Keep all checkpoints of RUN in the home, regardless of `keep`, `budget_bytes` and `spool`."""
    for entry, folder in _find_folders(run, home):
        state = "is pinned: all its checkpoints are kept" if pin_folder(folder) else "was already pinned"
        tell(f"run {short_id(entry.record.run)} {state}", as_json=as_json, run=entry.record.run, is_pinned=True)


@click.command()
@click.argument("run", nargs=-1, required=True, shell_complete=complete_runs)
@json_option
@home_option
def unpin(run: tuple[str, ...], as_json: bool, home: Path | None) -> None:
    """Allow `relive gc` to remove checkpoints of RUN again."""
    for entry, folder in _find_folders(run, home):
        state = "is no longer pinned" if unpin_folder(folder) else "was not pinned"
        tell(f"run {short_id(entry.record.run)} {state}", as_json=as_json, run=entry.record.run, is_pinned=False)


def _find_folders(words: tuple[str, ...], home: Path | None) -> list[tuple[RunEntry, Path]]:
    index = open_index(home)
    entries = [find_run(index.runs(), word) for word in words]
    return [(entry, index.home.run_folder(entry.record.run)) for entry in entries]
