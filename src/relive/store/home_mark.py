"""The mark of a home that this user made on this machine: it can't be copied along with the home, or made elsewhere."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from relive.store.durable_files import atomic_write, write_once

_FILE = "made"
_KEY_BYTES = 32


def state_folder() -> Path:
    """The folder for what relive remembers of a user: `$XDG_STATE_HOME/relive`, or `~/.local/state/relive`."""
    named = os.environ.get("XDG_STATE_HOME", "")
    base = Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~"), ".local", "state")
    return base / "relive"


def mark_home(folder: Path, identity: str) -> None:
    """Marks an empty home as made by this user.

    Two marks, each of which is enough. The first needs the user's key, and survives `chmod` and `mv`. The second is for
    users whose key can't be kept, as in a container: it names the file `id` by facts that no archive can set.
    """
    words = [_mark_by_key(key, identity) if (key := _user_key(is_made=True)) else "-", _mark_by_file(folder)]
    atomic_write(folder / _FILE, "\n".join(words).encode(), permissions=0o600)


def has_own_mark(folder: Path, identity: str) -> bool:
    """Whether a home was made by this user on this machine, and is no copy."""
    try:
        by_key, _, by_file = (folder / _FILE).read_text().partition("\n")
    except (OSError, ValueError):
        return False
    key = _user_key(is_made=False)
    return (key is not None and by_key == _mark_by_key(key, identity)) or by_file == _mark_by_file(folder)


def _mark_by_key(key: bytes, identity: str) -> str:
    return hashlib.blake2b(identity.encode(), key=key, digest_size=32).hexdigest()


def _mark_by_file(folder: Path) -> str:
    """Names the user, and the owner, inode and time of the last change of the file `id`; with the machine, if known."""
    about = (folder / "id").stat()
    facts = f"{os.geteuid()}:{about.st_uid}:{about.st_ino}:{about.st_ctime_ns}:{_machine()}"
    return hashlib.blake2b(facts.encode(), digest_size=32, person=b"relive home").hexdigest()


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except (OSError, ValueError):
        return ""


def _user_key(*, is_made: bool) -> bytes | None:
    """Returns the user's key; None if there is none, and none can be made."""
    path = state_folder() / "key"
    try:
        if is_made and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_once(path, os.urandom(_KEY_BYTES), permissions=0o600)
        key = path.read_bytes()
    except OSError:  # a read-only or missing folder: the second mark serves
        return None
    return key if len(key) == _KEY_BYTES else None
