"""Kinds of objects that checkpoints hold: how each is built and changed, and what is looked at afterwards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pandas = pytest.importorskip("pandas")

Things = dict[str, Any]
Kind = tuple[Callable[[], Things], Callable[[Things], None], Callable[[Things], Any]]  # build, change, view
KINDS: dict[str, Kind] = {}


def kind(make: Callable[[], Kind]) -> Callable[[], Kind]:
    KINDS[make.__name__] = make()
    return make


class Box:
    """An object that holds anything."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def seen(value: Any) -> Any:
    """A value that compares by bits and types: arrays and tensors as lists, containers with their classes."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        if plain.layout is not torch.strided:
            return "sparse", plain.is_coalesced(), seen(plain.coalesce().indices()), seen(plain.coalesce().values())
        return type(value).__name__, str(plain.dtype), tuple(plain.shape), value.requires_grad, plain.tolist()
    if isinstance(value, np.ma.MaskedArray):
        return "masked", value.dtype.str, seen(value.data), seen(np.ma.getmaskarray(value)), repr(value.fill_value)
    if isinstance(value, np.ndarray):
        return type(value).__name__, str(value.dtype), value.shape, seen(value.tolist())
    if isinstance(value, pandas.DataFrame | pandas.Series):
        return (
            type(value).__name__,
            value.to_json(orient="split", date_format="iso"),
            str(value.dtypes),
            repr(value.attrs),
        )
    if isinstance(value, dict):
        return type(value).__name__, [(seen(key), seen(one)) for key, one in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, getattr(value, "maxlen", None), [seen(one) for one in value]
    return type(value).__name__, repr(value) if isinstance(value, float) else value
