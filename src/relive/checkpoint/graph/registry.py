"""The registry of state handlers: for each type, how its content is captured, restored and fingerprinted.

To support another type, write a `Handler` and name it in one of the tables of `handlers/`, or register it for a class
of your own with `relive.state_handler`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from relive.checkpoint.graph.object_tokens import Token

MISSING: Any = object()


class CannotRestore(Exception):
    """Raised by a handler: an object of this kind can't be given a content."""


class NeedsTrust(CannotRestore):
    """Raised while a checkpoint is restored without trust: this part of it names code, or is a pickle."""


class Unreadable(Exception):
    """Raised by a handler: the content of an object can't be seen."""


class Walker(Protocol):
    """What a handler asks of the walk: tokens of the objects that the current one holds."""

    with_gradients: bool
    is_end: bool
    memo: dict[int, Any]

    @property
    def buffers(self) -> Any: ...
    @property
    def parent(self) -> int: ...  # the way of the current object
    def ref(self, obj: Any, form: str, key: Any) -> Token: ...
    def refs(self, objects: Iterable[Any]) -> tuple[Token, ...]: ...
    def attributes(self, values: Mapping[str, Any]) -> tuple[Token, ...]: ...
    def identity_token(self, number: int) -> Token: ...
    def is_deferred(self) -> bool: ...
    def order_key(self, obj: Any) -> tuple[Any, ...]: ...
    def node_token(self, obj: Any, form: str, key: Any, handler: Handler) -> Token: ...
    def made(self, obj: Any) -> Any: ...
    def note_unknown(self, name: str, why: str) -> None: ...
    def note_displayed(self, obj: Any, form: str, key: Any) -> None: ...


class Restorer(Protocol):
    """What a handler asks of a restore: the objects of tokens, memory and classes."""

    has_gradients: bool

    def value(self, token: Token) -> Any: ...
    def value_or(self, token: Token, current: Any) -> Any: ...
    def complete_value(self, token: Token) -> Any: ...
    def find_class(self, name: str) -> Any: ...
    def find_live(self, is_wanted: Callable[[Any], bool]) -> Any: ...
    def find_all(self, is_wanted: Callable[[Any], bool]) -> list[Any]: ...
    def memory(self, way: int) -> Any: ...
    def storage(self, way: int, device: str) -> Any: ...
    def is_memory_of(self, way: int, address: int) -> bool: ...
    def unmarshal(self, data: bytes) -> Any: ...


WRITTEN_FILE = "a file that is written"  # why it is unknown
DISPLAY = "is only for display"


class Handler:
    """Captures, restores and fingerprints the objects of one type.

    `content` returns what distinguishes an object from others of its type: plain values, and tokens for the objects
    that it holds. The fingerprint of an object is the hash of its content, and a checkpoint holds its content, so
    that one method does both, and what was fingerprinted is what is restored.
    """

    is_inline = False  # instances have no identity: their token is part of whatever holds them
    creates_complete = False  # what `create` returns needs no `restore`
    is_hashed = False  # restoring calls the hash of what it holds, which must be complete by then
    is_hashed_whole = True
    of_nodes: Handler | None = None  # of an inline handler some of whose objects are nodes: their handler
    is_singleton = False  # each process has the same objects of this kind; the first two parts of the content name one
    is_restorable = True  # otherwise an object can only be compared
    is_essential = False  # its objects are looked at even when the time for a walk is up
    is_data = False  # `create` and `restore` run no code that the content names: they need no trust

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        """Returns the token of an object without identity."""
        raise NotImplementedError

    def content(self, obj: Any, walk: Walker) -> Any:
        raise NotImplementedError

    def fingerprint(self, content: Any) -> Any:
        """Returns the part of a content that is hashed: all of it, unless the handler is not `is_hashed_whole`."""
        return content

    def can_restore(self, content: Any) -> bool:
        """Whether an object can be given this content."""
        return self.is_restorable

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        """Returns a new object, which `restore` fills, unless the handler `creates_complete` ones."""
        cls = restore.find_class(kind)
        return cls.__new__(cls)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        """Gives an object the content; raises CannotRestore if that is not possible in place: a new one replaces it."""
        raise CannotRestore("it can only be compared")


Chooser = Callable[[type], Handler | None]
_choosers: list[Chooser] = []  # asked in order, once for each type
_of_users: dict[type, Handler] = {}
_handlers: dict[type, tuple[Handler, str]] = {}


def handler_of(kind: type) -> tuple[Handler, str]:
    """Returns the handler of a type, and the name of the type."""
    found = _handlers.get(kind)
    if found is None:
        found = _handlers[kind] = _choose(kind), type_name(kind)
    return found


def class_handler_of(kind: type) -> Handler | None:
    """Returns the handler of a class whose instance was met, for what the class itself holds; None for nothing."""
    return _class_chooser()(kind)


@cache
def _class_chooser() -> Chooser:
    found: Chooser = import_module(f"{__package__}.handlers.all_handlers").choose_class_state
    return found


def type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _choose(kind: type) -> Handler:
    if not _choosers:
        # By name: handlers import this module.
        _choosers.extend(import_module(f"{__package__}.handlers.all_handlers").CHOOSERS)
    for base in kind.__mro__:
        if base in _of_users:
            return _of_users[base]
    for chooser in _choosers:
        found = chooser(kind)
        if found is not None:
            return found
    raise LookupError(type_name(kind))


def register_handler(kind: type, handler: Handler) -> None:
    """Makes a handler responsible for a class and its subclasses."""
    _of_users[kind] = handler
    _handlers.clear()


class UserHandler(Handler):
    """Captures an object with the user's functions: `capture(obj)` returns a value, `restore(obj, value)` sets it."""

    is_data = True

    def __init__(self, capture: Callable[[Any], Any], restore: Callable[[Any, Any], None]) -> None:
        self._capture = capture
        self._restore = restore

    def content(self, obj: Any, walk: Walker) -> Any:
        return walk.ref(walk.made(self._capture(obj)), ".", "(captured)")

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        self._restore(obj, restore.complete_value(content))
