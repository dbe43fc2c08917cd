"""What a value's hash is: a tagged, canonical pre-image, the same for the same value in every process."""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from relive.errors import Unstable
from relive.hashing import reducers
from relive.hashing.digests import digest, flat_bytes, hasher
from relive.hashing.reducers import PLAIN, REDUCERS, Lenient, NoHash, Raw, ReducedParts, Reducer, qualified_name

if TYPE_CHECKING:
    pass

T = TypeVar("T")

_FLUSH_BYTES = 1 << 16
_REGISTERED: dict[type, Reducer] = {}
Special = Callable[[Any], object]  # what stands for a value instead of its usual parts, or NotImplemented


def stable_hash(value: object, *, by_state: bool = False, special: Special | None = None) -> str:
    """A hash that is equal for equal values in every process; raises `Unstable` for a type that has none.

    `by_state` also takes objects of ordinary classes, by what pickle would store of them.
    `special` is asked first about everything but plain values and containers; `NotImplemented` leaves it to us.

        stable_hash({"lr": 0.1, "layers": (64, 64)})
    """
    try:
        return _PreimageEncoder({}, by_state, special).feed(value).hexdigest()
    except NoHash as stop:
        raise Unstable(_message(stop)) from stop.__cause__
    except RecursionError:
        name = qualified_name(type(value))
        raise Unstable(f"this {name} is nested too deeply to be hashed; pass a flatter value") from None


def register(kind: type[T], reduce: Callable[[T], object]) -> None:
    """Give a type and its subclasses a stable hash: `reduce` turns an instance into something that has one.

    register(Tokenizer, lambda tokenizer: (tokenizer.name, tokenizer.vocabulary))
    """
    _REGISTERED[kind] = reduce
    _reducer.cache_clear()


def _message(stop: NoHash) -> str:
    where = f"at {stop.path} of the value" if stop.path else "as the value itself"
    why = f" ({stop.why})" if stop.why else ""
    return (
        f"no stable hash for the type {qualified_name(stop.kind)}{why}, {where}; "
        f"pass a plain value instead, or give the type a hash with relive.memo.register(type, function)"
    )


class _PreimageEncoder:
    """Writes the pre-image of one value: at every level a tag, a size, the content."""

    __slots__ = ("_above", "_buffer", "_by_state", "_hasher", "_special")

    def __init__(self, above: dict[int, int], by_state: bool, special: Special | None) -> None:
        self._above = above  # id → depth of the values that we are inside of, to meet cycles
        self._by_state = by_state
        self._special = special
        self._buffer = bytearray()
        self._hasher = hasher()

    def feed(self, value: object) -> _PreimageEncoder:
        atom = _ATOMS.get(type(value))
        if atom is not None:
            self._buffer += atom(value)
        elif id(value) in self._above:
            self._open("up", len(self._above) - self._above[id(value)])
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

    def _open(self, tag: str, size: int) -> None:
        self._buffer += _head(tag) + size.to_bytes(8, "little")

    def _descend(self, value: object) -> None:
        self._above[id(value)] = len(self._above)
        try:
            write = _CONTAINERS.get(type(value), _PreimageEncoder._reduced)
            write(self, value)
        finally:
            del self._above[id(value)]

    def _reduced(self, value: object) -> None:
        kind: type = type(value)
        if self._special is not None:
            instead = _attempt(self._special, value)
            if instead is not NotImplemented:
                self._open("special", 1)
                self.feed(qualified_name(kind)).feed(instead)
                return
        found = _reducer(kind)
        if found is None and not self._by_state:
            raise NoHash(kind)
        tag, reduce = found or (f"state:{qualified_name(kind)}", reducers.state)
        self._open("as", 1)
        self.feed(tag).feed(_attempt(reduce, value))

    def _sequence(self, value: list[Any] | tuple[Any, ...]) -> None:
        if value and all(type(item) is str for item in value):
            return self._strings(value)
        self._open(type(value).__name__, len(value))
        at = -1
        try:
            for item in value:
                at += 1
                self.feed(item)
        except NoHash as stop:
            raise stop.under(f"[{at}]") from stop.__cause__

    def _strings(self, value: list[str] | tuple[str, ...]) -> None:
        """Columns of text are common and long; joined, they hash many times faster than one by one."""
        self._open(f"{type(value).__name__} of str", len(value))
        self._buffer += struct.pack(f"<{len(value)}q", *map(len, value))
        self.feed("".join(value))

    def _dict(self, value: dict[Any, Any]) -> None:
        self._open("dict", len(value))
        key: object = None
        try:
            for key in self._ordered(value):
                self.feed(key).feed(value[key])
        except NoHash as stop:
            raise stop.under(f".{key}" if isinstance(value, ReducedParts) else f"[{key!r:.60}]") from stop.__cause__

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        self._open(type(value).__name__, len(value))
        try:
            self._buffer += "".join(sorted(map(self._apart, value))).encode()
        except NoHash as stop:
            raise stop.under("{…}") from stop.__cause__

    def _raw(self, value: Raw) -> None:
        self._open("raw", value.size_bytes)
        hash_ = hasher(value.size_bytes)
        for block in value.blocks:
            hash_.update(flat_bytes(block))
        self._buffer += hash_.digest()

    def _lenient(self, value: Lenient) -> None:
        try:
            self.feed(self._apart(value.value))
        except NoHash:
            self.feed((qualified_name(type(value.value)),))

    def _ordered(self, keys: Iterable[Any]) -> list[Any]:
        listed = list(keys)
        return sorted(listed, key=None if all(type(key) is str for key in listed) else self._apart)

    def _apart(self, value: object) -> str:
        return _PreimageEncoder(self._above, self._by_state, self._special).feed(value).hexdigest()


