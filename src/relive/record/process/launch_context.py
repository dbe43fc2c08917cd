"""Where this process stands: what was started, in which project, with which settings, as which rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from relive.errors import ReliveError
from relive.record.process.launch import EntryPoint, Launch, detect, find_entry
from relive.settings import Settings, load
from relive.store import Home

if TYPE_CHECKING:
    from relive.store.sync import ServerClient


class LaunchContext(NamedTuple):
    """Where this process stands: what was started, in which project, as which rank."""

    entry: EntryPoint
    settings: Settings
    home: Home
    launched: Launch

    @property
    def project(self) -> str:
        return self.settings.project or Path(self.entry.root).name


def read_launch_context() -> LaunchContext:
    entry = find_entry()
    settings = load(Path(entry.root))
    home = Path(settings.home).expanduser() if settings.home else Path(entry.root) / ".relive"
    return LaunchContext(entry, settings, Home(Path(os.path.abspath(home)), settings), detect())


def chosen_server(home: object | None, server: str | None = None) -> ServerClient | None:
    """The server that a question about the team's runs and models goes to; None if it goes to a home.

    A home that is named is meant; so is a server that is named; else it is the one of the settings, if there is one.
    """
    if home is not None and server is not None:
        raise ReliveError("--home and --server name two places; give one of them")
    if home is not None:
        return None
    settings = read_launch_context().settings
    url = server or settings.server
    if not url:
        return None
    from relive.store.sync import ServerClient  # here, since recording without a server needs no HTTP

    return ServerClient(url, settings.token, keeps_open=False)
