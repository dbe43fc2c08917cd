"""Who may do what: tokens with scopes, of which only hashes are kept.

A token is `relive_`, its id, `_`, and 256 random bits. With so many, a plain hash is as good as a slow one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from relive.errors import NotFound, ReliveError

SCOPES = ("write", "read", "promote", "admin")
PREFIX = "relive"
_ID_BYTES = 5
_SECRET_BYTES = 32
MAX_TOKEN_CHARS = 200
MAX_NAME_CHARS = 100
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")  # where a server may be open


class Token(msgspec.Struct, frozen=True):
    """What is known of a token: everything but the token."""

    id: str
    name: str
    scopes: tuple[str, ...]
    hash: str
    created_s: int

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


ANYBODY = Token("open", "anybody on this machine", ("admin",), "", 0)  # of a server that was started with --open
_decode = msgspec.json.Decoder(list[Token]).decode


class Tokens:
    """The tokens of a store. What the command line changes holds at once for a server that runs."""

    def __init__(self, store: Path) -> None:
        self._path = store / "tokens.json"
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, Token] = {}

    def create(self, name: str, scopes: Iterable[str]) -> tuple[str, Token]:
        """A new token, which can't be shown again, and what is kept of it."""
        chosen = tuple(sorted(set(scopes), key=SCOPES.index))
        if not chosen:
            raise ReliveError(f"a token without a scope is good for nothing; choose from {', '.join(SCOPES)}")
        if not name.strip() or len(name) > MAX_NAME_CHARS:
            raise ReliveError(f"give the token a name of 1 to {MAX_NAME_CHARS} characters that says whose it is")
        number = secrets.token_hex(_ID_BYTES)
        word = f"{PREFIX}_{number}_{secrets.token_urlsafe(_SECRET_BYTES)}"
        token = Token(number, name, chosen, _hash(word), int(time.time()))
        with self._changing() as known:
            known.append(token)
        return word, token

    def remove(self, word: str) -> Token:
        """Take back the token with this id or name."""
        with self._changing() as known:
            found = [token for token in known if word in (token.id, token.name)]
            if len(found) != 1:
                what = "no token" if not found else "more than one token"
                raise NotFound(f"{what} {word!r}; `relive token ls` lists them")
            known.remove(found[0])
        return found[0]

    def all(self) -> list[Token]:
        self._refresh()
        return list(self._known.values())

    def find(self, word: str) -> Token | None:
        """The token that somebody showed, if it is one."""
        self._refresh()
        parts = word.split("_", 2)
        if len(word) > MAX_TOKEN_CHARS or len(parts) != 3:
            return None
        token = self._known.get(parts[1])
        # The same work is done for an id that is not there.
        is_right = hmac.compare_digest(_hash(word), token.hash if token else _hash(""))
        return token if is_right else None

    def _refresh(self) -> None:
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            self._seen, self._known = None, {}
            return
        seen = facts.st_mtime_ns, facts.st_size, facts.st_ino
        if seen != self._seen:
            self._seen, self._known = seen, {token.id: token for token in self._read()}

    def _read(self) -> list[Token]:
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except msgspec.DecodeError as error:
            raise ReliveError(
                f"{self._path} can't be read ({error}); restore it, or remove it and make new tokens"
            ) from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The list of tokens to be changed; it is on disk, whole, when this is left."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (self._path.parent / "tokens.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self._read()
            yield known
            partial = self._path.with_name(".tokens.json")
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            partial.rename(self._path)


def _hash(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()
