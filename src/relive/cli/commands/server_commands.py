"""`relive serve`, `token`, `sync` and `fetch`: the server, who may use it, and bringing runs there and back."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from relive.cli.display import size, when
from relive.cli.targets import home_option, open_home, server_option, short
from relive.errors import ReliveError
from relive.record.process import read_launch_context
from relive.server import SCOPES, ServerOptions, Tokens, serve
from relive.store import Home
from relive.store.catalog import Index, find_run, is_database
from relive.store.sync import (
    RequestRefused,
    RunFetch,
    RunShipment,
    ServerClient,
    ServerUnreachable,
    has_ended,
    is_noted,
    note_sent,
    with_remedy,
)

_PATIENCE_S = 30.0

store_option = click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder that the server keeps."
)


@click.command("serve")
@click.option(
    "--store",
    "stores",
    multiple=True,
    required=True,
    help="The folder that the server keeps; or postgresql://… for its catalog, beside a folder or the project's home.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 is all of them."
)
@click.option("--port", default=5005, show_default=True, help="0 takes a free one.")
@click.option("--open", "is_open", is_flag=True, help="Let everybody on this machine in, without a token.")
def serve_command(stores: tuple[str, ...], host: str, port: int, is_open: bool) -> None:
    """Serve a store over HTTP: runs are sent to it, and looked at in a browser.

    Stops on SIGTERM or Ctrl-C, when what it was sent is on disk.
    """
    store = _served(stores)
    if not is_open and not Tokens(store.path).all():
        click.echo(f"nobody has a token yet; make one with `relive token create NAME --store {store.path}`", err=True)
    serve(ServerOptions(store, host, port, is_open), lambda url: click.echo(f"serving {store.path} on {url}"))


def _served(stores: Sequence[str]) -> Home:
    """The home that `--store` means: a folder, a database for its catalog, or one of each."""
    databases = [one for one in stores if is_database(one)]
    folders = [one for one in stores if not is_database(one)]
    if len(folders) > 1 or len(databases) > 1:
        raise ReliveError("--store is given too often; give a folder, a postgresql:// address, or one of each")
    if folders and Path(folders[0]).is_file():
        raise ReliveError(f"{folders[0]} is a file; name a folder with --store")
    home = Home(Path(folders[0]).absolute()) if folders else read_launch_context().home
    return Home(home.path, home.settings._replace(catalog=databases[0])) if databases else home


@click.group()
def token() -> None:
    """Who may use the server of a store."""


@token.command("create")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(SCOPES), default=("write", "read"), show_default=True,
    help="What it allows; may be given several times. `admin` allows everything.",
)  # fmt: skip
@store_option
def create_token(name: str, scopes: tuple[str, ...], store: Path) -> None:
    """Make a token for NAME and print it. It is shown this once; only its hash is kept."""
    word, made = Tokens(store).create(name, scopes)
    click.echo(word)
    click.echo(f"{made.name} may {', '.join(made.scopes)}; set RELIVE_TOKEN to the line above", err=True)


@token.command("ls")
@store_option
def list_tokens(store: Path) -> None:
    """List the tokens: id, name, scopes, and when they were made."""
    for one in Tokens(store).all():
        click.echo(f"{one.id}  {when(one.created_s * 1_000_000)}  {','.join(one.scopes):<20}  {one.name}")


@token.command("rm")
@click.argument("token")
@store_option
def remove_token(token: str, store: Path) -> None:
    """Take back the TOKEN with this id or name. It is refused from now on, also by a server that runs."""
    gone = Tokens(store).remove(token)
    click.echo(f"token {gone.id} ({gone.name}) is refused from now on")


@click.command()
@click.option("--server", metavar="URL", help="Where to send to (default: the setting `server`).")
@click.option("--all", "everything", is_flag=True, help="Ask about every run, also those noted as sent.")
@click.option("--checkpoints", "chosen", multiple=True, metavar="RUN",
              help="Send this run with its checkpoints; may be repeated, and `all` means every run.")  # fmt: skip
@home_option
def sync(server: str | None, everything: bool, chosen: tuple[str, ...], home: Path | None) -> None:
    """Send what the server does not have yet: of runs that were recorded offline, or killed."""
    settings = read_launch_context().settings
    url = server or settings.server
    if not url:
        raise ReliveError("which server? Set RELIVE_SERVER, or name it with --server http://host:5005")
    place = open_home(home)
    with contextlib.closing(ServerClient(url, settings.token)) as remote:
        refused = _send_all(place, remote, _meant(place, chosen), everything=everything)
    raise SystemExit(1 if refused else 0)


def _send_all(place: Home, remote: ServerClient, complete: set[str], *, everything: bool) -> int:
    """Send what each run lacks on the server, those in `complete` with checkpoints; gives how many were refused."""
    sent_bytes = sent = going_on = refused = 0
    for run in sorted(place.run_ids()):
        if is_noted(place, run, remote.url) and not everything and run not in complete:
            continue
        try:
            shipment = _send(RunShipment(place, run, remote), with_checkpoints=run in complete)
        except RequestRefused as error:
            if error.status in (401, 403):  # so will all others be
                raise
            click.echo(f"{short(run)}  {error}", err=True)
            refused += 1
            continue
        sent_bytes += shipment.sent_bytes
        sent += shipment.sent_bytes > 0
        going_on += not shipment.is_done
        if shipment.is_done:
            note_sent(place, run, remote.url)
    still = f"; {going_on} still going on" if going_on else ""
    click.echo(f"{sent} run{'' if sent == 1 else 's'} sent to {remote.url}, {size(sent_bytes)}{still}")
    return refused


def _meant(home: Home, words: tuple[str, ...]) -> set[str]:
    """The runs whose checkpoints are sent, too."""
    if not words:
        return set()
    if "all" in words:
        return set(home.run_ids())
    entries = Index(home).runs()
    return {find_run(entries, word).record.run for word in words}


def _send(shipment: RunShipment, *, with_checkpoints: bool) -> RunShipment:
    """Send what there is of a run now; wait a while for a server that is busy or restarting."""
    patience_s, shown = _PATIENCE_S, sys.stderr.isatty()
    if with_checkpoints:
        count = shipment.add_checkpoints()
        click.echo(f"{short(shipment.run)}  {count} checkpoint{'' if count == 1 else 's'}", err=True)
    while True:
        try:
            if not shipment.step(has_ended):
                return shipment
            patience_s = _PATIENCE_S
            if shown:
                click.echo(f"\r{short(shipment.run)} {size(shipment.sent_bytes)}", nl=False, err=True)
        except ServerUnreachable as error:
            pause_s = error.retry_after_s or 1.0
            patience_s -= pause_s
            if patience_s < 0:
                raise ReliveError(f"{error}; run `relive sync` again when it is there") from error
            time.sleep(pause_s)


@click.command()
@click.argument("run", nargs=-1, required=True)
@click.option("--checkpoints", is_flag=True, help="Fetch the checkpoints that the server has, too.")
@server_option
@home_option
def fetch(run: tuple[str, ...], checkpoints: bool, server: str | None, home: Path | None) -> None:
    """Bring RUN from the server to this home: its values, its artifacts, and its checkpoints if asked for.

    Restoring a checkpoint may run code of whoever made it; fetch those of people you trust.
    """
    settings = read_launch_context().settings
    url = server or settings.server
    if not url:
        raise ReliveError("from which server? Set RELIVE_SERVER, or name it with --server http://host:5005")
    place, remote = (
        Home(home.absolute()) if home is not None else read_launch_context().home,
        ServerClient(url, settings.token, keeps_open=False),
    )
    for word in run:
        with with_remedy():
            found = str(remote.get("/api/runs", run=word)["runs"][0]["run"])
            on_its_way = RunFetch(place, found, remote)
            on_its_way.journals()
            on_its_way.chunks()
            count = on_its_way.checkpoints() if checkpoints else 0
        kept = f", {count} checkpoint{'' if count == 1 else 's'}" if checkpoints else ""
        click.echo(f"run {short(found)} is in {place.path} now, {size(on_its_way.got_bytes)}{kept}")
        if checkpoints and not count:
            remedy = f"whoever recorded it sends them with `relive sync --checkpoints {short(found)}`"
            click.echo(f"the server has no checkpoints of run {short(found)}; {remedy}", err=True)
