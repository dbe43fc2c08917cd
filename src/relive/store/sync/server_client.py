"""The HTTP client of a relive server: all requests, over one connection that is kept open.

Nothing here retries by itself. `ServerUnreachable` means that a later attempt may succeed, `RequestRefused` that none
will.
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
from relive.store.console import ConsoleHeld
from relive.store.home import JournalName

CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 30.0
MAX_RESPONSE_BYTES = 64 << 20
NAMES_PER_REQUEST = 1_000
_JSON = {"Content-Type": "application/json"}
_BYTES = {"Content-Type": "application/octet-stream"}


class ServerUnreachable(ReliveError):
    """The server can't be reached or is busy; `retry_after_s` is the delay it asked for, if any."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestRefused(ReliveError):
    """The server refused a request; repeating it is useless."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Position:
    """How much of a journal the server has; `accepted` is false if a range left a gap and was not stored."""

    slots: int
    lines: int
    accepted: bool = True
    pause_s: float = 0.0  # how long the server asks us to wait before we send more


@contextlib.contextmanager
def translate_server_errors() -> Iterator[None]:
    """Turns refusals into the errors that a home would raise, and adds the remedy if the server is unreachable."""
    try:
        yield
    except ServerUnreachable as error:
        raise ServerUnreachable(
            f"{error}; try again when it is up, or name a home instead", error.retry_after_s
        ) from error
    except RequestRefused as error:
        kind = {400: QueryError, 404: NotFound}.get(error.status)
        if kind is None:
            raise
        raise kind(str(error)) from error


class ServerClient:
    """A connection to a server, for one thread. With `keeps_open=False` it is closed after each request."""

    def __init__(
        self, url: str, token: str = "", *, response_timeout_s: float = RESPONSE_TIMEOUT_S, keeps_open: bool = True
    ) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ReliveError(f"server {url!r} is not an address; write it like http://host:5005")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._base = parts.path.rstrip("/")
        self._response_timeout_s, self._keeps_open = response_timeout_s, keeps_open
        if parts.scheme == "https":
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=CONNECT_TIMEOUT_S, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=CONNECT_TIMEOUT_S)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        self._connection.close()

    # --- requests -------------------------------------------------------------------------------------------------

    def position(self, run: str, journal: JournalName) -> Position:
        """Returns how much of a journal the server has."""
        answer = self.get(f"/api/runs/{run}/journals/{journal.stem}")
        return Position(answer["slots"], answer["lines"])

    def append(
        self, run: str, journal: JournalName, at: Position, slots: bytes, lines: bytes, *, final: bool = False
    ) -> Position:
        """Sends a range. Once this returns `accepted`, the server has it on disk."""
        import xxhash
        import zstandard

        plain = slots + lines
        query = {
            "slots": at.slots, "slots_bytes": len(slots), "lines": at.lines, "lines_bytes": len(lines),
            "digest": xxhash.xxh3_128_hexdigest(plain), "final": int(final),
        }  # fmt: skip
        body = zstandard.compress(plain, 1) if plain else b""
        encoding = {"Content-Encoding": "zstd"} if plain else {}
        path = f"/api/runs/{run}/journals/{journal.stem}?{urlencode(query)}"
        status, answer = self._request("POST", path, body, encoding, expected=(200, 409))
        if "differs" in answer:
            raise RequestRefused(f"{self.url} answered {status}: {answer.get('error')}", status)
        pause_s = float(answer.get("pause_s", 0.0))
        return Position(answer["slots"], answer["lines"], accepted=status == 200, pause_s=pause_s)

    def console_held(self, run: str, file: str) -> ConsoleHeld | None:
        """Returns how much of a console file the server has; None if it is of a version that takes none."""
        try:
            answer = self.get(f"/api/runs/{run}/console/{file}")
        except RequestRefused as error:
            if error.status in (404, 405):
                return None
            raise
        return ConsoleHeld(int(answer["bytes"]), str(answer["digest"]), bool(answer["final"]))

    def put_console(self, run: str, file: str, at: int, piece: bytes) -> ConsoleHeld:
        """Sends a piece of a console file, which replaces what is there if it begins at 0."""
        import zstandard

        body = zstandard.compress(piece, 1) if piece else b""
        encoding = {"Content-Encoding": "zstd"} if piece else {}
        path = f"/api/runs/{run}/console/{file}?{urlencode({'at': at, 'bytes': len(piece)})}"
        answer = self._request("PUT", path, body, {**_BYTES, **encoding}, expected=(200, 409))[1]
        return ConsoleHeld(int(answer["bytes"]), is_final=bool(answer["final"]))

    def missing_chunks(self, names: Iterable[str]) -> list[str]:
        """Returns the chunks that the server lacks, out of some."""
        in_order = sorted(names)
        missing: list[str] = []
        for start in range(0, len(in_order), NAMES_PER_REQUEST):
            body = msgspec.json.encode({"names": in_order[start : start + NAMES_PER_REQUEST]})
            missing += self._request("POST", "/api/chunks/missing", body, _JSON)[1]["missing"]
        return missing

    def chunk_position(self, name: str) -> int | None:
        """Returns how many bytes of a chunk's file the server has; None when it has all."""
        answer = self.get(f"/api/chunks/{name}/upload")
        return _resume_offset(answer)

    def put_chunk(self, name: str, at: int, size: int, part: bytes) -> int | None:
        """Sends a part of a chunk's file; returns where to continue, None when the chunk is complete and verified."""
        path = f"/api/chunks/{name}/upload?{urlencode({'at': at, 'size': size})}"
        _, answer = self._request("PUT", path, part, _BYTES, expected=(200, 409))
        return _resume_offset(answer)

    def missing_packs(self, sizes: Mapping[str, int]) -> list[str]:
        """Returns the packs that the server lacks, out of some."""
        packs, missing = list(sizes.items()), []
        for start in range(0, len(packs), NAMES_PER_REQUEST):
            content = {"packs": dict(packs[start : start + NAMES_PER_REQUEST])}
            missing += self.send("POST", "/api/packs/missing", content)["missing"]
        return missing

    def pack_position(self, name: str, digest: str, size: int) -> int | None:
        """Returns how many bytes of a pack the server has; None when it has all."""
        answer = self.get(f"/api/packs/{name}/upload", digest=digest, size=size)
        return _resume_offset(answer)

    def put_pack(self, name: str, digest: str, *, at: int, size: int, part: bytes) -> int | None:
        """Sends a part of a pack; returns where to continue, None when the pack is complete and verified."""
        path = f"/api/packs/{name}/upload?{urlencode({'digest': digest, 'at': at, 'size': size})}"
        _, answer = self._request("PUT", path, part, _BYTES, expected=(200, 409))
        return _resume_offset(answer)

    def get(self, path: str, **query: Any) -> Any:
        """Returns the decoded JSON response to a GET request."""
        target = f"{path}?{urlencode(query)}" if query else path
        return self._request("GET", quote(target, safe="/?&=%+:,~"))[1]

    def send(self, method: str, path: str, content: Any = None) -> Any:
        """Requests a change with JSON content; returns the decoded response."""
        return self._request(method, quote(path), msgspec.json.encode(content), _JSON, expected=(200, 201))[1]

    def content(self, path: str, limit_bytes: int) -> bytes:
        """Returns the undecoded bytes of a response to a GET request."""
        return self._exchange("GET", path, None, {}, (200,), limit_bytes)[1]

    # --- transport ------------------------------------------------------------------------------------------------

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}, expected: Any = (200,)
    ) -> tuple[int, Any]:
        status, raw = self._exchange(method, path, body, headers, expected)
        return status, _decode_json(raw, self.url)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], expected: Any,
        limit_bytes: int = MAX_RESPONSE_BYTES,
    ) -> tuple[int, bytes]:  # fmt: skip
        all_headers = {**self._headers, **headers}
        status, retry_after, raw = self._send_and_receive(method, self._base + path, body, all_headers, limit_bytes)
        if status in expected:
            return status, raw
        message = _error_message(raw) or http.client.responses.get(status, "")
        if status == 429 or status >= 500:
            raise ServerUnreachable(f"{self.url} answered {status}: {message}", _parse_seconds(retry_after))
        raise RequestRefused(f"{self.url} answered {status}: {message}", status)

    def _send_and_receive(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], limit_bytes: int
    ) -> tuple[int, str | None, bytes]:
        connection = self._connection
        try:
            if connection.sock is None:
                connection.timeout = CONNECT_TIMEOUT_S
                connection.connect()
            connection.sock.settimeout(self._response_timeout_s)
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            too_long = (response.length or 0) > limit_bytes
            # With a known length, reading all of it raises an error when the connection ends early.
            raw = b"" if too_long else response.read(None if response.length is not None else limit_bytes + 1)
            if too_long or len(raw) > limit_bytes:
                raise http.client.HTTPException("its response is too long")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServerUnreachable(f"{self.url} can't be reached ({str(error) or type(error).__name__})") from error
        if not self._keeps_open:
            connection.close()
        return response.status, response.headers.get("Retry-After"), raw


def _resume_offset(answer: dict[str, Any]) -> int | None:
    """Returns where an upload continues; None when it is complete."""
    return None if answer["complete"] else int(answer["at"])


def _decode_json(raw: bytes, url: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ServerUnreachable(f"{url} sent a response that is not from a relive server; check the address") from error


def _error_message(raw: bytes) -> str:
    """Returns the text of the server's error; empty when the response has none."""
    try:
        return str(msgspec.json.decode(raw)["error"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _parse_seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None
