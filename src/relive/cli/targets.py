"""What commands share: the home or server they work on, and the style of consoles and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relive.errors import NotFound, ReliveError
from relive.model import SHORT_ID_DIGITS
from relive.record.process import read_launch_context, select_server
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import to_json

if TYPE_CHECKING:
    from relive.query import RunsBackend
    from relive.store.registry import Registry
    from relive.store.sync import RemoteRegistry, ServerClient

T = TypeVar("T")

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that holds the runs (default: .relive in the project, or RELIVE_HOME).",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

server_option = click.option(
    "--server", metavar="URL", help="Query this server instead of a home (default: the setting)."
)


def open_home(path: Path | None) -> Home:
    """Returns the given home, or that of the project that contains the current folder."""
    home = Home(path.absolute()) if path is not None else read_launch_context().home
    return home.require_runs("name another home with --home")


def open_index(path: Path | None) -> Index:
    return Index(open_home(path))


def open_runs(home: Path | None, server: str | None) -> RunsBackend:
    """Returns the runs of the given home or server, or else of the configured server, or else of the project."""
    from relive.query import HomeRuns, ServerRuns

    remote = select_server(home, server)
    return HomeRuns(open_index(home)) if remote is None else ServerRuns(remote)


def ask_home_then_server(home: Path | None, server: str | None, question: Callable[[RunsBackend], T]) -> T:
    """Returns the answer from the given or the project's home; if it is not found there, from the configured server."""
    if home is not None or server is not None or select_server(None) is None:
        return question(open_runs(home, server))
    from relive.query import HomeRuns

    try:
        return question(HomeRuns(open_index(None)))
    except NotFound:
        return question(open_runs(None, None))


def open_server(url: str | None) -> ServerClient:
    """Returns the given server, or else the configured one, with the token of the settings."""
    from relive.store.sync import ServerClient

    settings = read_launch_context().settings
    if not (url or settings.server):
        raise ReliveError("no server is configured; set RELIVE_SERVER, or name one, like http://host:5005")
    return ServerClient(url or settings.server, settings.token, keeps_open=False)


def open_registry(home: Path | None, server: str | None) -> Registry | RemoteRegistry:
    """Returns the registry of the given home or server, or else of the configured server, or else of the project."""
    from relive.store.registry import Registry
    from relive.store.sync import RemoteRegistry

    remote = select_server(home, server)
    return Registry(open_home(home)) if remote is None else RemoteRegistry(remote)


def tell(text: str, /, *, as_json: bool, **fields: Any) -> None:
    """Prints what a command did: as a sentence, or its parts as one JSON object."""
    click.echo(to_json(fields) if as_json else text)


def short_id(run: str) -> str:
    return run[:SHORT_ID_DIGITS]


def make_console() -> Any:
    """Returns a rich console on stdout; wide lines are not wrapped if stdout is not a terminal."""
    import sys

    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=240, soft_wrap=True)
