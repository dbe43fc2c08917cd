"""`relive serve`, `token`, `sync` and `fetch`: the server, its tokens, and sending and fetching runs."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from relive.cli.commands.ui import ReplayAsker
from relive.cli.display import format_size, format_time
from relive.cli.targets import home_option, json_option, open_home, server_option, short_id, tell
from relive.errors import ReliveError
from relive.record.process import read_launch_context
from relive.server import SCOPES, ServerOptions, Tokens, last_use, serve
from relive.server.questions import QuestionLimits
from relive.store import Home
from relive.store.catalog import Index, find_run, is_database_url
from relive.store.sync import (
    AuditLog,
    RequestRefused,
    RunFetch,
    RunShipment,
    ServerClient,
    ServerUnreachable,
    has_ended,
    is_recorded_as_sent,
    read_audit,
    record_sent,
    translate_server_errors,
)

_MAX_WAIT_S = 30.0
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_NO_SERVER = "no server is configured; set RELIVE_SERVER, or name one with --server http://host:5005"

store_option = click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder of the server's store."
)


@click.command("serve")
@click.option(
    "--store",
    "stores",
    multiple=True,
    required=True,
    help="The folder of the store, or postgresql://… for its catalog; with a database alone, the project's home.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 means all.")
@click.option("--port", default=5005, show_default=True, help="The port to listen on; 0 chooses a free one.")
@click.option("--open", "is_open", is_flag=True, help="Allow access from this machine without a token.")
@click.option("--readers", type=click.IntRange(1, 64), default=4, show_default=True,
              help="How many questions are answered at once, each by a process.")  # fmt: skip
@click.option("--question-seconds", type=click.FloatRange(min=0.1), default=30.0, show_default=True,
              help="How long one question may take.")  # fmt: skip
@click.option("--question-memory", metavar="MB", type=click.IntRange(64), default=512, show_default=True,
              help="How much memory one question may take, in MB.")  # fmt: skip
@click.option("--replay", "replays", is_flag=True,
              help="Let tokens with the scope replay ask past runs; this runs their code on this machine.")  # fmt: skip
def serve_command(
    stores: tuple[str, ...], host: str, port: int, is_open: bool, readers: int, question_seconds: float,
    question_memory: int, replays: bool,
) -> None:  # fmt: skip
    """Serve a store over HTTP, to receive runs and to show them in a browser.

    Stops on SIGTERM or Ctrl-C, after all received data is on disk.
    """
    store = _resolve_store(stores)
    if not is_open and not Tokens(store.path).all():
        click.echo(
            f"there are no tokens yet; create one with `relive token create NAME --store {store.path}`", err=True
        )
    limits = QuestionLimits(question_seconds, question_memory << 20, readers)
    options = ServerOptions(store, host, port, is_open, limits, ReplayAsker(store) if replays else None)
    serve(options, lambda url: click.echo(f"serving {store.path} on {url}"))


def _resolve_store(stores: Sequence[str]) -> Home:
    """Returns the home for the values of `--store`: a folder, a database for its catalog, or one of each."""
    databases = [one for one in stores if is_database_url(one)]
    folders = [one for one in stores if not is_database_url(one)]
    if len(folders) > 1 or len(databases) > 1:
        raise ReliveError("too many --store options; give a folder, a postgresql:// address, or one of each")
    if folders and Path(folders[0]).is_file():
        raise ReliveError(f"{folders[0]} is a file; name a folder with --store")
    home = Home(Path(folders[0]).absolute()) if folders else read_launch_context().home
    return Home(home.path, home.settings._replace(catalog=databases[0])) if databases else home


@click.group()
def token() -> None:
    """Manage the tokens that give access to the server of a store."""


class _Duration(click.ParamType[float]):
    """A length of time such as `30d`, `12h` or `0`, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d{1,6})([smhdw])|0", str(value))
        if found is None:
            self.fail(f"{value!r} is not a length of time; write it like 30d, 12h or 45m", param, ctx)
        return int(found[1] or 0) * _UNIT_S[found[2] or "s"]


