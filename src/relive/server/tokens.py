"""API tokens with scopes, of which only hashes are stored.

A token is `relive_`, its id, `_`, and 256 random bits. With that much entropy a fast hash is as safe as a slow one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from relive.errors import Damaged, NotFound, ReliveError
from relive.store import read_sealed, write_sealed

SCOPES = ("write", "read", "promote", "replay", "admin")
PREFIX = "relive"
_ID_BYTES = 5
_SECRET_BYTES = 32
MAX_TOKEN_CHARS = 200
MAX_NAME_CHARS = 100
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")  # hosts that --open may listen on


class Token(msgspec.Struct, frozen=True):
    """What is stored of a token: everything but its secret."""

    id: str
    name: str
    scopes: tuple[str, ...]
    hash: str
    created_s: int
    projects: tuple[str, ...] = ()  # the only projects whose runs it may write and read; empty means all
    expires_s: int | None = None
    old_hash: str = ""  # of the secret before the last rotation, valid until `old_until_s`
    old_until_s: int = 0

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def is_expired(self, now_s: float) -> bool:
        return self.expires_s is not None and now_s >= self.expires_s


# The token of every request to a server started with --open.
OPEN_ACCESS = Token("open", "anybody on this machine", ("admin",), "", 0)
# The user of `relive ui`, whose secret is in memory only; `replay` runs code of the project, as the user may.
LOCAL_SCOPES = ("read", "promote", "replay")
LOCAL_ID = "local"
_decode_tokens = msgspec.json.Decoder(list[Token]).decode


def local_token(user: str) -> Token:
    """Returns the token of the one user of `relive ui`."""
    return Token(LOCAL_ID, user, LOCAL_SCOPES, "", 0)


class Tokens:
    """The tokens of a store. A running server sees changes by the command line at once."""

    def __init__(self, store: Path) -> None:
        self.folder = store
        self._path = store / "tokens.json"
        self._file_stamp: tuple[int, int, int] | None = None
        self._tokens_by_id: dict[str, Token] = {}

    def create(
        self, name: str, scopes: Iterable[str], *, projects: Iterable[str] = (), expires_in_s: float | None = None
    ) -> tuple[str, Token]:
        """Creates a token; returns its text, which can't be shown again, and what is stored of it."""
        sorted_scopes = tuple(sorted(set(scopes), key=SCOPES.index))
        if not sorted_scopes:
            raise ReliveError(f"a token needs at least one scope; choose from {', '.join(SCOPES)}")
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise ReliveError(f"a token needs a name of 1 to {MAX_NAME_CHARS} characters; use the name of its owner")
        bound_to = tuple(sorted(set(projects)))
        if bound_to and "admin" in sorted_scopes:
            raise ReliveError("the scope admin is for all projects; leave out --project, or choose other scopes")
        token_id, now_s = secrets.token_hex(_ID_BYTES), int(time.time())
        text = _new_text(token_id)
        expires_s = None if expires_in_s is None else now_s + int(expires_in_s)
        token = Token(token_id, name, sorted_scopes, _token_hash(text), now_s, bound_to, expires_s)
        with self._editing() as known:
            known.append(token)
        return text, token

    def rotate(self, word: str, *, grace_s: float = 0.0) -> tuple[str, Token]:
        """Gives the token with this id or name a new secret; the old one stays valid for `grace_s` seconds.

        Its id stays, so it still owns its runs.
        """
        with self._editing() as known:
            old = _find_one(known, word)
            text = _new_text(old.id)
            new = msgspec.structs.replace(
                old, hash=_token_hash(text), old_hash=old.hash if grace_s > 0 else "",
                old_until_s=int(time.time() + grace_s) if grace_s > 0 else 0,
            )  # fmt: skip
            known[known.index(old)] = new
        return text, new

    def remove(self, word: str) -> Token:
        """Revokes the token with this id or name."""
        with self._editing() as known:
            found = _find_one(known, word)
            known.remove(found)
        return found

    def all(self) -> list[Token]:
        self._refresh()
        return list(self._tokens_by_id.values())

    def find(self, text: str) -> Token | None:
        """Returns the token with this text, or None."""
        self._refresh()
        parts = text.split("_", 2)
        if len(text) > MAX_TOKEN_CHARS or len(parts) != 3:
            return None
        token = self._tokens_by_id.get(parts[1])
        given, now_s = _token_hash(text), time.time()
        # An unknown id takes the same time as a known one, and an old secret the same time as the new one.
        is_right = hmac.compare_digest(given, token.hash if token else _token_hash(""))
        is_old = hmac.compare_digest(given, token.old_hash if token else _token_hash(""))
        if token is None or token.is_expired(now_s):
            return None
        return token if is_right or (is_old and now_s < token.old_until_s) else None

    def _refresh(self) -> None:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            self._file_stamp, self._tokens_by_id = None, {}
            return
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        if stamp != self._file_stamp:
            self._file_stamp, self._tokens_by_id = stamp, {token.id: token for token in self._read()}

    def _read(self) -> list[Token]:
        try:
            return _decode_tokens(read_sealed(self._path))
        except FileNotFoundError:
            return []
        except (ValueError, Damaged) as error:
            raise Damaged(
                f"{self._path} can't be read ({error}); restore it, or remove it and create new tokens"
            ) from error

    @contextlib.contextmanager
    def _editing(self) -> Iterator[list[Token]]:
        """Yields the list of tokens to be changed, under a lock; writes it atomically on exit."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._path.parent / "tokens.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self._read()
            yield known
            content = msgspec.json.format(msgspec.json.encode(known), indent=2)
            write_sealed(self._path, content, permissions=0o600)


def _new_text(token_id: str) -> str:
    return f"{PREFIX}_{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _find_one(known: list[Token], word: str) -> Token:
    found = [token for token in known if word in (token.id, token.name)]
    if len(found) != 1:
        what = "no token" if not found else "more than one token"
        raise NotFound(f"{what} {word!r}; `relive token ls` lists them")
    return found[0]


def _token_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
