"""Logged images as PNG, encoded here from their pixels, so that what a browser gets is an image and nothing else."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from relive.errors import Damaged, NotFound, QueryError
from relive.query.media import media_kinds
from relive.query.media.logged_media import HOSTILE, MediaTerms, one_value, safe_kind
from relive.query.media.media_kinds import Array, GetChunk
from relive.store.catalog import Index
from relive.store.chunks import Chunks

MAX_SIDE = 2_048  # of what is sent; larger images are thinned out
MAX_BYTES = 256 << 20  # of the array
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # of PNG, by the number of channels


def read_image(index: Index, terms: MediaTerms, n: int, item: int) -> dict[str, Any]:
    """Returns one image of a value as PNG, in base64."""
    form = one_value(index, terms, n).form
    if safe_kind(form) != media_kinds.IMAGE:
        raise QueryError(f"value {n} of {terms.name!r} is no image; GET /api/runs/{terms.run}/media says what it is")
    try:
        pixels = _pixels(form, item, Chunks(index.home.chunks).get)
        return {"png": base64.b64encode(encode_png(pixels)).decode()}
    except HOSTILE as error:
        raise Damaged("the image is not what was stored; see `relive doctor --deep`") from error


def _pixels(form: Any, item: int, get_chunk: GetChunk) -> Array:
    """Returns bytes in rows, columns and channels."""
    if not 0 <= item < media_kinds.count_images(form):
        raise NotFound(f"there is no image {item} in this value; ask for one of {media_kinds.count_images(form)}")
    if isinstance(form, list):
        form, item = form[item], 0
    facts = media_kinds.array_facts(form)
    if facts.size_bytes > MAX_BYTES:
        raise QueryError(f"the image has {facts.size_bytes} bytes, more than {MAX_BYTES}; log a smaller one")
    array = media_kinds.read_array(form, get_chunk)
    if media_kinds.tag_of(form) == "$image":
        return _fit(_of_mode(array, str(form["$image"].get("mode"))))
    layout = media_kinds.image_layout(facts)
    if layout.startswith("N"):
        array, layout = array[item], layout[1:]
    if layout == "CHW":
        array = array.transpose(1, 2, 0)
    return _fit(array[..., None] if array.ndim == 2 else array)


def _of_mode(array: Array, mode: str) -> Array:
    """Returns the pixels of an image of PIL; those of other modes can't be shown without its colour tables."""
    if mode not in media_kinds.MODES:
        raise QueryError(f"images of mode {mode!r} are not shown; log image.convert('RGB')")
    if mode in ("I", "I;16", "F"):  # of any range
        numbers = array.astype(np.float64)
        low, high = np.nanmin(numbers), np.nanmax(numbers)
        array = (np.nan_to_num(numbers - low) / ((high - low) or 1)).astype(np.float32)
    return array[..., None] if array.ndim == 2 else array


def _fit(array: Array) -> Array:
    """Returns bytes within the bounds of a page."""
    step = max(1, -(-max(array.shape[0], array.shape[1]) // MAX_SIDE))
    array = array[::step, ::step]
    if array.dtype == bool or array.dtype.kind == "f":
        array = np.clip(np.nan_to_num(array.astype(np.float32)) * 255 + 0.5, 0, 255)
    return np.ascontiguousarray(array.astype(np.uint8))


def encode_png(pixels: Array) -> bytes:
    """Returns a PNG file with these bytes as pixels: rows, columns, and 1 to 4 channels."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_part(name, data) for name, data in parts)


def _part(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
