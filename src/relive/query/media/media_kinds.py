"""What a stored value is to a page, told by its form: a text, a table, a histogram, images, or JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.errors import Damaged
from relive.store.journal import decode_value

GetChunk = Callable[[str], bytes]
Array = NDArray[Any]
TEXT, TABLE, HISTOGRAM, IMAGE, JSON = "text", "table", "histogram", "image", "json"
MIN_SIDE = 8  # pixels; what is smaller is an array of numbers
CHANNELS = (1, 3, 4)
MODES = ("1", "L", "LA", "RGB", "RGBA", "I", "I;16", "F")  # of PIL, whose pixels are shown as they are
_TEXTS = ("$text", "$surrogates", "$repr", "$path", "$datetime", "$timestamp")
_PICTURE_TYPES = ("|u1", "|b1")


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What is known of an array before its data is read; `low` and `high` are None if they are not known."""

    shape: tuple[int, ...]
    dtype: Any
    low: float | None
    high: float | None

    @property
    def is_float(self) -> bool:
        return isinstance(self.dtype, str) and self.dtype[1:2] == "f"

    @property
    def size_bytes(self) -> int:
        size = int(self.dtype[2:]) if isinstance(self.dtype, str) and self.dtype[2:].isdigit() else 8
        return math.prod(self.shape) * size


def tag_of(form: Any) -> str:
    """Returns the tag of a stored value; "" if it has none."""
    tag = next(iter(form), "") if isinstance(form, dict) and len(form) == 1 else ""
    return tag if tag.startswith("$") else ""


def kind_of(form: Any) -> str:
    """Returns how a page shows a value."""
    tag = tag_of(form)
    if isinstance(form, str) or tag in _TEXTS:
        return TEXT
    if tag == "$frame":
        return TABLE
    if count_images(form):
        return IMAGE
    if tag == "$array" and array_facts(form).dtype != "|b1" and is_numeric(array_facts(form).dtype):
        return HISTOGRAM
    return HISTOGRAM if counts_and_edges(form) else JSON


def is_numeric(dtype: Any) -> bool:
    return isinstance(dtype, str) and dtype[1:2] in "fiu"


def array_facts(form: Any) -> ArrayFacts:
    """Returns what is known of an array or image; the data is read only if it is stored inline."""
    inner = form[tag_of(form)]
    dtype = "<f4" if inner.get("torch") == "bfloat16" else inner["dtype"]
    shape = tuple(int(side) for side in inner["shape"])
    summary = inner.get("summary") or {}
    low, high = summary.get("min"), summary.get("max")
    if "data" in inner and is_numeric(dtype):
        numbers = read_array(form, _no_chunk).astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return ArrayFacts(shape, dtype, low, high)


def counts_and_edges(form: Any) -> tuple[Any, Any] | None:
    """Returns the parts of a histogram as `numpy.histogram` returns it: counts, and one edge more than counts."""
    parts = form["$tuple"] if tag_of(form) == "$tuple" else None
    if not isinstance(parts, list) or len(parts) != 2 or any(tag_of(part) != "$array" for part in parts):
        return None
    counts, edges = (array_facts(part) for part in parts)
    fits = len(counts.shape) == len(edges.shape) == 1 and edges.shape[0] == counts.shape[0] + 1
    return (parts[0], parts[1]) if fits and is_numeric(counts.dtype) and is_numeric(edges.dtype) else None


# --- images -----------------------------------------------------------------------------------------------------------


def count_images(form: Any) -> int:
    """Returns how many images a value has: an image, an array or tensor of its shape, a batch or a list of them."""
    if isinstance(form, list):
        return len(form) if form and all(count_images(item) == 1 for item in form) else 0
    tag = tag_of(form)
    if tag == "$image":
        return 1
    layout = image_layout(array_facts(form)) if tag == "$array" else ""
    return array_facts(form).shape[0] if layout.startswith("N") else int(bool(layout))


def image_layout(facts: ArrayFacts) -> str:
    """Returns the meaning of the dimensions of an array that is shown as images, like "HWC" or "NCHW", or "".

    Bytes are pixels; floats are if all are between 0 and 1 and there is a dimension of 1, 3 or 4 channels.
    """
    if facts.dtype not in _PICTURE_TYPES and not _is_unit(facts):
        return ""
    shape = facts.shape
    if len(shape) == 2:
        return "HW" if facts.dtype in _PICTURE_TYPES and min(shape) >= MIN_SIDE else ""
    if len(shape) not in (3, 4):
        return ""
    batch, (a, b, c) = ("N", shape[1:]) if len(shape) == 4 else ("", shape)
    if c in CHANNELS and min(a, b) >= MIN_SIDE:
        return f"{batch}HWC"
    return f"{batch}CHW" if a in CHANNELS and min(b, c) >= MIN_SIDE else ""


def _is_unit(facts: ArrayFacts) -> bool:
    low, high = facts.low, facts.high
    return facts.is_float and low is not None and high is not None and low >= 0 and high <= 1


# --- reading ----------------------------------------------------------------------------------------------------------


def read_array(form: Any, get_chunk: GetChunk) -> Array:
    """Returns the array of a form; raises `Damaged` if its parts do not fit together."""
    try:
        found: Array = decode_value(form, get_chunk)
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"the array is not what was stored ({error}); see `relive doctor --deep`") from error
    return found


def _no_chunk(_name: str) -> bytes:
    raise Damaged("the array has no data of its own; see `relive doctor --deep`")
