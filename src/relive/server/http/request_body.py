"""Reads and decompresses request bodies, bounded in size before and after decompression, and in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec
import zstandard
from starlette.requests import ClientDisconnect, Request

from relive.server.http.admission import lease_of
from relive.server.http.error_responses import HttpError

BODY_BYTES = 20 << 20  # the longest journal line fits
BODY_S = 30.0  # for a whole body, and more for a long one
MIN_BYTES_PER_S = 32 << 10
T = TypeVar("T")
_MAX_WINDOW_BYTES = 64 << 20


async def read_body(request: Request, limit_bytes: int = BODY_BYTES) -> bytes:
    """Returns the whole body; raises if it is too long or arrives too slowly."""
    lease = lease_of(request)
    length = request.headers.get("content-length")
    if length is not None and length.isdecimal() and int(length) > limit_bytes:
        raise HttpError(413, f"the body has {length} bytes, more than {limit_bytes}; send it in parts")
    pieces: list[bytes] = []
    size = 0
    async for piece in _receive_pieces(request):
        size += len(piece)
        if size > limit_bytes:
            raise HttpError(413, f"the body is longer than {limit_bytes} bytes; send it in parts")
        lease.hold(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


async def _receive_pieces(request: Request) -> AsyncIterator[bytes]:
    stream = request.stream()
    end_s = time.monotonic() + BODY_S
    while True:
        try:
            async with asyncio.timeout(end_s - time.monotonic()):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise HttpError(408, "the body arrived too slowly; send it again") from None
        except ClientDisconnect:
            raise HttpError(400, "the connection was closed before the body was complete; send it again") from None
        end_s += len(piece) / MIN_BYTES_PER_S
        yield piece


async def decode_json_body(request: Request, shape: type[T], limit_bytes: int, remedy: str) -> T:
    """Returns a body of JSON as a value of this type; `remedy` ends the error if it is something else."""
    raw = await read_body(request, limit_bytes)
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise HttpError(422, f"{error}; {remedy}") from error


def decompress_body(body: bytes, encoding: str, size: int) -> bytes:
    """Returns the decompressed body; raises if its size is not the announced one."""
    if encoding in ("", "identity"):
        plain = body
    elif encoding == "zstd":
        plain = _decompress_zstd(body, size)
    else:
        raise HttpError(415, f"Content-Encoding {encoding[:40]!r} is not supported; use zstd or none")
    if len(plain) != size:
        raise HttpError(422, f"the body has {len(plain)} bytes, not the {size} announced; send it again")
    return plain


def _decompress_zstd(body: bytes, size: int) -> bytes:
    try:
        # The size in the frame header decides how much memory is allocated, so it is checked first.
        declared = zstandard.get_frame_parameters(body).content_size
        if declared != size:
            raise HttpError(
                422, f"the compressed body declares {declared} bytes, not the {size} announced; send it again"
            )
        # One for each body: bodies are unpacked in several threads, and a decompressor has a state of its own.
        return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompress(body)
    except zstandard.ZstdError as error:
        raise HttpError(422, f"the body can't be decompressed ({error}); send it again") from error
