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

from relive.errors import NotFound, ReliveError
from relive.store import atomic_write

SCOPES = ("write", "read", "promote", "admin")
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

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


# The token of every request to a server started with --open.
OPEN_ACCESS = Token("open", "anybody on this machine", ("admin",), "", 0)
_decode_tokens = msgspec.json.Decoder(list[Token]).decode


class Tokens:
    """The tokens of a store. A running server sees changes by the command line at once."""

    def __init__(self, store: Path) -> None:
        self._path = store / "tokens.json"
        self._file_stamp: tuple[int, int, int] | None = None
        self._tokens_by_id: dict[str, Token] = {}

    def create(self, name: str, scopes: Iterable[str]) -> tuple[str, Token]:
        """Creates a token; returns its text, which can't be shown again, and what is stored of it."""
        sorted_scopes = tuple(sorted(set(scopes), key=SCOPES.index))
        if not sorted_scopes:
            raise ReliveError(f"a token needs at least one scope; choose from {', '.join(SCOPES)}")
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise ReliveError(f"a token needs a name of 1 to {MAX_NAME_CHARS} characters; use the name of its owner")
        token_id = secrets.token_hex(_ID_BYTES)
        text = f"{PREFIX}_{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        token = Token(token_id, name, sorted_scopes, _token_hash(text), int(time.time()))
        with self._editing() as known:
            known.append(token)
        return text, token

    def remove(self, text: str) -> Token:
        """Revokes the token with this id or name."""
        with self._editing() as known:
            found = [token for token in known if text in (token.id, token.name)]
            if len(found) != 1:
                what = "no token" if not found else "more than one token"
                raise NotFound(f"{what} {text!r}; `relive token ls` lists them")
            known.remove(found[0])
        return found[0]

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
        # An unknown id takes the same time as a known one.
        is_right = hmac.compare_digest(_token_hash(text), token.hash if token else _token_hash(""))
        return token if is_right else None

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
            return _decode_tokens(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except msgspec.DecodeError as error:
            raise ReliveError(
                f"{self._path} can't be read ({error}); restore it, or remove it and create new tokens"
            ) from error

    @contextlib.contextmanager
    def _editing(self) -> Iterator[list[Token]]:
        """Yields the list of tokens to be changed, under a lock; writes it atomically on exit."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (self._path.parent / "tokens.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self._read()
            yield known
            content = msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n"
            atomic_write(self._path, content, permissions=0o600)


def _token_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
