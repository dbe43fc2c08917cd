"""`relive doctor`, `export`, `scrub` and `trust`: checks, a run as plain files, a text removed, whose code may run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from relive.cli.commands.query_commands import write_parquet
from relive.cli.completion import complete_runs
from relive.cli.display import format_time
from relive.cli.targets import home_option, json_option, open_home, open_index, open_server, short_id, tell
from relive.errors import NotFound, ReliveError
from relive.model import RUNNING, RunRecord
from relive.store import (
    Home,
    describe_origin,
    find_origin,
    is_trusted,
    listed,
    revoke_trust,
    trust_home,
    trust_server,
    trusted_list,
)
from relive.store.catalog import Index, RunEntry, find_run
from relive.store.chunks import Chunks, artifact_files
from relive.store.gc import ScrubReport, check_home, scrub_run
from relive.store.journal import from_json, inline_chunks, parse_run, to_json
from relive.store.sync import ServerClient, translate_server_errors
from relive.store.versions import code_versions, version_checkout

if TYPE_CHECKING:
    from relive.hindsight.notebooks import ScriptText


@click.command()
@click.option("--rebuild", is_flag=True, help="Discard the index and rebuild it from the journals.")
@click.option("--deep", is_flag=True, help="Also read every chunk and verify its hash.")
@click.option(
    "--from-server",
    metavar="[URL]",
    is_flag=False,
    flag_value="",
    help="Replace damaged journals and chunks by whole copies from a server, first of all.",
)
@json_option
@home_option
def doctor(rebuild: bool, deep: bool, from_server: str | None, as_json: bool, home: Path | None) -> None:
    """Check every journal and the chunks it refers to. Exit code 1 if anything is damaged."""
    place = open_home(home)
    found: list[dict[str, Any]] = []

    def note(run: str, text: str, *, damage: bool = False, **kind: bool) -> None:
        found.append({"run": run, "text": text, "damage": damage, **kind})
        if not as_json:
            click.echo(f"{short_id(run)}  {text}")

    if from_server is not None:
        _recover(place, from_server, note)
    for finding in check_home(place, deep=deep):
        note(finding.run, finding.text, damage=finding.damage)
    damaged = any(one["damage"] for one in found)
    index = Index(place)
    if rebuild:
        index.rebuild()
        click.echo("the index was rebuilt from the journals", err=as_json)
    count = len(index.runs())
    tell(
        f"{count} runs in {place.path}, {'some damaged' if damaged else 'all readable'}",
        as_json=as_json, home=str(place.path), runs=count, is_damaged=damaged, findings=found,
    )  # fmt: skip
    raise SystemExit(1 if damaged else 0)


def _recover(place: Home, url: str, note: Callable[..., None]) -> None:
    from relive.store.gc import recover_home

    with translate_server_errors():
        for done in recover_home(place, open_server(url)):
            note(done.run, done.text, recovered=True)


@click.command()
@click.argument("run", shell_complete=complete_runs)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--script", is_flag=True, help="Write only its script, to a file; of a notebook, the cells as a script.")
@json_option
@home_option
def export(run: str, folder: Path | None, script: bool, as_json: bool, home: Path | None) -> None:
    """Write RUN to FOLDER as plain files: record.json, logs.parquet, artifacts/, code/."""
    from relive.query import QueryEngine

    index = open_index(home)
    entry = find_run(index.runs(), run)
    if script:
        _export_script(index.home, entry, folder, as_json=as_json)
        return
    target = folder or Path(f"run-{short_id(entry.record.run)}")
    if target.exists() and any(target.iterdir()):
        raise ReliveError(f"{target} is not empty; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    chunks = Chunks(index.home.chunks)
    (target / "record.json").write_text(to_json(inline_chunks(from_json(to_json(entry.record)), chunks.get)))
    logs = QueryEngine(index.home).sql(f"select * from logs where run = '{entry.record.run}'").df()
    write_parquet(logs, target / "logs.parquet")
    count = _write_artifacts(entry, chunks, target / "artifacts")
    code = _write_code(index.home, entry, target / "code")
    tell(
        f"{target}: the record, {len(logs)} values, {count} artifacts{', the code' if code else ''}", as_json=as_json,
        run=entry.record.run, folder=str(target), values=len(logs), artifacts=count, has_code=code,
    )  # fmt: skip


def _export_script(home: Home, entry: RunEntry, path: Path | None, *, as_json: bool) -> None:
    """Writes the script of a run; the cells of a notebook in the order in which they were executed."""
    record = entry.record
    target = path or Path(f"run-{short_id(record.run)}.py")
    if target.exists():
        raise ReliveError(f"{target} exists; name another file")
    made = _script_text(home, record)
    target.write_text(made.text, encoding="utf-8", errors="surrogateescape")
    rest = f", without {'; '.join(made.left_out)}" if made.left_out else ""
    tell(f"{target}: {len(made.text.splitlines())} lines{rest}", as_json=as_json,
         run=record.run, file=str(target), left_out=made.left_out)  # fmt: skip


def _script_text(home: Home, record: RunRecord) -> ScriptText:
    from relive.hindsight.notebooks import ScriptText, is_notebook_run, read_cells, write_script

    if is_notebook_run(record):
        cells = read_cells(parse_run(home, record.run)[0].lines)
        if not cells:
            raise ReliveError(f"the cells of run {record.run} are not in its record; export its notebook in Jupyter")
        return write_script(cells, f"The cells of run {record.run}, in the order in which they were executed.")
    script, root = record.code.get("script"), record.code.get("root")
    if not record.version or not script or not root or not Path(script).is_relative_to(root):
        raise ReliveError(f"run {record.run} has no script in a code version; see `relive show`")
    inside = Path(script).relative_to(root).as_posix()
    content = code_versions.read_file(
        record.version, inside, repository=version_checkout.find_repository(home, record.code)
    )
    return ScriptText(content.decode("utf-8", "surrogateescape"))


def _write_artifacts(entry: RunEntry, chunks: Chunks, target: Path) -> int:
    for artifact in entry.record.artifacts:
        path = artifact_files.write_artifact(artifact, chunks, target)
        if artifact["kind"] == "json":  # it may refer to further chunks
            path.write_text(to_json(inline_chunks(from_json(path.read_bytes()), chunks.get)))
    return len(entry.record.artifacts)


def _write_code(home: Home, entry: RunEntry, target: Path) -> bool:
    if not entry.record.version:
        return False
    version_checkout.checkout(home, entry.record.code, target)
    return True


@click.command()
@click.argument("run", shell_complete=complete_runs)
@click.argument("pattern")
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
@click.option(
    "--server",
    metavar="[URL]",
    is_flag=False,
    flag_value="",
    help="Also scrub the run on this server, or on the configured one if no URL is given.",
)
@json_option
@home_option
def scrub(run: str, pattern: str, dry_run: bool, server: str | None, as_json: bool, home: Path | None) -> None:
    """Replace what matches PATTERN, a regular expression, by *** in the journals of RUN."""
    try:
        run, report = _scrub_home(open_index(home), run, pattern, dry_run=dry_run)
        _print_scrub(report, run, dry_run=dry_run, as_json=as_json)
    except NotFound:
        if server is None:
            raise
    if server is not None:
        remote = open_server(server)
        run, report = _scrub_server(remote, run, pattern, dry_run=dry_run)
        _print_scrub(report, run, dry_run=dry_run, as_json=as_json, server=remote.url)


def _scrub_home(index: Index, word: str, pattern: str, *, dry_run: bool) -> tuple[str, ScrubReport]:
    """Scrubs a run of a home; returns its id, and what was found."""
    entry = find_run(index.runs(), word)
    run = entry.record.run
    if entry.record.outcome == RUNNING:
        raise ReliveError(f"run {short_id(run)} is running; stop it first, or wait for its end")
    report = scrub_run(index.home, run, pattern, dry_run=dry_run)
    if report.places and not dry_run:
        index.rebuild()  # all of it: old rows of a run stay in its files until they are written anew
    return run, report


def _scrub_server(remote: ServerClient, word: str, pattern: str, *, dry_run: bool) -> tuple[str, ScrubReport]:
    with translate_server_errors():
        run = str(remote.get("/api/runs", run=word)["runs"][0]["run"])
        answer = remote.send("POST", f"/api/runs/{run}/scrub", {"pattern": pattern, "dry_run": dry_run})
    return run, msgspec.convert(answer, ScrubReport)


def _print_scrub(report: ScrubReport, run: str, *, dry_run: bool, as_json: bool, server: str | None = None) -> None:
    if as_json:
        found = {"run": run, "server": server, "dry_run": dry_run}
        click.echo(to_json(found | msgspec.to_builtins(report)))
        return
    run = short_id(run)
    if server is not None:
        click.echo(f"on {server}: ", nl=False)
    files = f" ({', '.join(report.files)})" if report.files else ""
    places, done = ("1 place", "was") if report.places == 1 else (f"{report.places} places", "were")
    click.echo(f"run {run}: {places} {'would be' if dry_run else done} changed{files}")
    for name in report.chunks:
        click.echo(f"chunk {name} holds the text and is not changed; `relive rm {run}` and `relive gc` remove it")
    if report.unreadable_lines:
        click.echo(f"not changed: damaged lines that hold the text ({report.unreadable_lines}); see `relive doctor`")


@click.command()
@click.argument("place", required=False)
@click.option("--run", metavar="RUN", help="Trust one run that was fetched into the home.")
@click.option("--list", "is_list", is_flag=True, help="Show what you have trusted.")
@click.option("--revoke", is_flag=True, help="Trust it no longer.")
@json_option
@home_option
def trust(
    place: str | None, run: str | None, is_list: bool, revoke: bool, as_json: bool, home: Path | None
) -> None:  # fmt: skip
    """Let runs that others recorded run code here: restored pickles, and replays.

    PLACE is a home, or the address of a server for all runs that are fetched from it (default: the project's home).
    Homes that you made on this machine need no trust.
    """
    if is_list:
        _print_list(as_json=as_json)
    elif place is not None and "://" in place:
        url = place.rstrip("/")
        tell(_trust_server(url, revoke=revoke), as_json=as_json, server=url, is_trusted=not revoke)
    else:
        found = open_home(Path(place) if place is not None else home)
        name = find_run(open_index(found.path).runs(), run).record.run if run else ""
        said = _trust_home(found, name, revoke=revoke)
        tell(said, as_json=as_json, home=str(found.path), run=name or None, is_trusted=not revoke)


def _print_list(*, as_json: bool) -> None:
    for entry in trusted_list():
        tell(f"{format_time(entry.time_us)}  {entry}", as_json=as_json, time_us=entry.time_us, what=str(entry))


def _trust_server(url: str, *, revoke: bool) -> str:
    if revoke:
        if not revoke_trust(listed(server=url)):
            raise ReliveError(f"{url} is not on the list; see `relive trust --list`")
        return f"runs fetched from {url} are no longer trusted"
    return f"{trust_server(url)} are now trusted: restoring and replaying them runs code of their authors"


def _trust_home(home: Home, run: str, *, revoke: bool) -> str:
    what = f"run {short_id(run)}" if run else str(home.path)
    if run and find_origin(home.run_folder(run)) is None:
        raise ReliveError(f"run {short_id(run)} was recorded in this home; trust the home: `relive trust {home.path}`")
    if revoke:
        if not revoke_trust(listed(home, run=run)):
            raise ReliveError(f"{what} is not on the list; see `relive trust --list`")
        return f"{what} is no longer trusted"
    if not run and is_trusted(home):
        return f"{what} is trusted already"
    origin = f"{describe_origin(home, run)}\n" if run else ""
    trust_home(home, run)
    return f"{origin}{what} is now trusted: restoring and replaying it runs code of its author"
