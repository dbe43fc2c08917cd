"""Environments that agents act in: objects of a library that change with every step, and draw their own numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

from relive.checkpoint.memory import Json, Unpicklable
from relive.checkpoint.state.state_handlers import RestoreSource, StateHandler, ValueHandler

_KINDS = (("gymnasium", "Env"), ("gymnasium.vector", "VectorEnv"), ("gym", "Env"), ("gym.vector", "VectorEnv"))
_INNER = ("env", "envs")  # what wrappers, and vectors of environments, hold


class AttributesHandler(ValueHandler):
    """All attributes of an object whose class is a library's."""

    kind = "attributes"

    def __init__(self, name: str, thing: Any) -> None:
        super().__init__(name, thing)
        self.left_out: list[str] = []

    def rest(self, plant: Callable[[Any, str], Json]) -> Json:
        self.left_out = []
        try:
            return plant(dict(vars(self._thing)), self._name)
        except Unpicklable as error:
            self.left_out.append(str(error))
            return None

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        if rest is not None:
            vars(self._thing).clear()
            vars(self._thing).update(source.value(rest))


class EnvironmentHandler(AttributesHandler):
    """An environment: its state, its counters, and the generators that it draws from."""

    kind = "environment"

    def rest(self, plant: Callable[[Any, str], Json]) -> Json:
        self.left_out = []
        state: dict[str, Json] = {}
        for name, value in vars(self._thing).items():
            if not _is_code(value):
                try:
                    state[name] = plant(value, f"{self._name}.{name}")
                except Unpicklable as error:
                    self.left_out.append(str(error))
        return {"$dict": [[name, tree] for name, tree in state.items()]}

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        there, kept = vars(self._thing), source.value(rest)
        for name in [name for name, value in there.items() if name not in kept and not _is_code(value)]:
            del there[name]
        there.update(kept)


def _is_code(value: Any) -> bool:
    """Functions that make environments, or what they observe: a restart has them again."""
    if isinstance(value, dict):
        return any(map(_is_code, value.values()))  # what a wrapper was made with
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_code, value))
    return isinstance(value, ModuleType | type | partial) or (callable(value) and hasattr(value, "__code__"))


def is_environment(value: Any) -> bool:
    """Is it what `gymnasium.make` gives, or what it gave before it had that name?"""
    return isinstance(value, environment_classes())


def environment_classes() -> tuple[type, ...]:
    """Of the libraries that are loaded."""
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in _KINDS)
    return tuple(kind for kind in kinds if isinstance(kind, type))


def environments(name: str, value: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    """An environment, and those inside it: each is kept by itself, so that whoever else holds it has the same one."""
    yield name, EnvironmentHandler(name, value), value
    for attribute in _INNER:
        inner = vars(value).get(attribute)
        if isinstance(inner, list | tuple):
            for at, one in enumerate(inner):
                if is_environment(one):
                    yield from environments(f"{name}.{attribute}[{at}]", one)
        elif is_environment(inner):
            yield from environments(f"{name}.{attribute}", inner)
