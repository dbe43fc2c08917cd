"""Where this process stands: what was started, in which project, with which settings, as which rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from relive.record.launch import Entry, Launch, detect, find_entry
from relive.settings import Settings, load
from relive.store import Home


class Surroundings(NamedTuple):
    """Where this process stands: what was started, in which project, as which rank."""

    entry: Entry
    settings: Settings
    home: Home
    launched: Launch

    @property
    def project(self) -> str:
        return self.settings.project or Path(self.entry.root).name


def look_around() -> Surroundings:
    entry = find_entry()
    settings = load(Path(entry.root))
    home = Path(settings.home).expanduser() if settings.home else Path(entry.root) / ".relive"
    return Surroundings(entry, settings, Home(Path(os.path.abspath(home)), settings), detect())
