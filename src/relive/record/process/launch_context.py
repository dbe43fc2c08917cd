"""The launch context of this process: entry point, project, settings, home and rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from relive.errors import NotFound, ReliveError
from relive.record.process.launcher_environment import EntryPoint, Launch, detect_launch, find_entry, project_root
from relive.record.process.user_warnings import print_to_stderr
from relive.settings import Settings, load
from relive.store import Home

if TYPE_CHECKING:
    from relive.store.sync import ServerClient

_told: set[Path] = set()  # homes of other folders that a line on stderr has named


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


def find_home_to_read(remedy: str) -> Home:
    """Returns the home with the runs that a script asks for: that of its project, else that of the folder it runs in.

    If both have runs, a line on stderr says which one is read.
    """
    context = read_launch_context()
    own, here = context.home, _home_of_folder(context)
    if here is None or own.path == here.path:
        return own.require_runs(remedy)
    if not own.runs.is_dir():
        if not here.runs.is_dir():
            raise NotFound(f"no runs in {own.path}, nor in {here.path}; record one with `python train.py`, or {remedy}")
        return here
    if here.runs.is_dir() and here.path not in _told:
        _told.add(here.path)
        print_to_stderr(f"reading {own.path}, the home of the script; {here.path} is that of this folder; {remedy}")
    return own


def _home_of_folder(context: LaunchContext) -> Home | None:
    """Returns the home of the current folder, if it is another project than that of the script."""
    root = project_root(Path(os.path.realpath(context.entry.cwd)))
    if context.settings.home or context.entry.kind not in ("script", "module") or str(root) == context.entry.root:
        return None
    try:
        settings = load(root)
    except ReliveError:  # it is not the script's project, so its settings are not the script's problem
        return None
    home = Path(settings.home).expanduser() if settings.home else root / ".relive"
    return Home(Path(os.path.abspath(home)), settings)


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
