"""What a call is known by: the function, its code, its arguments after binding, and what else was declared."""

from __future__ import annotations

import inspect
import os
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from blake3 import blake3

from relive.errors import ReliveError
from relive.hashing import plain_binder, stable_hash
from relive.memo.argument_display import look
from relive.memo.code import Snapshot, is_own_function, label_of, stand_in, trace
from relive.record.process import warn_once
from relive.record.provenance import FingerprintCache, fingerprint_file, fingerprint_folder

FORMAT = "relive.memo 1"
_TRACED = 512

Fingerprints = Callable[[], FingerprintCache | None]
Special = Callable[[Any], object]  # what stands for an argument instead of its usual parts, or NotImplemented


@dataclass(slots=True, eq=False)  # not frozen: making a frozen one takes three times as long, on the path of every hit
class Call:
    """One call of a remembered function: what it is known by, and with what it was called."""

    function: str
    arguments: Mapping[str, Any]  # by name, with the defaults, also those that don't count
    key: str
    code: str
    extra: str
    _counted: Mapping[str, Any] = field(repr=False)
    _maker: Keys = field(repr=False)
    _kinds: Mapping[str, str] = field(repr=False)

    def parts(self) -> dict[str, str]:
        """The functions, classes and globals that its code consists of, with their hashes."""
        return self._maker.parts() | dict(self._kinds)

    def looks(self) -> dict[str, tuple[str, str]]:
        """Hash and looks of each argument; those that don't count have no hash."""
        hash_one, counted = self._maker.hash_one, self._counted
        return {
            name: (hash_one(value) if name in counted else "", look(name, value))
            for name, value in self.arguments.items()
        }


class Keys:
    """Makes the keys of one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        ignore: Sequence[str] = (),
        version: object = None,
        depends: Sequence[object] = (),
        fingerprints: Fingerprints = lambda: None,
        special: Special | None = None,
    ) -> None:
        self.name = label_of(function)
        self._function = function
        self._signature = inspect.signature(function)
        self._bind_quickly = _quick_binder(self._signature)
        self._ignored = _checked(ignore, self._signature, self.name)
        self._hash_plain = plain_binder(name for name in self._signature.parameters if name not in self._ignored)
        self._version = stable_hash(version, by_state=True) if version is not None else ""
        self._depends = tuple(depends)
        self._fingerprints = fingerprints
        self._also_special = special
        self._snapshot: Snapshot | None = None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults filled in; raises the `TypeError` that the call would."""
        quick = self._bind_quickly(args, kwargs) if self._bind_quickly is not None else None
        if quick is not None:
            return quick
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def make(self, arguments: dict[str, Any]) -> Call:
        """The call with its key; raises `Unstable` when something that counts has no stable hash."""
        counted = arguments
        if self._ignored:
            counted = {name: value for name, value in arguments.items() if name not in self._ignored}
        seen: dict[str, str] = {}
        hashed = self._hash_plain(counted) or self._hash(counted, seen)
        code = self.code()
        if seen:
            code = stable_hash([code, seen])
        extra = self._extra() if self._depends else self._version
        key = blake3(f"{FORMAT}\0{self.name}\0{code}\0{hashed}\0{extra}".encode()).hexdigest()
        return Call(self.name, arguments, key, code, extra, counted, self, seen)

    def code(self) -> str:
        """The hash of the code as it is now."""
        snapshot = self._snapshot
        if snapshot is None or not snapshot.is_fresh():
            self._snapshot = snapshot = _trace_callable(self._function)
            for state in snapshot.states:
                message = f"{self.name} reads {state} and changes it; that does not count as its input"
                warn_once("memo-state", f"{message}, so pass it as an argument if it is one", about=state)
        return snapshot.digest

    def parts(self) -> dict[str, str]:
        return self._snapshot.parts if self._snapshot is not None else {}

    def hash_one(self, value: Any) -> str:
        return self._hash(value, {})[:32]

    def _hash(self, value: Any, seen: dict[str, str]) -> str:
        return stable_hash(value, special=lambda inner: self._special(inner, seen))

    def _special(self, value: Any, seen: dict[str, str]) -> object:
        """Code goes by what it says, and a path by what lies there."""
        if self._also_special is not None:
            instead = self._also_special(value)
            if instead is not NotImplemented:
                return instead
        if isinstance(value, Path):
            return [str(value), content_of(value, self._fingerprints())]

        def enter(thing: Any) -> str:
            told, label = TRACED.digest(thing), label_of(thing)
            seen[label if seen.get(label, told) == told else f"{label} {told}"] = told
            return told

        return stand_in(value, enter)

    def _extra(self) -> str:
        cache = self._fingerprints()
        return stable_hash([self._version, [self._dependence(one, cache) for one in self._depends]])

    def _dependence(self, one: Any, cache: FingerprintCache | None) -> object:
        if isinstance(one, str) and one.startswith("$"):
            return ["variable", one, os.environ.get(one[1:])]
        if isinstance(one, str | PurePath):
            return ["file", str(one), content_of(Path(one), cache)]
        if isinstance(one, types.FunctionType | type):
            return ["code", TRACED.digest(one)]
        raise ReliveError(
            f"{self.name}: depends={one!r} is not understood; give files, '$VARIABLE's, functions or classes"
        )