@token.command("create")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(SCOPES), default=("write", "read"), show_default=True,
    help="A scope of the token; may be repeated. `admin` includes all scopes.",
)  # fmt: skip
@click.option("--project", "projects", multiple=True, help="Limit it to the runs of this project; may be repeated.")
@click.option("--expires", type=_Duration(), help="After this time it is refused: 30d, 12h, 45m (default: never).")
@json_option
@store_option
def create_token(
    name: str, scopes: tuple[str, ...], projects: tuple[str, ...], expires: float | None, as_json: bool, store: Path
) -> None:
    """Create a token for NAME and print it. It is shown only once; only its hash is stored."""
    text, made = Tokens(store).create(name, scopes, projects=projects, expires_in_s=expires)
    AuditLog(store).record("token-created", token=made.id, name=made.name)
    tell(text, as_json=as_json, token=text, **_token_fields(made))
    limits = f" in {', '.join(made.projects)}" if made.projects else ""
    until = f" until {format_time(made.expires_s * 1_000_000)}" if made.expires_s is not None else ""
    click.echo(f"{made.name} may {', '.join(made.scopes)}{limits}{until}; set RELIVE_TOKEN to the line above", err=True)


@token.command("ls")
@json_option
@store_option
def list_tokens(as_json: bool, store: Path) -> None:
    """List the tokens: id, creation time, last use, expiry, scopes, projects, name."""
    used_s = last_use(store)
    for one in Tokens(store).all():
        if as_json:
            click.echo(json.dumps(_token_fields(one) | {"used_s": used_s.get(one.id)}))
            continue
        used = format_time(used_s[one.id] * 1_000_000) if one.id in used_s else "never used"
        expires = _describe_expiry(one.expires_s)
        projects = ",".join(one.projects) or "all projects"
        times = f"{format_time(one.created_s * 1_000_000)}  {used:<19}  {expires:<19}"
        click.echo(f"{one.id}  {times}  {','.join(one.scopes):<20}  {projects}  {one.name}")


def _describe_expiry(expires_s: int | None) -> str:
    if expires_s is None:
        return "does not expire"
    return "expired" if time.time() >= expires_s else f"until {format_time(expires_s * 1_000_000)}"


def _token_fields(one: msgspec.Struct) -> dict[str, Any]:
    """Returns what may be shown of a token: not its hashes."""
    fields = msgspec.to_builtins(one)
    return {key: fields[key] for key in ("id", "name", "scopes", "projects", "created_s", "expires_s")}


@token.command("rotate")
@click.argument("token")
@click.option("--grace", type=_Duration(), default="0",
              help="How long the old secret stays valid: 24h, 30m (default: it is refused at once).")  # fmt: skip
@json_option
@store_option
def rotate_token(token: str, grace: float, as_json: bool, store: Path) -> None:
    """Give the TOKEN with this id or name a new secret and print it. Its id stays, and with it its runs."""
    text, made = Tokens(store).rotate(token, grace_s=grace)
    AuditLog(store).record("token-rotated", token=made.id, name=made.name)
    tell(text, as_json=as_json, token=text, **_token_fields(made))
    until = f"valid until {format_time(made.old_until_s * 1_000_000)}" if made.old_hash else "refused from now on"
    click.echo(f"the old secret of {made.name} is {until}; set RELIVE_TOKEN to the line above", err=True)


@token.command("rm")
@click.argument("token")
@json_option
@store_option
def remove_token(token: str, as_json: bool, store: Path) -> None:
    """Revoke the TOKEN with this id or name. A running server rejects it at once."""
    revoked = Tokens(store).remove(token)
    AuditLog(store).record("token-revoked", token=revoked.id, name=revoked.name)
    tell(f"token {revoked.id} ({revoked.name}) is revoked", as_json=as_json, **_token_fields(revoked))


