"""The other side of the wire: what a server is asked, over one connection that is kept open.

Nothing here tries again by itself. `ServerUnreachable` says that later is worth a try, `RequestRefused` that it is not.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from relive.errors import NotFound, QueryError, ReliveError
from relive.store.home import JournalName

CONNECT_S = 5.0
ANSWER_S = 30.0
MAX_ANSWER_BYTES = 64 << 20
NAMES_A_REQUEST = 1_000


class ServerUnreachable(ReliveError):
    """The server can't be reached or has no time; `retry_after_s` if it said when."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestRefused(ReliveError):
    """The server understood, and won't."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Position:
    """How far the server has a journal; `accepted` is false if a range did not fit and was not taken."""

    slots: int
    lines: int
    accepted: bool = True
    pause_s: float = 0.0  # how long the server would like us to wait before we send more


@contextlib.contextmanager
def with_remedy() -> Iterator[None]:
    """What a server refuses, as the error that a home would raise; one that is away with what to do."""
    try:
        yield
    except ServerUnreachable as error:
        raise ServerUnreachable(
            f"{error}; try again when it is there, or name a home instead", error.retry_after_s
        ) from error
    except RequestRefused as error:
        kind = {400: QueryError, 404: NotFound}.get(error.status)
        if kind is None:
            raise
        raise kind(str(error)) from error


class ServerClient:
    """A server. Not for several threads at once. Who asks now and then does not keep the connection open in between."""

    def __init__(self, url: str, token: str = "", *, answer_s: float = ANSWER_S, keeps_open: bool = True) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ReliveError(f"server {url!r} is no address; write it like http://host:5005")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._base = parts.path.rstrip("/")
        self._answer_s, self._keeps_open = answer_s, keeps_open
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=CONNECT_S, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=CONNECT_S)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        self._connection.close()

    # --- what is asked --------------------------------------------------------------------------------------------

    def position(self, run: str, journal: JournalName) -> Position:
        """How much of a journal the server has."""
        answer = self.get(f"/api/runs/{run}/journals/{journal.stem}")
        return Position(answer["slots"], answer["lines"])

    def append(
        self, run: str, journal: JournalName, at: Position, slots: bytes, lines: bytes, *, final: bool = False
    ) -> Position:
        """Send a range. Once this returns `accepted`, the server has it on disk."""
        import xxhash
        import zstandard

        plain = slots + lines
        where = {
            "slots": at.slots, "slots_bytes": len(slots), "lines": at.lines, "lines_bytes": len(lines),
            "digest": xxhash.xxh3_128_hexdigest(plain), "final": int(final),
        }  # fmt: skip
        body = zstandard.compress(plain, 1) if plain else b""
        encoding = {"Content-Encoding": "zstd"} if plain else {}
        path = f"/api/runs/{run}/journals/{journal.stem}?{urlencode(where)}"
        status, answer = self._ask("POST", path, body, encoding, wanted=(200, 409))
        pause_s = float(answer.get("pause_s", 0.0))
        return Position(answer["slots"], answer["lines"], accepted=status == 200, pause_s=pause_s)

    def missing_chunks(self, names: Iterable[str]) -> list[str]:
        """Those of some chunks that the server has not."""
        wanted = sorted(names)
        found: list[str] = []
        for start in range(0, len(wanted), NAMES_A_REQUEST):
            body = msgspec.json.encode({"names": wanted[start : start + NAMES_A_REQUEST]})
            found += self._ask("POST", "/api/chunks/missing", body, {"Content-Type": "application/json"})[1]["missing"]
        return found

    def chunk_position(self, name: str) -> int | None:
        """How many bytes of a chunk's file the server has; None when it has all."""
        answer = self.get(f"/api/chunks/{name}/upload")
        return None if answer["complete"] else int(answer["at"])

    def put_chunk(self, name: str, at: int, size: int, part: bytes) -> int | None:
        """Send a part of a chunk's file; gives where to go on, None when the chunk is complete and verified."""
        path = f"/api/chunks/{name}/upload?{urlencode({'at': at, 'size': size})}"
        _, answer = self._ask("PUT", path, part, {"Content-Type": "application/octet-stream"}, wanted=(200, 409))
        return None if answer["complete"] else int(answer["at"])

    def missing_packs(self, sizes: Mapping[str, int]) -> list[str]:
        """Those of some packs that the server has not."""
        wanted, found = list(sizes.items()), []
        for start in range(0, len(wanted), NAMES_A_REQUEST):
            found += self.send("POST", "/api/packs/missing", {"packs": dict(wanted[start : start + NAMES_A_REQUEST])})[
                "missing"
            ]
        return found

    def pack_position(self, name: str, digest: str, size: int) -> int | None:
        """How many bytes of a pack the server has; None when it has all."""
        answer = self.get(f"/api/packs/{name}/upload", digest=digest, size=size)
        return None if answer["complete"] else int(answer["at"])

    def put_pack(self, name: str, digest: str, *, at: int, size: int, part: bytes) -> int | None:
        """Send a part of a pack; gives where to go on, None when it is complete and verified."""
        path = f"/api/packs/{name}/upload?{urlencode({'digest': digest, 'at': at, 'size': size})}"
        _, answer = self._ask("PUT", path, part, {"Content-Type": "application/octet-stream"}, wanted=(200, 409))
        return None if answer["complete"] else int(answer["at"])

    def get(self, path: str, **query: Any) -> Any:
        asked = f"{path}?{urlencode(query)}" if query else path
        return self._ask("GET", quote(asked, safe="/?&=%+:,~"))[1]

    def send(self, method: str, path: str, content: Any = None) -> Any:
        """Ask for a change, told as JSON."""
        body, kind = msgspec.json.encode(content), {"Content-Type": "application/json"}
        return self._ask(method, quote(path), body, kind, wanted=(200, 201))[1]

    def content(self, path: str, limit_bytes: int) -> bytes:
        """The bytes at an address, whatever they are."""
        return self._answer("GET", path, None, {}, (200,), limit_bytes)[1]

    # --- how ------------------------------------------------------------------------------------------------------

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}, wanted: Any = (200,)
    ) -> tuple[int, Any]:
        status, raw = self._answer(method, path, body, headers, wanted)
        return status, _decoded(raw, self.url)

    def _answer(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], wanted: Any,
        limit_bytes: int = MAX_ANSWER_BYTES,
    ) -> tuple[int, bytes]:  # fmt: skip
        every = {**self._headers, **headers}
        status, retry_after, raw = self._exchange(method, self._base + path, body, every, limit_bytes)
        if status in wanted:
            return status, raw
        message = _told(raw) or http.client.responses.get(status, "")
        if status == 429 or status >= 500:
            raise ServerUnreachable(f"{self.url} answered {status}: {message}", _seconds(retry_after))
        raise RequestRefused(f"{self.url} answered {status}: {message}", status)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], limit_bytes: int
    ) -> tuple[int, str | None, bytes]:
        connection = self._connection
        try:
            if connection.sock is None:
                connection.timeout = CONNECT_S
                connection.connect()
            connection.sock.settimeout(self._answer_s)
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            too_long = (answer.length or 0) > limit_bytes
            # With a length that was told, reading all of it notices when the connection ends early.
            raw = b"" if too_long else answer.read(None if answer.length is not None else limit_bytes + 1)
            if too_long or len(raw) > limit_bytes:
                raise http.client.HTTPException("its answer is too long")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServerUnreachable(f"{self.url} can't be reached ({str(error) or type(error).__name__})") from error
        if not self._keeps_open:
            connection.close()
        return answer.status, answer.headers.get("Retry-After"), raw


def _decoded(raw: bytes, url: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ServerUnreachable(f"{url} answered something that is no relive server's answer") from error


def _told(raw: bytes) -> str:
    try:
        return str(msgspec.json.decode(raw)["error"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None
