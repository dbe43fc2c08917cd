"""How the ranks of one launch agree on one run without talking to each other: a small file per launch."""

from __future__ import annotations

import fcntl

from relive.hashing import digest
from relive.store import Home, JournalName


def shared_run(home: Home, key: str, rank: int) -> str:
    """The run that all ranks with this launch key share. The first rank to come makes it.

    A rank that finds its own journal there already belongs to a later launch under the same key.
    """
    home.launches.mkdir(parents=True, exist_ok=True)
    with (home.launches / digest(key.encode())[:32]).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = file.read().split()
        if known and _has_room(home, known[-1], rank):
            return known[-1]
        run = home.new_run()
        file.write(run + "\n")
        return run


def _has_room(home: Home, run: str, rank: int) -> bool:
    folder = home.run_folder(run)
    return folder.is_dir() and not (folder / f"{JournalName(rank).stem}.slots").exists()