@token.command("audit")
@store_option
def show_audit(store: Path) -> None:
    """Print what the server refused to write, and what was done to tokens: one line of JSON each, oldest first."""
    for line in read_audit(store):
        click.echo(json.dumps({"time": format_time(line["t"] // 1000), **line}))


@click.command()
@click.option("--server", metavar="URL", help="The server to send to (default: the setting `server`).")
@click.option("--all", "everything", is_flag=True, help="Check every run, including those recorded as sent.")
@click.option("--checkpoints", "chosen", multiple=True, metavar="RUN",
              help="Also send the checkpoints of this run; may be repeated; `all` means every run.")  # fmt: skip
@json_option
@home_option
def sync(server: str | None, everything: bool, chosen: tuple[str, ...], as_json: bool, home: Path | None) -> None:
    """Send to the server what it lacks of runs that were recorded offline or killed."""
    settings = read_launch_context().settings
    url = server or settings.server
    if not url:
        raise ReliveError(_NO_SERVER)
    place = open_home(home)
    with contextlib.closing(ServerClient(url, settings.token)) as remote:
        refused = _send_all(place, remote, _select_runs(place, chosen), everything=everything, as_json=as_json)
    raise SystemExit(1 if refused else 0)


def _send_all(place: Home, remote: ServerClient, complete: set[str], *, everything: bool, as_json: bool) -> int:
    """Sends what the server lacks of each run, for `complete` with checkpoints; returns how many were refused."""
    sent_bytes = sent = still_running = refused = 0
    for run in sorted(place.run_ids()):
        if is_recorded_as_sent(place, run, remote.url) and not everything and run not in complete:
            continue
        try:
            shipment = _send_run(RunShipment(place, run, remote), with_checkpoints=run in complete)
        except RequestRefused as error:
            if error.status in (401, 403):  # the others would fail the same way
                raise
            click.echo(f"{short_id(run)}  {error}", err=True)
            refused += 1
            continue
        sent_bytes += shipment.sent_bytes
        sent += shipment.sent_bytes > 0
        still_running += not shipment.is_done
        if shipment.is_done:
            record_sent(place, run, remote.url)
    still = f"; {still_running} still running" if still_running else ""
    tell(
        f"{sent} run{'' if sent == 1 else 's'} sent to {remote.url}, {format_size(sent_bytes)}{still}", as_json=as_json,
        server=remote.url, sent=sent, sent_bytes=sent_bytes, still_running=still_running, refused=refused,
    )  # fmt: skip
    return refused


def _select_runs(home: Home, words: tuple[str, ...]) -> set[str]:
    """Returns the runs whose checkpoints are also sent."""
    if not words:
        return set()
    if "all" in words:
        return set(home.run_ids())
    entries = Index(home).runs()
    return {find_run(entries, word).record.run for word in words}


def _send_run(shipment: RunShipment, *, with_checkpoints: bool) -> RunShipment:
    """Sends the current content of a run; waits up to `_MAX_WAIT_S` for a server that is busy or restarting."""
    wait_left_s, shown = _MAX_WAIT_S, sys.stderr.isatty()
    if with_checkpoints:
        count = shipment.add_checkpoints()
        click.echo(f"{short_id(shipment.run)}  {count} checkpoint{'' if count == 1 else 's'}", err=True)
    while True:
        try:
            if not shipment.step(has_ended):
                return shipment
            wait_left_s = _MAX_WAIT_S
            if shown:
                click.echo(f"\r{short_id(shipment.run)} {format_size(shipment.sent_bytes)}", nl=False, err=True)
        except ServerUnreachable as error:
            pause_s = error.retry_after_s or 1.0
            wait_left_s -= pause_s
            if wait_left_s < 0:
                raise ReliveError(f"{error}; run `relive sync` again when the server is available") from error
            time.sleep(pause_s)


@click.command()
@click.argument("run", nargs=-1, required=True)
@click.option("--checkpoints", is_flag=True, help="Also fetch the checkpoints that the server has.")
@json_option
@server_option
@home_option
def fetch(run: tuple[str, ...], checkpoints: bool, as_json: bool, server: str | None, home: Path | None) -> None:
    """Fetch RUN from the server into this home: values, artifacts, and with --checkpoints also checkpoints.

    Restoring a checkpoint may run code of its author; fetch checkpoints only from people you trust.
    """
    settings = read_launch_context().settings
    url = server or settings.server
    if not url:
        raise ReliveError(_NO_SERVER)
    place, remote = (
        Home(home.absolute()) if home is not None else read_launch_context().home,
        ServerClient(url, settings.token, keeps_open=False),
    )
    for word in run:
        with translate_server_errors():
            found = str(remote.get("/api/runs", run=word)["runs"][0]["run"])
            run_fetch = RunFetch(place, found, remote)
            run_fetch.journals()
            run_fetch.chunks()
            count = run_fetch.checkpoints() if checkpoints else 0
        fetched = f", {count} checkpoint{'' if count == 1 else 's'}" if checkpoints else ""
        tell(
            f"run {short_id(found)} is now in {place.path}, {format_size(run_fetch.got_bytes)}{fetched}",
            as_json=as_json, run=found, home=str(place.path), got_bytes=run_fetch.got_bytes, checkpoints=count,
        )  # fmt: skip
        if checkpoints and not count:
            remedy = f"send them with `relive sync --checkpoints {short_id(found)}` from where it was recorded"
            click.echo(f"the server has no checkpoints of run {short_id(found)}; {remedy}", err=True)
