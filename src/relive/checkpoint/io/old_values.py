"""Values in checkpoints of earlier releases: trees of JSON that refer to tensors and to pickles by number."""

from __future__ import annotations

import io
import pickle
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from relive.checkpoint.plain import NotTyped, load_plain_pickle
from relive.errors import ReliveError, Untrusted
from relive.store.journal import decode_value

Json = Any
_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "$list": list, "$tuple": tuple, "$set": set, "$frozenset": frozenset, "$deque": deque,
    "$dict": dict, "$ordered": OrderedDict,
}  # fmt: skip


class StoredTensor(msgspec.Struct, frozen=True, array_like=True):
    """A tensor or array: library, dtype, shape and quantization, and the numbers of its pieces."""

    form: list[Any]
    pieces: list[int]

    def build(self, read: Callable[[Any], None]) -> Any:
        """Builds a new one with bytes from `read(buffer)`."""
        library, dtype, shape, quantization = self.form
        if library == "numpy":
            array = np.empty(shape, np.dtype(dtype if isinstance(dtype, str) else [tuple(field) for field in dtype]))
            if array.nbytes:
                read(array.reshape(-1).view(np.uint8))
            return array
        import torch

        kind = getattr(torch, dtype, None)
        if kind is None:
            raise ReliveError(f"this torch has no dtype {dtype}; restore with the torch version of the run")
        plain = (torch.int8 if dtype == "qint8" else torch.uint8) if quantization else kind
        tensor = torch.empty(shape, dtype=plain)
        if tensor.numel():
            read(tensor.reshape(-1).view(torch.uint8).numpy())
        if quantization:
            scale, zero_point = quantization["scale"], quantization["zero_point"]
            return torch._make_per_tensor_quantized_tensor(tensor, scale, zero_point)
        return tensor


def fill_array(target: Any, value: Any) -> bool:
    """Gives a live tensor or array a value in place; False if that is of another kind or shape."""
    torch = sys.modules.get("torch")
    if isinstance(target, np.ndarray) and isinstance(value, np.ndarray):
        if target.dtype != value.dtype or target.shape != value.shape or not target.flags.writeable:
            return False
        target[...] = value
        return True
    if torch is None or not (isinstance(target, torch.Tensor) and isinstance(value, torch.Tensor)):
        return False
    if target.dtype != value.dtype or target.shape != value.shape or target.layout != value.layout:
        return False
    with torch.no_grad():
        target.detach().copy_(value)
    return True


class TreeReader:
    """Builds the values of trees. A container that occurs in several places is built once.

    Pickled parts are unpickled, unless there is a `refusal`: then they may hold values of known types only.
    """

    def __init__(
        self, trees: Iterable[Json], tensor: Callable[[int], Any], blob: Callable[[int], bytes],
        live: Mapping[str, Any], refusal: str = "",
    ) -> None:  # fmt: skip
        self._refusal = refusal
        self._trees = list(trees)
        self._tensor = tensor
        self._blob = blob
        self._live = live  # objects with an entry of their own, to which trees refer by name
        self._shared: dict[int, Any] = {}

    def value(self, tree: Json) -> Any:
        if not isinstance(tree, dict):
            return tree
        ((tag, inner),) = tree.items()
        if tag in ("$first", "$same"):
            return self._shared_value(*(inner if tag == "$first" else (inner, None)))
        if tag == "$known":
            return _resolve_live(self._live, inner)
        if tag == "$leaf":
            return self._tensor(inner)
        if tag == "$pickle":
            return self._unpickled(self._blob(inner))
        if tag == "$bytes_at":
            return self._blob(inner)
        if tag == "$str":
            return inner
        if tag in ("$dict", "$ordered"):
            return _BUILDERS[tag]([(self.value(key), self.value(value)) for key, value in inner])
        if tag in _BUILDERS:
            return _BUILDERS[tag]([self.value(item) for item in inner])
        if tag == "$sparse":
            torch, parts = sys.modules["torch"], (self._tensor(inner["indices"]), self._tensor(inner["values"]))
            return torch.sparse_coo_tensor(*parts, inner["shape"], check_invariants=True).coalesce()
        return decode_value(tree, _unknown_chunk)

    def _unpickled(self, data: bytes) -> Any:
        if not self._refusal:
            return _Unpickler(io.BytesIO(data), self._live).load()
        try:
            return load_plain_pickle(data, lambda name: _resolve_live(self._live, name))
        except NotTyped as error:
            raise Untrusted(f"a pickle with {error} can't be read as data: {self._refusal}") from error

    def _shared_value(self, number: int, tree: Json) -> Any:
        if number not in self._shared:
            self._shared[number] = self.value(tree if tree is not None else self._find(number))
        return self._shared[number]

    def _find(self, number: int) -> Json:
        """Returns the tree of a shared container, wherever its first occurrence is."""
        todo = list(self._trees)
        while todo:
            tree = todo.pop()
            if isinstance(tree, list):
                todo += tree
            elif isinstance(tree, dict):
                if "$first" in tree and tree["$first"][0] == number:
                    return tree["$first"][1]
                todo += tree.values()
        raise ReliveError(f"the checkpoint has no part {number} that others refer to; restore another checkpoint")


class _Unpickler(pickle.Unpickler):
    """Resolves references to objects with an entry of their own to the live objects."""

    def __init__(self, stream: io.BytesIO, live: Mapping[str, Any]) -> None:
        super().__init__(stream)
        self._live = live

    def persistent_load(self, name: str) -> Any:
        return _resolve_live(self._live, name)


def _resolve_live(live: Mapping[str, Any], name: str) -> Any:
    if name not in live:
        shown = name.removeprefix("near:")
        raise ReliveError(f"it refers to {shown!r}, which is not restored with it; give that in `into=`, too")
    return live[name]


def _unknown_chunk(name: str) -> bytes:
    raise ReliveError(f"chunk {name} has no place in a checkpoint's tree")
