"""Stable hashes of Python values, computed from a tagged, canonical pre-image that is equal in every process."""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from relive.errors import Unstable
from relive.hashing import reducers
from relive.hashing.digests import digest, flat_bytes, hasher
from relive.hashing.reduced_parts import Lenient, NoHash, RawBytes, ReducedParts, qualified_name
from relive.hashing.reducers import PLAIN, REDUCERS, Reducer

T = TypeVar("T")

_FLUSH_BYTES = 1 << 16
_REGISTERED: dict[type, Reducer] = {}
Substitution = Callable[[Any], object]  # returns a replacement to hash in place of a value, or NotImplemented


def stable_hash(
    value: object, *, by_state: bool = False, exactly: bool = False, substitute: Substitution | None = None
) -> str:
    """Returns a hash that is equal for equal values in every process; raises `Unstable` for a type without one.

    `by_state` also accepts objects of ordinary classes and hashes what they hold.
    `exactly` does that too, and the order of dicts and fields left out of comparisons count.
    `substitute` is called first on everything but scalars and containers; `NotImplemented` keeps the default.

        stable_hash({"lr": 0.1, "layers": (64, 64)})
    """
    try:
        return _PreimageEncoder({}, by_state or exactly, exactly, substitute).feed(value).hexdigest()
    except NoHash as stop:
        raise Unstable(_message(stop)) from stop.__cause__
    except RecursionError:
        name = qualified_name(type(value))
        raise Unstable(f"this {name} is nested too deeply to be hashed; pass a flatter value") from None


def register(kind: type[T], reduce: Callable[[T], object]) -> None:
    """Gives a type and its subclasses a stable hash: `reduce` converts an instance into a value that has one.

    register(Tokenizer, lambda tokenizer: (tokenizer.name, tokenizer.vocabulary))
    """
    _REGISTERED[kind] = reduce
    _find_reducer.cache_clear()


def _message(stop: NoHash) -> str:
    where = f"at {stop.path} of the value" if stop.path else "as the value itself"
    reason = f" ({stop.reason})" if stop.reason else ""
    return (
        f"no stable hash for the type {qualified_name(stop.kind)}{reason}, {where}; "
        f"pass a plain value instead, or give the type a hash with relive.memo.register(type, function)"
    )


class _PreimageEncoder:
    """Hashes the pre-image of one value: a tag, a size and the content at every level."""

    __slots__ = ("_ancestors", "_buffer", "_by_state", "_exactly", "_hasher", "_substitute")

    def __init__(
        self, ancestors: dict[int, int], by_state: bool, exactly: bool, substitute: Substitution | None
    ) -> None:
        self._ancestors = ancestors  # id → depth of each enclosing value, to detect cycles
        self._by_state = by_state
        self._exactly = exactly
        self._substitute = substitute
        self._buffer = bytearray()
        self._hasher = hasher()

    def feed(self, value: object) -> _PreimageEncoder:
        atom = _ATOMS.get(type(value))
        if atom is not None:
            self._buffer += atom(value)
        elif id(value) in self._ancestors:
            self._write_header("up", len(self._ancestors) - self._ancestors[id(value)])
        else:
            self._descend(value)
        if len(self._buffer) > _FLUSH_BYTES:
            self._flush()
        return self

    def hexdigest(self) -> str:
        self._flush()
        return self._hasher.hexdigest()

    def _flush(self) -> None:
        self._hasher.update(self._buffer)
        self._buffer.clear()

    def _write_header(self, tag: str, size: int) -> None:
        self._buffer += _tag_bytes(tag) + size.to_bytes(8, "little")

    def _descend(self, value: object) -> None:
        self._ancestors[id(value)] = len(self._ancestors)
        try:
            write = _CONTAINERS.get(type(value), _PreimageEncoder._reduced_value)
            write(self, value)
        finally:
            del self._ancestors[id(value)]

    def _reduced_value(self, value: object) -> None:
        kind: type = type(value)
        if self._substitute is not None:
            instead = _call_reducer(self._substitute, value)
            if instead is not NotImplemented:
                self._write_header("special", 1)
                self.feed(qualified_name(kind)).feed(instead)
                return
        found = _find_reducer(kind)
        if found is None and not self._by_state:
            raise NoHash(kind)
        if found is not None and self._exactly and found[0].startswith("dataclass:") and reducers.is_plain_class(kind):
            found = None
        tag, reduce = found or _state_reducer(kind)
        self._write_header("as", 1)
        self.feed(tag).feed(_call_reducer(reduce, value))

    def _sequence(self, value: list[Any] | tuple[Any, ...]) -> None:
        if value and all(type(item) is str for item in value):
            return self._strings(value)
        self._write_header(type(value).__name__, len(value))
        at = -1
        try:
            for item in value:
                at += 1
                self.feed(item)
        except NoHash as stop:
            raise stop.nested_in(f"[{at}]") from stop.__cause__

    def _strings(self, value: list[str] | tuple[str, ...]) -> None:
        """Hashes the joined strings, many times faster than one by one; columns of text are common and long."""
        self._write_header(f"{type(value).__name__} of str", len(value))
        self._buffer += struct.pack(f"<{len(value)}q", *map(len, value))
        self.feed("".join(value))

    def _dict(self, value: dict[Any, Any]) -> None:
        self._write_header("dict", len(value))
        key: object = None
        try:
            is_ordered = self._exactly and type(value) is dict
            for key in value if is_ordered else self._sorted_keys(value):
                self.feed(key).feed(value[key])
        except NoHash as stop:
            raise stop.nested_in(f".{key}" if isinstance(value, ReducedParts) else f"[{key!r:.60}]") from stop.__cause__

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        self._write_header(type(value).__name__, len(value))
        try:
            self._buffer += "".join(sorted(map(self._separate_hash, value))).encode()
        except NoHash as stop:
            raise stop.nested_in("{…}") from stop.__cause__

    def _raw(self, value: RawBytes) -> None:
        self._write_header("raw", value.size_bytes)
        hash_ = hasher(value.size_bytes)
        for block in value.blocks:
            hash_.update(flat_bytes(block))
        self._buffer += hash_.digest()

    def _lenient(self, value: Lenient) -> None:
        try:
            self.feed(self._separate_hash(value.value))
        except NoHash:
            self.feed((qualified_name(type(value.value)),))

    def _sorted_keys(self, keys: Iterable[Any]) -> list[Any]:
        listed = list(keys)
        return sorted(listed, key=None if all(type(key) is str for key in listed) else self._separate_hash)

    def _separate_hash(self, value: object) -> str:
        return (
            _PreimageEncoder(self._ancestors, self._by_state, self._exactly, self._substitute).feed(value).hexdigest()
        )


