"""The launch context of this process: entry point, project, settings, home and rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from relive.errors import ReliveError
from relive.record.process.launcher_environment import EntryPoint, Launch, detect_launch, find_entry
from relive.settings import Settings, load
from relive.store import Home

if TYPE_CHECKING:
    from relive.store.sync import ServerClient


class LaunchContext(NamedTuple):
    """What was started, in which project, with which settings and home, as which rank."""

    entry: EntryPoint
    settings: Settings
    home: Home
    launched: Launch

    @property
    def project(self) -> str:
        return self.settings.project or Path(self.entry.root).name


def read_launch_context() -> LaunchContext:
    """Determines the context from the main module, the settings and the environment variables."""
    entry = find_entry()
    settings = load(Path(entry.root))
    home = Path(settings.home).expanduser() if settings.home else Path(entry.root) / ".relive"
    return LaunchContext(entry, settings, Home(Path(os.path.abspath(home)), settings), detect_launch())


def select_server(home: object | None, server: str | None = None) -> ServerClient | None:
    """Returns a client of the server to query for runs and models; None to use a home.

    An explicit home or server wins; otherwise the server of the settings is used, if there is one.
    """
    if home is not None and server is not None:
        raise ReliveError("--home and --server exclude each other; give one of them")
    if home is not None:
        return None
    settings = read_launch_context().settings
    url = server or settings.server
    if not url:
        return None
    from relive.store.sync import ServerClient  # imported here: recording without a server needs no HTTP client

    return ServerClient(url, settings.token, keeps_open=False)
