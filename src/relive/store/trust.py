"""Whose code may run here: that of homes which this user made, and of homes, runs and servers that the user trusts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from relive.errors import Damaged, ReliveError, Untrusted
from relive.store.durable_files import atomic_write, read_sealed, write_sealed
from relive.store.home import Home
from relive.store.home_mark import has_own_mark, state_folder
from relive.store.journal import is_shipped

VARIABLE = "RELIVE_TRUST"  # homes and servers, separated like PATH; never read from a file of the project
EVERYTHING = "*"
_ORIGIN_FILE = "origin"
ELSEWHERE = "another machine"


class RunOrigin(msgspec.Struct, frozen=True):
    """Where a run was fetched from, and when."""

    server: str
    time_us: int = 0


class Trusted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something the user trusts: a home, one fetched run in a home, or all runs that come from a server."""

    home: str = ""  # its id
    path: str = ""
    run: str = ""
    server: str = ""
    time_us: int = 0

    @property
    def what(self) -> tuple[str, str, str]:
        return self.home, self.run, self.server

    def __str__(self) -> str:
        if self.server:
            return f"runs fetched from {self.server}"
        return f"run {self.run} in {self.path}" if self.run else self.path


# --- where a run came from --------------------------------------------------------------------------------------------


def record_origin(folder: Path, server: str) -> None:
    """Notes in the folder of a run where it is fetched from, before anything of it is there."""
    data = msgspec.json.encode(RunOrigin(server, time.time_ns() // 1000))
    write_sealed(folder / _ORIGIN_FILE, data)


def find_origin(folder: Path) -> RunOrigin | None:
    """Where a run came from; None if it was recorded in this home."""
    try:
        return msgspec.json.decode(read_sealed(folder / _ORIGIN_FILE), type=RunOrigin)
    except FileNotFoundError:
        return RunOrigin(ELSEWHERE) if is_shipped(folder) else None
    except (Damaged, msgspec.DecodeError):
        return RunOrigin(ELSEWHERE)


def describe_origin(home: Home, run: str) -> str:
    """Says where a run came from; "" if it was recorded in this home."""
    origin = find_origin(home.run_folder(run))
    if origin is None:
        return ""
    when = time.strftime(" on %Y-%m-%d", time.localtime(origin.time_us / 1e6)) if origin.time_us else ""
    return f"run {run} was fetched from {origin.server}{when}"


# --- questions --------------------------------------------------------------------------------------------------------


def is_trusted(home: Home, run: str = "") -> bool:
    """Whether a home, or a run in it, may run code here."""
    origin = find_origin(home.run_folder(run)) if run else None
    named = _named_by_variable()
    if EVERYTHING in named:
        return True
    if origin is not None:
        wanted = [(_key(home), run, ""), ("", "", origin.server)]
        return origin.server in named or any(one.what in wanted for one in trusted_list())
    if any(_is_same_folder(one, home.path) for one in named):
        return True
    key = _key(home)
    return has_own_mark(home.path, key) or any(one.what == (key, "", "") for one in trusted_list())


def require_trust(home: Home, run: str, *, doing: str) -> None:
    """Raises `Untrusted`, unless the run may run code here. `doing` is what would run it."""
    if not is_trusted(home, run):
        raise Untrusted(refusal(home, run, doing=doing))


def refusal(home: Home, run: str, *, doing: str) -> str:
    """Says where a run came from, and how to trust it."""
    origin = find_origin(home.run_folder(run))
    if origin is None:
        place = f"{home.path} was not made by you on this machine"
        return f"{place}, and {doing} runs code of its author; if you trust them: `relive trust {home.path}`"
    more = f", or `relive trust {origin.server}` for all runs from there" if origin.server != ELSEWHERE else ""
    trust = f"relive trust --run {run} --home {home.path}"
    return (
        f"run {run} came from {origin.server}, and {doing} runs code of its author; if you trust them: `{trust}`{more}"
    )


# --- changes ----------------------------------------------------------------------------------------------------------


def trusted_list() -> list[Trusted]:
    """What the user has trusted, oldest first."""
    path = _list_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Trusted])
    except FileNotFoundError:
        return []
    except (PermissionError, NotADirectoryError):
        return []  # a folder of another user: this one has trusted nothing
    except msgspec.DecodeError as error:
        raise Damaged(f"{path} can't be read ({error}); remove it, and trust again what you trust") from error


def trust_home(home: Home, run: str = "") -> Trusted:
    """Trusts a home, or one fetched run in it."""
    return _added(Trusted(home=_key(home), path=str(home.path), run=run))


def trust_server(url: str) -> Trusted:
    """Trusts all runs that are fetched from a server."""
    return _added(Trusted(server=url))


def revoke_trust(what: Trusted) -> bool:
    """Takes something off the list; False if it was not on it."""
    before = trusted_list()
    after = [one for one in before if one.what != what.what]
    if len(after) < len(before):
        _write_list(after)
    return len(after) < len(before)


def listed(home: Home | None = None, *, run: str = "", server: str = "") -> Trusted:
    """Returns the entry of the list for a home, a run or a server, whether or not it is on the list."""
    return Trusted(server=server) if home is None else Trusted(home=_key(home), path=str(home.path), run=run)


def _added(entry: Trusted) -> Trusted:
    entry = msgspec.structs.replace(entry, time_us=time.time_ns() // 1000)
    _write_list([*(one for one in trusted_list() if one.what != entry.what), entry])
    return entry


def _write_list(entries: list[Trusted]) -> None:
    path = _list_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write(path, msgspec.json.encode(entries), permissions=0o600)
    except OSError as error:
        remedy = f"set XDG_STATE_HOME to a folder that you can write to, or {VARIABLE} to what you trust"
        raise ReliveError(f"{path} can't be written ({error.strerror}); {remedy}") from error


def _list_path() -> Path:
    return state_folder() / "trusted.json"


def _named_by_variable() -> list[str]:
    # Addresses have colons in them, so that the separator of PATH stands before a slash, or before another address.
    words = os.environ.get(VARIABLE, "").replace("://", "\0").split(os.pathsep)
    joined: list[str] = []
    for word in words:
        is_port = joined and "\0" in joined[-1] and word[:1].isdecimal()
        if is_port:
            joined[-1] += os.pathsep + word
        elif word:
            joined.append(word)
    return [word.replace("\0", "://") for word in joined]


def _is_same_folder(name: str, path: Path) -> bool:
    return "://" not in name and os.path.realpath(os.path.expanduser(name)) == os.path.realpath(path)


def _key(home: Home) -> str:
    """The id of a home; of one that has none and can't be written to, the inode of its folder."""
    try:
        return home.identity()
    except FileNotFoundError:
        raise
    except OSError:
        about = home.path.stat()
        return f"-{about.st_dev:x}-{about.st_ino:x}"