def _call_reducer(reduce: Reducer, value: object) -> object:
    try:
        return reduce(value)
    except (NoHash, RecursionError):
        raise
    except Exception as error:
        raise NoHash(type(value), str(error)) from error


@functools.cache
def _tag_bytes(tag: str) -> bytes:
    return bytes([len(tag)]) + tag.encode()


def _sized_bytes(tag: str, content: bytes | bytearray) -> bytes:
    size = len(content)
    if size > _FLUSH_BYTES:  # long content is replaced by its hash to avoid a copy
        content = bytes.fromhex(digest(content))
    return _tag_bytes(tag) + size.to_bytes(8, "little") + content


def _int(value: int) -> bytes:
    return _sized_bytes("int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _float(value: float) -> bytes:
    return _tag_bytes("float") + struct.pack("<d", math.nan if value != value else value)


_ATOMS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: _tag_bytes("None"),
    bool: lambda value: _tag_bytes("True" if value else "False"),
    int: _int,
    float: _float,
    complex: lambda value: _tag_bytes("complex") + _float(value.real) + _float(value.imag),
    str: lambda value: _sized_bytes("str", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: _sized_bytes("bytes", value),
    bytearray: lambda value: _sized_bytes("bytearray", value),
}


def plain_dict_hasher(names: Iterable[str]) -> Callable[[dict[str, Any]], str | None]:
    """Returns a fast `stable_hash` for dicts with exactly these keys and scalar values; it returns None for others."""
    from blake3 import blake3

    ordered = [(name, _ATOMS[str](name)) for name in sorted(names)]
    head = _tag_bytes("dict") + len(ordered).to_bytes(8, "little")
    atoms = _ATOMS

    def hash_plain(value: dict[str, Any]) -> str | None:
        if len(value) != len(ordered):
            return None
        pieces = [head]
        for name, encoded in ordered:
            item = value.get(name, ordered)  # `ordered` is a list, so a missing key is not a scalar
            atom = atoms.get(type(item))
            if atom is None:
                return None
            pieces += encoded, atom(item)
        return blake3(b"".join(pieces)).hexdigest()

    return hash_plain


_CONTAINERS: dict[type, Callable[[_PreimageEncoder, Any], None]] = {
    list: _PreimageEncoder._sequence,
    tuple: _PreimageEncoder._sequence,
    dict: _PreimageEncoder._dict,
    ReducedParts: _PreimageEncoder._dict,
    set: _PreimageEncoder._set,
    frozenset: _PreimageEncoder._set,
    RawBytes: _PreimageEncoder._raw,
    Lenient: _PreimageEncoder._lenient,
}


@functools.lru_cache(maxsize=4096)
def _find_reducer(kind: type) -> tuple[str, Reducer] | None:
    """Returns tag and reducer of a type: registered ones first, then the built-in ones along the MRO."""
    for base in kind.__mro__:
        if base in _REGISTERED:
            return f"registered:{qualified_name(kind)}", _REGISTERED[base]
    for base in kind.__mro__:
        key = f"{_root_module(base)}:{base.__qualname__}"
        if key in REDUCERS:
            return key if _root_module(kind) == _root_module(base) else f"{key}:{qualified_name(kind)}", REDUCERS[key]
    return _structural_reducer(kind)


def _state_reducer(kind: type) -> tuple[str, Reducer]:
    reduce = reducers.reduce_object if reducers.is_plain_class(kind) else reducers.reduce_state
    return f"state:{qualified_name(kind)}", reduce


def _structural_reducer(kind: type) -> tuple[str, Reducer] | None:
    if dataclasses.is_dataclass(kind):
        return f"dataclass:{qualified_name(kind)}", reducers.reduce_dataclass
    for builtin, plain in PLAIN.items():
        if issubclass(kind, builtin):
            return f"{builtin.__name__}:{qualified_name(kind)}", functools.partial(reducers.reduce_subclass, plain)
    return None


def _root_module(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]
