"""Pytrees: any state as a JSON tree that refers to tensor leaves and to pickled blobs by number."""

from __future__ import annotations

import io
import math
import pickle
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from relive.errors import ReliveError
from relive.store.journal import encode_value

Json = Any
_NO_OBJECTS: Mapping[str, Any] = {}
_INT64 = 1 << 63
_MAX_INLINE_TEXT = 1_000  # longer texts would be encoded as chunks, which trees do not support
_PLAIN_TYPES = (type(None), bool, int, float, str, complex)
_SEQUENCES: dict[type, str] = {list: "$list", tuple: "$tuple", set: "$set", frozenset: "$frozenset", deque: "$deque"}

_MUTABLE_CONTAINERS = frozenset({list, dict, set, deque, OrderedDict})


class Unpicklable(ReliveError):
    """An object of the training state that can't be pickled."""


class Flattener:
    """Flattens values into trees. Leaves and blobs are numbered in the order of their first occurrence."""

    def __init__(self, leaves: list[Any], numbers: dict[int, int], known: Mapping[int, str] | None = None) -> None:
        self.leaves = leaves.copy()  # starts with the leaves that are numbered already
        self.blobs: list[bytes] = []  # pickled objects, and bytes objects
        self._known = known or {}  # objects with their own entry: trees and pickles refer to them by name
        self._numbers = numbers.copy()  # of leaves, by identity
        self._containers: dict[int, tuple[Any, Json]] = {}  # referenced, so that no identity is reused
        self._shared_count = 0

    def flatten(self, value: Any, name: str) -> Json:
        """Returns the tree of a value; `name` is used in the error message if it can't be pickled."""
        kind = type(value)
        if kind in _PLAIN_TYPES:
            return _encode_plain(value, kind)
        if self._known.get(id(value), name) != name:
            return {"$known": self._known[id(value)]}
        if kind in _MUTABLE_CONTAINERS:
            return self._flatten_container(value, name)
        return self._flatten(value, kind, name)

    def _flatten_container(self, value: Any, name: str) -> Json:
        """Flattens a mutable container; a container that occurs twice is restored as one object."""
        if id(value) in self._containers:
            tree = self._containers[id(value)][1]
            if "$first" not in tree:
                self._shared_count += 1
                whole = dict(tree)
                tree.clear()
                tree["$first"] = [self._shared_count, whole]
            return {"$same": tree["$first"][0]}
        tree = {}
        self._containers[id(value)] = value, tree
        tree |= self._flatten(value, type(value), name)
        return tree

    def _flatten(self, value: Any, kind: type, name: str) -> Json:
        if kind is bytes:
            self.blobs.append(value)
            return {"$bytes_at": len(self.blobs) - 1}
        if is_leaf(value):
            return {"$leaf": self.leaf(value)}
        if kind in (dict, OrderedDict):
            tag = "$dict" if kind is dict else "$ordered"
            return {tag: [[self.flatten(k, name), self.flatten(v, f"{name}[{k!r}]")] for k, v in value.items()]}
        if kind in _SEQUENCES:
            return {_SEQUENCES[kind]: [self.flatten(item, name) for item in value]}
        if is_sparse(value):
            return self._flatten_sparse(value)
        return self._flatten_by_pickle(value, name)

    def leaf(self, value: Any) -> int:
        """Returns the number of a leaf; a tensor that occurs twice is one leaf."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.leaves)
            self.leaves.append(value)
        return self._numbers[id(value)]

    def _flatten_sparse(self, value: Any) -> Json:
        coalesced = value.detach().coalesce()
        parts = {"indices": self.leaf(coalesced.indices()), "values": self.leaf(coalesced.values())}
        return {"$sparse": {**parts, "shape": list(value.shape)}}

    def _flatten_by_pickle(self, value: Any, name: str) -> Json:
        try:
            self.blobs.append(_pickle_value(value, name, self._known))
        except Exception as error:
            raise Unpicklable(
                f"{name} can't be kept in a checkpoint ({error}); leave it out or give it a state_dict"
            ) from error
        return {"$pickle": len(self.blobs) - 1}


class _Pickler(pickle.Pickler):
    """Pickles an object, with references to the objects inside it that have their own entry."""

    def __init__(self, stream: io.BytesIO, name: str, known: Mapping[int, str]) -> None:
        super().__init__(stream, protocol=5)
        self._name = name
        self._known = known

    def persistent_id(self, obj: Any) -> str | None:
        known = self._known.get(id(obj))
        return known if known != self._name else None  # in its own entry an object is pickled


class _Unpickler(pickle.Unpickler):
    """Resolves references to objects with their own entry to the live objects."""

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


def _pickle_value(value: Any, name: str, known: Mapping[int, str]) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream, name, known).dump(value)
    return stream.getvalue()


def _encode_plain(value: Any, kind: type) -> Json:
    """Encodes a scalar or text. Nearly all are small numbers and short names, which JSON represents directly."""
    if kind is int:
        return value if -_INT64 <= value < _INT64 else encode_value(value, _refuse_chunk)
    if kind is float:
        return value if math.isfinite(value) else encode_value(value, _refuse_chunk)
    if kind is str and value.isascii():
        return value if len(value) <= _MAX_INLINE_TEXT else {"$str": value}
    return value if value is None or kind is bool else encode_value(value, _refuse_chunk)


def is_plain(value: Any) -> bool:
    """Whether a value is a number or text: equal ones may be the same object, so their identity has no meaning."""
    return type(value) in _PLAIN_TYPES


def is_leaf(value: Any) -> bool:
    """Whether a value is a dense tensor, or an array without object elements."""
    np = sys.modules.get("numpy")
    if np is not None and type(value) is np.ndarray:
        return not value.dtype.hasobject
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.layout == torch.strided


def is_sparse(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor) and value.layout == torch.sparse_coo


def _refuse_chunk(data: bytes) -> str:
    raise ReliveError(f"a text of {len(data)} bytes is too long for a checkpoint's tree")


class SharedContainers:
    """Containers that occur in several places of a checkpoint, each built once."""

    def __init__(self, trees: Callable[[], Iterable[Json]]) -> None:
        self.values: dict[int, Any] = {}
        self._trees = trees

    def find(self, number: int) -> Json:
        """Returns the tree of a shared container, wherever its first occurrence is."""
        todo = list(self._trees())
        while todo:
            tree = todo.pop()
            if isinstance(tree, list):
                todo += tree
            elif isinstance(tree, dict):
                if "$first" in tree and tree["$first"][0] == number:
                    return tree["$first"][1]
                todo += tree.values()
        raise ReliveError(f"the checkpoint has no part {number} that others refer to; restore another checkpoint")


def unflatten(
    tree: Json, leaf: Callable[[int], Any], blob: Callable[[int], bytes], live: Mapping[str, Any] = _NO_OBJECTS,
    shared: SharedContainers | None = None,
) -> Any:  # fmt: skip
    """Returns the value of a tree. `leaf` and `blob` read the parts by number, `shared` holds containers already built.

    Pickled parts are unpickled: pass only trees that this user's own runs wrote.
    """
    from relive.store.journal import decode_value

    if not isinstance(tree, dict):
        return tree
    ((tag, inner),) = tree.items()
    if tag in ("$first", "$same") and shared is not None:
        number = inner[0] if tag == "$first" else inner
        if number not in shared.values:
            whole = inner[1] if tag == "$first" else shared.find(number)
            shared.values[number] = unflatten(whole, leaf, blob, live, shared)
        return shared.values[number]
    if tag == "$known":
        return _resolve_live(live, inner)
    if tag == "$leaf":
        return leaf(inner)
    if tag == "$pickle":
        return _Unpickler(io.BytesIO(blob(inner)), live).load()
    if tag == "$bytes_at":
        return blob(inner)
    if tag == "$str":
        return inner
    if tag in ("$dict", "$ordered"):
        # Most keys and values are plain; a call for each of them would dominate the time.
        pairs = [
            (
                unflatten(k, leaf, blob, live, shared) if type(k) is dict else k,
                unflatten(v, leaf, blob, live, shared) if type(v) is dict else v,
            )
            for k, v in inner
        ]
        return dict(pairs) if tag == "$dict" else OrderedDict(pairs)
    if tag in _BUILDERS:
        return _BUILDERS[tag](unflatten(item, leaf, blob, live, shared) for item in inner)
    if tag == "$sparse":
        torch = sys.modules["torch"]
        return torch.sparse_coo_tensor(leaf(inner["indices"]), leaf(inner["values"]), inner["shape"]).coalesce()
    return decode_value(tree, _unknown_chunk)


_BUILDERS: dict[str, Callable[[Any], Any]] = {tag: kind for kind, tag in _SEQUENCES.items()}


def _unknown_chunk(name: str) -> bytes:
    raise ReliveError(f"chunk {name} has no place in a checkpoint's tree")
