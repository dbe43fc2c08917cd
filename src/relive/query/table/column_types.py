"""Which numpy type a column of logged values gets, so that values keep their type and precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relive.query.table.wide_table import Column, Mask, present
from relive.store.catalog import Points
from relive.store.journal import decode_or_describe, from_json, slot_kinds

GetChunk = Callable[[str], bytes]

ABSENT = 0  # the kind of a cell without a logged value
_EXACT_IN_FLOAT = 1 << 53


def _dtype_names() -> dict[int, str]:
    numpy_like = {
        **{k: n for n, k in slot_kinds.NUMPY_KINDS.items()},
        **{k: n for n, k in slot_kinds.TORCH_KINDS.items()},
    }
    widened = {kind: "float32" if name == "bfloat16" else name for kind, name in numpy_like.items()}
    return {slot_kinds.FLOAT: "float64", slot_kinds.INT: "int64", slot_kinds.BOOL: "bool", **widened}


_DTYPES = {kind: np.dtype(name) for kind, name in _dtype_names().items()}
_PYTHON_KINDS = (slot_kinds.FLOAT, slot_kinds.INT, slot_kinds.BOOL)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The values of one column, row by row, before its type is known; `objects` holds the values of kind LINE."""

    kind: NDArray[np.uint8]
    value: NDArray[np.float64]
    exact: NDArray[np.int64]
    objects: NDArray[Any] | None

    def column(self) -> Column:
        """Returns the narrowest column that represents every value: numbers of one family as numbers, else objects."""
        present = np.flatnonzero(np.bincount(self.kind, minlength=256)).tolist()
        here = [kind for kind in present if kind not in (ABSENT, slot_kinds.NONE)]
        dtype = self._common_dtype(here)
        if dtype is None:
            return self._object_column(here)
        valid = None if here == present else ~np.isin(self.kind, (ABSENT, slot_kinds.NONE))
        return Column(self._numbers(dtype, valid), valid)

    def _common_dtype(self, here: Sequence[int]) -> np.dtype[Any] | None:
        """Returns the type that represents all cells exactly; None if there is text, or only Python objects can."""
        if slot_kinds.LINE in here:
            return None
        dtypes = {_DTYPES[kind] for kind in here}
        families = {dtype.kind for dtype in dtypes}
        if len(dtypes) <= 1:
            return next(iter(dtypes), np.dtype(np.float64))
        if "b" in families:
            return None  # True and 1 are different values to the user
        if "f" in families and families != {"f"}:
            return np.dtype(np.float64) if self._integers_fit_float() else None
        common = np.result_type(*dtypes)
        if common.kind == "f" and families != {"f"}:  # int64 and uint64: numpy would round both
            return np.dtype(np.int64) if self._unsigned_fit_signed() else None
        return common

    def _integers_fit_float(self) -> bool:
        whole = self.exact[np.isin(self.kind, list(slot_kinds.INTEGER_KINDS))]
        fit = (whole >= -_EXACT_IN_FLOAT) & (whole <= _EXACT_IN_FLOAT)
        return bool(fit.all()) and self._unsigned_fit_signed()

    def _unsigned_fit_signed(self) -> bool:
        unsigned = np.isin(self.kind, (slot_kinds.NUMPY_KINDS["uint64"], slot_kinds.TORCH_KINDS["uint64"]))
        return bool(np.all(self.exact[unsigned] >= 0))

    def _numbers(self, dtype: np.dtype[Any], valid: Mask | None) -> NDArray[Any]:
        if dtype.kind == "f":
            if valid is None:
                return self.value.astype(dtype, copy=False)
            return np.where(valid, self.value, np.nan).astype(dtype, copy=False)
        exact = self.exact if valid is None else np.where(valid, self.exact, 0)
        return exact.view(np.uint64) if dtype == np.uint64 else exact.astype(dtype, copy=False)

    def _object_column(self, here: Sequence[int]) -> Column:
        out: NDArray[Any] = np.full(len(self.kind), None, dtype=object)
        for kind in here:
            rows = np.flatnonzero(self.kind == kind)
            out[rows] = self._objects_of(kind, rows)
        return Column(out, present(out))

    def _objects_of(self, kind: int, rows: NDArray[Any]) -> NDArray[Any]:
        if kind == slot_kinds.LINE:
            return self.objects[rows] if self.objects is not None else np.full(len(rows), None, dtype=object)
        dtype = _DTYPES[kind]
        source = self.value if dtype.kind == "f" else self.exact.view(np.uint64 if dtype.kind == "u" else np.int64)
        numbers = source[rows].astype(dtype)
        return as_objects(numbers.tolist() if kind in _PYTHON_KINDS else list(numbers))


