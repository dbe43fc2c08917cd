"""Builds the values of tokens that are no nodes of the graph, and finds classes by their names."""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Protocol

import numpy as np

from relive.checkpoint.graph import object_tokens as tokens
from relive.checkpoint.graph.object_tokens import Token, find_by_name
from relive.checkpoint.graph.registry import CannotRestore, type_name
from relive.checkpoint.plain import NotTyped, value_of_form

_LOCKS: dict[str, Callable[[], Any]] = {tokens.LOCK: threading.Lock, tokens.REENTRANT_LOCK: threading.RLock}


class ResolvesTokens(Protocol):
    """Gives the objects of tokens, as they are, or with all of their content."""

    def value(self, token: Token) -> Any: ...
    def complete_value(self, token: Token) -> Any: ...


def build_value(token: Token, objects: ResolvesTokens, folder: str) -> Any:
    """Builds the value of a token that does not refer to a node; `folder` is the working folder."""
    tag = token[0]
    if tag == tokens.FOLDER:
        return folder + token[1]
    builder = _BUILDERS.get(tag)
    if builder is None:
        raise CannotRestore(f"a token of an unknown kind {tag!r}; upgrade relive")
    return builder(token, objects)


def _scalar(token: Token, _: ResolvesTokens) -> Any:
    return np.frombuffer(token[2], np.dtype(token[1]))[0]


def _weak_reference(token: Token, objects: ResolvesTokens) -> Any:
    target = objects.value(token[1])
    return weakref.ref(target) if target is not None else weakref.ref(type("Dead", (), {})())


def _text(token: Token, objects: ResolvesTokens) -> Any:
    cls = objects.value(token[1])
    base = next(base for base in (str, int, float, complex, bytes) if issubclass(cls, base))
    return base.__new__(cls, token[2])


def _unseen(token: Token, _: ResolvesTokens) -> Any:
    if token[1] in _LOCKS:
        return _LOCKS[token[1]]()
    raise CannotRestore(f"a {token[1]} is left out of checkpoints")


def _typed(token: Token, _: ResolvesTokens) -> Any:
    return typed_value(token)


def typed_value(token: Token) -> Any:
    """Returns the value of a token with a typed form."""
    try:
        return value_of_form(token[1])
    except NotTyped as error:
        raise CannotRestore(str(error)) from error


def _plain_value(token: Token, objects: ResolvesTokens) -> Any:
    if len(token) == 2:
        return pickle.loads(token[1])
    if token[1] == tokens.PROXY:
        return types.MappingProxyType(objects.value(token[2]))
    if token[1] == "enum":
        return objects.value(token[2])[token[3]]
    text = objects.value(token[2])
    return Path(text) if token[1].endswith("sixPath") and not token[1].startswith("Pure") else PurePath(text)


def _by_name(token: Token, _: ResolvesTokens) -> Any:
    _, module, name = token
    try:
        return find_by_name(module, name)
    except LookupError:
        try:
            importlib.import_module(module)
            return find_by_name(module, name)
        except (ImportError, LookupError, ValueError) as error:
            raise CannotRestore(str(error)) from error


_BUILDERS: dict[str, Callable[[Token, ResolvesTokens], Any]] = {
    tokens.TUPLE: lambda token, objects: tuple(objects.value(inner) for inner in token[1:]),
    tokens.SCALAR: _scalar,
    tokens.BY_NAME: _by_name,
    tokens.TYPED: _typed,
    tokens.VALUE: _plain_value,
    tokens.METHOD: lambda token, objects: types.MethodType(objects.value(token[1]), objects.value(token[2])),
    tokens.BUILTIN_METHOD: lambda token, objects: getattr(objects.value(token[1]), token[2]),
    tokens.NAMED_TUPLE: lambda token, objects: tuple.__new__(
        objects.value(token[1]), [objects.complete_value(inner) for inner in token[2:]]
    ),
    tokens.FROZEN_SET: lambda token, objects: frozenset(objects.complete_value(inner) for inner in token[1:]),
    tokens.WEAK: _weak_reference,
    tokens.TEXT_TYPE: _text,
    tokens.IDENTITY: lambda token, objects: id(objects.value(token[1])),
    tokens.UNSEEN: _unseen,
}


def find_class(name: str, nodes: Iterable[Any]) -> Any:
    """Returns a class by its full name; local classes are found among live objects and their types."""
    if name in _ANONYMOUS:
        return _ANONYMOUS[name]
    live = list(nodes)
    found = next((node for node in live if node.kind == name and node.obj is not None), None)
    if found is not None:
        return type(found.obj)
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:split])
        if module in sys.modules:
            try:
                return find_by_name(module, ".".join(parts[split:]))
            except LookupError:
                break
    for node in live:
        if isinstance(node.obj, type) and type_name(node.obj) == name:
            return node.obj
    raise CannotRestore(f"there is no class {name} here")


def _types_without_name() -> Iterator[tuple[str, type]]:
    for kind in (
        types.FunctionType,
        types.MethodType,
        functools.partial,
        types.GeneratorType,
        types.SimpleNamespace,
        types.ModuleType,
    ):
        yield type_name(kind), kind
    iterators: tuple[Any, ...] = (
        iter([]), iter(()), iter(range(0)), iter(""), iter({}), iter({}.values()), iter({}.items()), iter(set()),
    )  # fmt: skip
    for one in iterators:
        yield type_name(type(one)), type(one)


_ANONYMOUS: Mapping[str, type] = dict(_types_without_name())
