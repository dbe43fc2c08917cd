"""The key of a call: function name, code hash, bound arguments, and declared versions and dependencies."""

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
from relive.hashing import Substitution, plain_dict_hasher, stable_hash
from relive.memo.argument_display import describe_argument
from relive.memo.changing_state import ChangingState
from relive.memo.code import Snapshot, is_own_function, qualified_label, substitute_code, trace
from relive.memo.inputs import changed_settings, content_of
from relive.record.process import warn_once
from relive.record.provenance import FingerprintCache

FORMAT = "relive.memo 2"
_MAX_SNAPSHOTS = 512
SEEDED = "seeded"  # among what is volatile in a snapshot: the code seeds generators itself

Fingerprints = Callable[[], FingerprintCache | None]


@dataclass(slots=True, eq=False)  # not frozen: that makes construction three times slower, on the path of every hit
class Call:
    """One call of a memoized function: its key, the parts of the key, and its arguments."""

    function: str
    arguments: Mapping[str, Any]  # by name, with defaults, including ignored ones
    key: str
    code: str
    extra: str
    _counted: Mapping[str, Any] = field(repr=False)
    _keys: Keys = field(repr=False)
    _argument_code: Mapping[str, str] = field(repr=False)

    def parts(self) -> dict[str, str]:
        """Returns the functions, classes and globals that the code depends on, with their hashes."""
        return self._keys.parts() | dict(self._argument_code)

    def describe_arguments(self) -> dict[str, tuple[str, str]]:
        """Returns the hash and a short description of each argument; the hash of an ignored argument is empty."""
        hash_one, counted = self._keys.hash_one, self._counted
        return {
            name: (hash_one(value) if name in counted else "", describe_argument(name, value))
            for name, value in self.arguments.items()
        }


class Keys:
    """Computes the keys of calls of one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        ignore: Sequence[str] = (),
        version: object = None,
        depends: Sequence[object] = (),
        fingerprints: Fingerprints = lambda: None,
        substitute: Substitution | None = None,
    ) -> None:
        self.name = qualified_label(function)
        self._function = function
        self._signature = inspect.signature(function)
        self._bind_fast = _fast_binder(self._signature)
        self._ignored = _validate_ignore(ignore, self._signature, self.name)
        self._hash_plain = plain_dict_hasher(name for name in self._signature.parameters if name not in self._ignored)
        self._version = stable_hash(version, by_state=True) if version is not None else ""
        self._depends = tuple(depends)
        self._fingerprints = fingerprints
        self._extra_substitute = substitute
        self._snapshot: Snapshot | None = None
        self._state = ChangingState(lambda value: self._hash(value, {}, exactly=True))

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments by name, with defaults; raises the same `TypeError` as the call."""
        quick = self._bind_fast(args, kwargs) if self._bind_fast is not None else None
        if quick is not None:
            return quick
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def make(self, arguments: dict[str, Any]) -> Call:
        """Returns the call with its key; raises `Unstable` if a value in the key has no stable hash."""
        counted = arguments
        if self._ignored:
            counted = {name: value for name, value in arguments.items() if name not in self._ignored}
        seen: dict[str, str] = {}
        hashed = self._hash_plain(counted) or self._hash(counted, seen)
        code = self.code()
        settings = changed_settings()
        states = self._snapshot.states if self._snapshot is not None else ()
        if seen or settings or states:
            seen |= {f"setting {name}": stable_hash(value) for name, value in settings.items()}
            seen |= self._state.tokens(states)
            code = stable_hash([code, seen])
        extra = self._extra() if self._depends else self._version
        key = blake3(f"{FORMAT}\0{self.name}\0{code}\0{hashed}\0{extra}".encode()).hexdigest()
        return Call(self.name, arguments, key, code, extra, counted, self, seen)

    def code(self) -> str:
        """Returns the hash of the code as it is now."""
        snapshot = self._snapshot
        if snapshot is None or not snapshot.is_fresh():
            self._snapshot = snapshot = _trace_callable(self._function)
            for label, reason in snapshot.unseen.items():
                message = f"{self.name} uses {label}, whose content is not part of the key: {reason}"
                warn_once("memo-unseen", message, about=self.name + label)
            for reason in snapshot.volatile:
                if reason != SEEDED:
                    self.warn_volatile(reason)
        return snapshot.digest

    def warn_volatile(self, reason: str) -> None:
        """Warns that the function does something that gives another result each time."""
        message = f"{self.name} {reason}, and a remembered result is the one of its first call"
        warn_once("memo-volatile", f"{message}; pass what it depends on as an argument", about=self.name + reason)

    @property
    def seeds_generators(self) -> bool:
        return self._snapshot is not None and SEEDED in self._snapshot.volatile

    @property
    def has_cache(self) -> bool:
        """Whether a call may use what an earlier one has read."""
        return self._snapshot is not None and self._snapshot.has_cache

    def watch_state(self) -> Callable[[], dict[str, bool]]:
        """Returns a function that returns the state that a computation has changed, and whether only by adding."""
        return self._state.watch(self._snapshot.states if self._snapshot is not None else ())

    def parts(self) -> dict[str, str]:
        return self._snapshot.parts if self._snapshot is not None else {}

    def hash_one(self, value: Any) -> str:
        return self._hash(value, {})[:32]

    def _hash(self, value: Any, seen: dict[str, str], *, exactly: bool = False) -> str:
        return stable_hash(
            value, by_state=True, exactly=exactly, substitute=lambda inner: self._substitute(inner, seen)
        )

    def _substitute(self, value: Any, seen: dict[str, str]) -> object:
        """Replaces code by its hash, and a path by the content found there."""
        if self._extra_substitute is not None:
            instead = self._extra_substitute(value)
            if instead is not NotImplemented:
                return instead
        if isinstance(value, Path):
            return [str(value), content_of(value, self._fingerprints())]

        def visit(thing: Any) -> str:
            code, label = SNAPSHOTS.digest(thing), qualified_label(thing)
            seen[label if seen.get(label, code) == code else f"{label} {code}"] = code
            return code

        return substitute_code(value, visit)

    def _extra(self) -> str:
        cache = self._fingerprints()
        return stable_hash([self._version, [self._dependency(one, cache) for one in self._depends]])

    def _dependency(self, one: Any, cache: FingerprintCache | None) -> object:
        if isinstance(one, str) and one.startswith("$"):
            return ["variable", one, os.environ.get(one[1:])]
        if isinstance(one, str | PurePath):
            return ["file", str(one), content_of(Path(one), cache)]
        if isinstance(one, types.FunctionType | type):
            return ["code", SNAPSHOTS.digest(one)]
        raise ReliveError(
            f"{self.name}: depends={one!r} has an unsupported type; "
            f"pass file paths, '$VARIABLE' names, functions or classes"
        )