def as_objects(values: Sequence[Any]) -> NDArray[Any]:
    """An object array of exactly these values: numpy must not look into lists and arrays among them."""
    return np.fromiter(values, dtype=object, count=len(values))


def gather(points: Points, at: NDArray[np.int64], get_chunk: GetChunk) -> Cells:
    """Returns the cells of the points at these positions; a negative position is an absent cell."""
    if len(points) == 0:
        return constant([], np.full(len(at), -1))
    missing = at < 0
    kind = points.kind[at]
    kind[missing] = ABSENT
    text = np.flatnonzero(kind == slot_kinds.LINE)
    objects = _decode_objects(points, at, text, get_chunk) if len(text) else None
    return Cells(kind, points.value[at], points.exact[at], objects)


def constant(values: Sequence[Any], at: NDArray[Any]) -> Cells:
    """Returns the cells of Python values at these positions of `values`; a negative position is an absent cell."""
    slots = [_encode_slot(value) for value in values] + [(ABSENT, np.nan, 0)]
    kind, value, exact = (np.array(part)[at] for part in zip(*slots, strict=True))
    objects = as_objects([*values, None])[at]
    return Cells(kind.astype(np.uint8), value.astype(np.float64), exact.astype(np.int64), objects)


def overlay(below: Cells, above: Cells) -> Cells:
    """Returns the cells of `above` where they are present, else those of `below`."""
    on = above.kind != ABSENT
    objects = None
    if below.objects is not None or above.objects is not None:
        empty = np.full(len(on), None, dtype=object)
        objects = np.where(on, _or(above.objects, empty), _or(below.objects, empty))
    return Cells(
        np.where(on, above.kind, below.kind),
        np.where(on, above.value, below.value),
        np.where(on, above.exact, below.exact),
        objects,
    )


def _or(objects: NDArray[Any] | None, empty: NDArray[Any]) -> NDArray[Any]:
    return empty if objects is None else objects


def _encode_slot(value: Any) -> tuple[int, float, int]:
    """Returns a value as (kind, float, integer); anything but a number that fits a slot is of kind LINE."""
    if value is None:
        return slot_kinds.NONE, np.nan, 0
    if type(value) is float:
        return slot_kinds.FLOAT, value, 0
    if type(value) in (bool, int) and -(1 << 63) <= value < (1 << 63):
        return (slot_kinds.BOOL if type(value) is bool else slot_kinds.INT), float(value), int(value)
    kind = slot_kinds.NUMPY_KINDS.get(value.dtype.name) if isinstance(value, np.generic) else None
    if kind is None:
        return slot_kinds.LINE, np.nan, 0
    if kind in slot_kinds.FLOAT_KINDS:
        return kind, float(value), 0
    return kind, float(value), int(np.array(value).astype(np.uint64).view(np.int64)) if value > 0 else int(value)


def _decode_objects(points: Points, at: NDArray[np.int64], rows: NDArray[Any], get_chunk: GetChunk) -> NDArray[Any]:
    """Returns the objects at `rows`; each point is decoded once even if it is on many rows."""
    objects = np.full(len(at), None, dtype=object)
    if points.text is None:
        return objects
    which, back = np.unique(at[rows], return_inverse=True)
    forms = from_json("[" + ",".join(points.text[which].tolist()) + "]")  # one parse is far faster than many
    objects[rows] = as_objects([decode_or_describe(form, get_chunk) for form in forms])[back]
    return objects