def _attempt(reduce: Reducer, value: object) -> object:
    try:
        return reduce(value)
    except (NoHash, RecursionError):
        raise
    except Exception as error:
        raise NoHash(type(value), str(error)) from error


@functools.cache
def _head(tag: str) -> bytes:
    return bytes([len(tag)]) + tag.encode()


def _sized(tag: str, content: bytes | bytearray) -> bytes:
    size = len(content)
    if size > _FLUSH_BYTES:  # the hash of a long one stands for it, rather than a copy
        content = bytes.fromhex(digest(content))
    return _head(tag) + size.to_bytes(8, "little") + content


def _int(value: int) -> bytes:
    return _sized("int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _float(value: float) -> bytes:
    return _head("float") + struct.pack("<d", math.nan if value != value else value)


_ATOMS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: _head("None"),
    bool: lambda value: _head("True" if value else "False"),
    int: _int,
    float: _float,
    complex: lambda value: _head("complex") + _float(value.real) + _float(value.imag),
    str: lambda value: _sized("str", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: _sized("bytes", value),
    bytearray: lambda value: _sized("bytearray", value),
}


def plain_binder(names: Iterable[str]) -> Callable[[dict[str, Any]], str | None]:
    """The hash of a dict with just these keys and plain values, several times as fast as `stable_hash`; else None."""
    from blake3 import blake3

    ordered = [(name, _ATOMS[str](name)) for name in sorted(names)]
    head = _head("dict") + len(ordered).to_bytes(8, "little")
    atoms = _ATOMS

    def hash_plain(value: dict[str, Any]) -> str | None:
        if len(value) != len(ordered):
            return None
        pieces = [head]
        for name, encoded in ordered:
            item = value.get(name, ordered)  # which is no plain value
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
    Raw: _PreimageEncoder._raw,
    Lenient: _PreimageEncoder._lenient,
}


@functools.lru_cache(maxsize=4096)
def _reducer(kind: type) -> tuple[str, Reducer] | None:
    """The tag and the reduction for a type: registered ones first, then ours along the method resolution order."""
    for base in kind.__mro__:
        if base in _REGISTERED:
            return f"registered:{qualified_name(kind)}", _REGISTERED[base]
    for base in kind.__mro__:
        key = f"{_root(base)}:{base.__qualname__}"
        if key in REDUCERS:
            return key if _root(kind) == _root(base) else f"{key}:{qualified_name(kind)}", REDUCERS[key]
    return _by_shape(kind)


def _by_shape(kind: type) -> tuple[str, Reducer] | None:
    if dataclasses.is_dataclass(kind):
        return f"dataclass:{qualified_name(kind)}", reducers.dataclass
    for builtin, plain in PLAIN.items():
        if issubclass(kind, builtin):
            return f"{builtin.__name__}:{qualified_name(kind)}", functools.partial(reducers.subclass, plain)
    return None


def _root(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]
