"""What every command shares: which home or server it works on, and which run a word means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relive.errors import NotFound
from relive.model import SHORT_ID
from relive.record.process import chosen_server, read_launch_context
from relive.store import Home
from relive.store.catalog import Index

if TYPE_CHECKING:
    from relive.query import RunsBackend
    from relive.store.registry import Registry
    from relive.store.sync import RemoteRegistry

T = TypeVar("T")

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that holds the runs (default: .relive beside the project, or RELIVE_HOME).",
)

server_option = click.option("--server", metavar="URL", help="Ask this server, not a home (default: the setting).")


def open_home(path: Path | None) -> Home:
    """The home that was named, or the one of the project around the current folder."""
    home = Home(path.absolute()) if path is not None else read_launch_context().home
    if not home.runs.is_dir():
        raise NotFound(f"no runs in {home.path}; record one with `python train.py`, or name another with --home")
    return home


def open_index(path: Path | None) -> Index:
    return Index(open_home(path))


def open_runs(home: Path | None, server: str | None) -> RunsBackend:
    """The runs of a team: those of the home or server that was named, else of the server that is set."""
    from relive.query import HomeRuns, ServerRuns

    remote = chosen_server(home, server)
    return HomeRuns(open_index(home)) if remote is None else ServerRuns(remote)


def look_up(home: Path | None, server: str | None, question: Callable[[RunsBackend], T]) -> T:
    """The answer of this home, where one's own runs are; what isn't here is looked for on the server that is set."""
    if home is not None or server is not None or chosen_server(None) is None:
        return question(open_runs(home, server))
    from relive.query import HomeRuns

    try:
        return question(HomeRuns(open_index(None)))
    except NotFound:
        return question(open_runs(None, None))


def open_registry(home: Path | None, server: str | None) -> Registry | RemoteRegistry:
    """The models of the home or server that was named, else of the server that is set."""
    from relive.store.registry import Registry
    from relive.store.sync import RemoteRegistry

    remote = chosen_server(home, server)
    return Registry(open_home(home)) if remote is None else RemoteRegistry(remote)


def short(run: str) -> str:
    return run[:SHORT_ID]


def make_console() -> Any:
    """A rich console on stdout; as wide as needed when nobody is looking at a terminal."""
    import sys

    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=240, soft_wrap=True)