class SnapshotCache:
    """Caches code snapshots of functions and classes passed as arguments; traces again only after a change."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[Any, Snapshot]] = OrderedDict()
        self._in_progress = threading.local()
        self.reset_lock()

    def reset_lock(self) -> None:
        """Replaces the lock; a forked child needs this because the thread that held it does not exist there."""
        self._lock = threading.Lock()

    def digest(self, thing: Any) -> str:
        """Returns the hash of a function or class, with that of the state that its code reads and changes."""
        snapshot = self._snapshot(thing)
        return snapshot.digest if not snapshot.states else self._with_state(thing, snapshot)

    def _snapshot(self, thing: Any) -> Snapshot:
        with self._lock:
            found = self._known.get(id(thing))
        if found is not None and found[0] is thing and found[1].is_fresh():
            return found[1]
        snapshot = trace(thing)
        with self._lock:
            self._known[id(thing)] = thing, snapshot
            if len(self._known) > _MAX_SNAPSHOTS:
                self._known.popitem(last=False)
        return snapshot

    def _with_state(self, thing: Any, snapshot: Snapshot) -> str:
        busy: set[int] = vars(self._in_progress).setdefault("busy", set())
        if id(thing) in busy:  # a registry of classes, one of whose methods uses the registry
            return snapshot.digest
        busy.add(id(thing))
        try:
            content = [root.read() for root in snapshot.states]
            return stable_hash(
                [snapshot.digest, content], exactly=True, substitute=lambda value: substitute_code(value, self.digest)
            )
        finally:
            busy.discard(id(thing))


SNAPSHOTS = SnapshotCache()
os.register_at_fork(after_in_child=SNAPSHOTS.reset_lock)


def _trace_callable(function: Callable[..., Any]) -> Snapshot:
    """Traces the decorated function without its defaults, which are already part of the arguments."""
    inner: Any = function
    while not isinstance(inner, types.FunctionType) or not is_own_function(inner):
        below = getattr(inner, "__wrapped__", None) or getattr(inner, "func", None)
        if below is None:
            return _trace_library_function(inner)
        inner = below
    return trace(inner, with_defaults=False)


def _trace_library_function(function: Any) -> Snapshot:
    """Identifies a library function by its name alone."""
    label = qualified_label(function)
    return Snapshot(digest=stable_hash(["library", label]), parts={label: ""})


def _validate_ignore(ignore: Sequence[str], signature: inspect.Signature, name: str) -> frozenset[str]:
    if isinstance(ignore, str):
        raise ReliveError(f"{name}: ignore={ignore!r} is a string; write ignore=[{ignore!r}]")
    unknown = [one for one in ignore if one not in signature.parameters]
    if unknown:
        known = ", ".join(signature.parameters) or "none"
        raise ReliveError(f"{name} has no parameter {unknown[0]!r} to ignore; its parameters are {known}")
    return frozenset(ignore)


def _fast_binder(
    signature: inspect.Signature,
) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any] | None] | None:
    """Returns a function that binds arguments like `inspect` but several times faster, without *args and **kwargs.

    It returns None for arguments that do not fit; `inspect` then raises the right error.
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
