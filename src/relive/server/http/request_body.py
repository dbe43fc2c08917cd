"""How the body of a request is read: never more than is allowed, not even after it is unpacked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import zstandard
from starlette.requests import ClientDisconnect, Request

from relive.server.http.error_responses import Problem

BODY_BYTES = 20 << 20  # the longest line fits
SLOWEST_S = 30.0  # between two pieces of a body
_unpacker = zstandard.ZstdDecompressor(max_window_size=64 << 20)


async def read_body(request: Request, limit_bytes: int = BODY_BYTES) -> bytes:
    """The whole body, if it is not too long and comes in time."""
    told = request.headers.get("content-length")
    if told is not None and told.isdecimal() and int(told) > limit_bytes:
        raise Problem(413, f"the body has {told} bytes, more than {limit_bytes}; send it in parts")
    pieces: list[bytes] = []
    size = 0
    async for piece in _pieces(request):
        size += len(piece)
        if size > limit_bytes:
            raise Problem(413, f"the body is longer than {limit_bytes} bytes; send it in parts")
        pieces.append(piece)
    return b"".join(pieces)


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(SLOWEST_S):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Problem(408, "the body did not come in time; send it again") from None
        except ClientDisconnect:
            raise Problem(400, "the connection was closed before the body was whole; send it again") from None
        yield piece


def unpack(body: bytes, encoding: str, size: int) -> bytes:
    """The body as it was before it was packed; it must have the size that was told."""
    if encoding in ("", "identity"):
        plain = body
    elif encoding == "zstd":
        plain = _unzstd(body, size)
    else:
        raise Problem(415, f"Content-Encoding {encoding[:40]!r} is not known; use zstd or none")
    if len(plain) != size:
        raise Problem(422, f"the body has {len(plain)} bytes, not the {size} that were announced; send it again")
    return plain


def _unzstd(body: bytes, size: int) -> bytes:
    try:
        # The size in the frame decides how much memory is taken, so it is looked at before.
        told = zstandard.get_frame_parameters(body).content_size
        if told != size:
            raise Problem(422, f"the packed body says {told} bytes, not the {size} that were announced; send it again")
        return _unpacker.decompress(body)
    except zstandard.ZstdError as error:
        raise Problem(422, f"the body can't be unpacked ({error}); send it again") from error
