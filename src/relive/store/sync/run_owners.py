"""Which token began each run of a served store: lines that are forced to disk before the first bytes of the run.

A run belongs to the token that began it. Tokens that are limited to a project share the runs of that project.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from relive.errors import ReliveError
from relive.store.home import JournalName

FORMAT = 1
_FILE = "owners.lines"


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends a range: a token, by its id and its name, the projects it is limited to, and its address."""

    token: str
    name: str
    projects: tuple[str, ...] = ()
    is_admin: bool = False
    address: str = ""


class OwnerLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token began a run, or sent a replay of it; the first line about a run or a replay counts."""

    v: int
    t: int
    run: str
    token: str
    name: str
    project: str = ""
    shared: bool = False  # all tokens that are limited to the project may append
    replay: int = 0


class NotOwner(ReliveError):
    """A range for a run that another token began."""


class RunOwners:
    """The owners of the runs of a store. One thread of the server adds to them; readers see what is on disk."""

    def __init__(self, store: Path) -> None:
        self._path = store / _FILE
        self._owners: dict[str, OwnerLine] = {}
        self._replays: dict[tuple[str, int], str] = {}
        self._new: list[OwnerLine] = []
        self._read_bytes = 0

    def owner(self, run: str) -> OwnerLine | None:
        """Returns who began a run; None if nobody did with a token."""
        self._refresh()
        return self._owners.get(run)

    def replay_senders(self, run: str) -> dict[int, str]:
        """Returns the names of the tokens that sent the replays of a run, by the number of the replay."""
        self._refresh()
        return {number: name for (one, number), name in self._replays.items() if one == run}

    def claim(self, run: str, journal: JournalName, sender: Sender, project: str) -> None:
        """Checks that a sender may append to a run, which is its own from now on if it is nobody's.

        What is claimed must be saved before bytes of the run are acknowledged.
        """
        owner = self.owner(run)
        if sender.projects and (owner.project if owner else project) not in sender.projects:
            what = repr((owner.project if owner else project)[:100])
            raise NotOwner(
                f"token {sender.token} ({sender.name}) is limited to other projects than {what}; use another"
            )
        if owner is None:
            is_shared = bool(sender.projects)
            self._add(OwnerLine(FORMAT, time.time_ns(), run, sender.token, sender.name, project, is_shared))
        elif not _may_append(owner, sender):
            raise NotOwner(
                f"run {run} belongs to token {owner.token} ({owner.name}), not to {sender.token} ({sender.name}); "
                "send it with that token, or with one that has the scope admin"
            )
        if journal.replay and (run, journal.replay) not in self._replays:
            line = OwnerLine(FORMAT, time.time_ns(), run, sender.token, sender.name, replay=journal.replay)
            self._add(line)

    def check_owner(self, run: str, sender: Sender) -> None:
        """Raises `NotOwner` unless a run belongs to a sender; what is nobody's is for the scope admin."""
        owner = self.owner(run)
        if not (sender.is_admin if owner is None else _may_append(owner, sender)):
            whose = "nobody" if owner is None else f"token {owner.token} ({owner.name})"
            raise NotOwner(f"run {run} belongs to {whose}; use the token that began it, or one with the scope admin")

    def save(self) -> None:
        """Forces new claims to disk; if that fails, they are forgotten."""
        if not self._new:
            return
        new, self._new = self._new, []
        try:
            self._append(b"".join(msgspec.json.encode(line) + b"\n" for line in new))
        except OSError:
            self._owners, self._replays, self._read_bytes = {}, {}, 0  # what is on disk counts
            raise

    def _append(self, data: bytes) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # a torn line that a power cut left
            if os.write(fd, data) != len(data):
                os.ftruncate(fd, size)
                raise OSError("the line could not be written")
            os.fsync(fd)
        finally:
            os.close(fd)

    def _add(self, line: OwnerLine) -> None:
        self._remember(line)
        self._new.append(line)

    def _remember(self, line: OwnerLine) -> None:
        if line.replay:
            self._replays.setdefault((line.run, line.replay), line.name)
        else:
            self._owners.setdefault(line.run, line)

    def _refresh(self) -> None:
        try:
            if os.stat(self._path).st_size == self._read_bytes:
                return
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                raw = file.read()
        except FileNotFoundError:
            return
        whole = raw[: raw.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for row in whole.splitlines():
            try:
                self._remember(_decode(row))
            except msgspec.DecodeError:  # torn by a power cut: its range was never acknowledged
                continue


_decode = msgspec.json.Decoder(OwnerLine).decode


def _may_append(owner: OwnerLine, sender: Sender) -> bool:
    is_shared = owner.shared and owner.project in sender.projects
    return sender.is_admin or owner.token == sender.token or is_shared


@lru_cache(maxsize=1)
def owners_of(store: Path) -> RunOwners:
    """Returns the owners of a store, for a process that only reads them."""
    return RunOwners(store)