def content_of(path: Path, cache: FingerprintCache | None) -> object:
    """What lies at a path: a hash of the content, or nothing."""
    try:
        if path.is_dir():
            found = fingerprint_folder(path, cache)
        elif path.is_file():
            found = fingerprint_file(path, cache)
        else:  # nothing, or a pipe that reading would empty
            return None
    except OSError:
        return None
    if "sampled" in found.detail:  # so large that it was not read through: then a newer one is another one
        return [found.digest, path.stat().st_mtime_ns]
    return found.digest


class Traced:
    """The code of functions and classes that are passed as arguments; looked at again only when it changed."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[Any, Snapshot]] = OrderedDict()
        self.renew()

    def renew(self) -> None:
        """Also in a forked child: who held the lock is not there to let it go."""
        self._lock = threading.Lock()

    def digest(self, thing: Any) -> str:
        with self._lock:
            found = self._known.get(id(thing))
        if found is not None and found[0] is thing and found[1].is_fresh():
            return found[1].digest
        snapshot = trace(thing)
        with self._lock:
            self._known[id(thing)] = thing, snapshot
            if len(self._known) > _TRACED:
                self._known.popitem(last=False)
        return snapshot.digest


TRACED = Traced()
os.register_at_fork(after_in_child=TRACED.renew)


def _trace_callable(function: Callable[..., Any]) -> Snapshot:
    """The code of what was decorated; defaults are among the arguments, so they don't count twice."""
    inner: Any = function
    while not isinstance(inner, types.FunctionType) or not is_own_function(inner):
        below = getattr(inner, "__wrapped__", None) or getattr(inner, "func", None)
        if below is None:
            return _by_name(inner)
        inner = below
    return trace(inner, with_defaults=False)


def _by_name(function: Any) -> Snapshot:
    """A function of a library: its name tells which it is."""
    label = label_of(function)
    return Snapshot(digest=stable_hash(["library", label]), parts={label: ""})


def _checked(ignore: Sequence[str], signature: inspect.Signature, name: str) -> frozenset[str]:
    if isinstance(ignore, str):
        raise ReliveError(f"{name}: ignore={ignore!r} is one text; write ignore=[{ignore!r}]")
    unknown = [one for one in ignore if one not in signature.parameters]
    if unknown:
        known = ", ".join(signature.parameters) or "none"
        raise ReliveError(f"{name} has no parameter {unknown[0]!r} to ignore; its parameters are {known}")
    return frozenset(ignore)


def _quick_binder(
    signature: inspect.Signature,
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any] | None] | None:
    """Binding as `inspect` does it, several times as fast, for functions without *args and **kwargs.

    What doesn't fit is left to `inspect`, which knows how to complain.
    """
    kinds = inspect.Parameter
    parameters = list(signature.parameters.values())
    if any(one.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY) for one in parameters):
        return None
    names = [one.name for one in parameters]
    positional = [one.name for one in parameters if one.kind is kinds.POSITIONAL_OR_KEYWORD]
    defaults = {one.name: one.default for one in parameters if one.default is not kinds.empty}

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        if len(args) > len(positional):
            return None
        given = dict(zip(positional, args, strict=False))
        bound = {**defaults, **given, **kwargs}
        if len(given) + len(kwargs) > len(given.keys() | kwargs.keys()) or len(bound) != len(names):
            return None
        try:
            return {name: bound[name] for name in names}
        except KeyError:
            return None

    return bind
