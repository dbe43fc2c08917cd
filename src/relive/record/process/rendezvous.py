"""Lets the ranks of one launch agree on one run without communicating: through a locked file per launch."""

from __future__ import annotations

import fcntl

from relive.hashing import digest
from relive.store import Home, JournalName


def join_shared_run(home: Home, key: str, rank: int) -> str:
    """Returns the run that all ranks with this launch key share. The first rank to call creates it.

    A rank whose journal exists in that run already belongs to a later launch with the same key.
    """
    home.launches.mkdir(parents=True, exist_ok=True)
    with (home.launches / digest(key.encode())[:32]).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = file.read().split()
        if known and _can_join(home, known[-1], rank):
            return known[-1]
        run = home.new_run()
        file.write(run + "\n")
        return run


def _can_join(home: Home, run: str, rank: int) -> bool:
    folder = home.run_folder(run)
    return folder.is_dir() and not (folder / f"{JournalName(rank).stem}.slots").exists()
