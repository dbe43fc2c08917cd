"""State of reinforcement-learning environments, and of other library objects that are captured by all attributes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

from relive.checkpoint.memory import Json, Unpicklable
from relive.checkpoint.state.state_handlers import Flatten, RestoreSource, StateHandler, ValueHandler

_ENVIRONMENT_CLASSES = (
    ("gymnasium", "Env"),
    ("gymnasium.vector", "VectorEnv"),
    ("gym", "Env"),
    ("gym.vector", "VectorEnv"),
)
_INNER_ATTRIBUTES = ("env", "envs")  # in which wrappers and vector environments hold others


class AttributesHandler(ValueHandler):
    """Captures all attributes of an object of a library's class."""

    kind = "attributes"

    def __init__(self, name: str, obj: Any) -> None:
        super().__init__(name, obj)
        self.uncaptured: list[str] = []

    def other_state(self, flatten: Flatten) -> Json:
        self.uncaptured = []
        try:
            return flatten(dict(vars(self._object)), self._name)
        except Unpicklable as error:
            self.uncaptured.append(str(error))
            return None

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        if tree is not None:
            vars(self._object).clear()
            vars(self._object).update(source.unflatten(tree))


class EnvironmentHandler(AttributesHandler):
    """Captures an environment: its state, counters and random generators, without functions."""

    kind = "environment"

    def other_state(self, flatten: Flatten) -> Json:
        self.uncaptured = []
        state: dict[str, Json] = {}
        for name, value in vars(self._object).items():
            if not _is_code(value):
                try:
                    state[name] = flatten(value, f"{self._name}.{name}")
                except Unpicklable as error:
                    self.uncaptured.append(str(error))
        return {"$dict": [[name, tree] for name, tree in state.items()]}

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        attributes, captured = vars(self._object), source.unflatten(tree)
        for name in [name for name, value in attributes.items() if name not in captured and not _is_code(value)]:
            del attributes[name]
        attributes.update(captured)


def _is_code(value: Any) -> bool:
    """Whether a value is a function, class or module, or a container of them: a restart creates them again."""
    if isinstance(value, dict):
        return any(map(_is_code, value.values()))  # constructor arguments of a wrapper
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_code, value))
    return isinstance(value, ModuleType | type | partial) or (callable(value) and hasattr(value, "__code__"))


def is_environment(value: Any) -> bool:
    """Whether a value is an environment of gymnasium, or of gym, its predecessor."""
    return isinstance(value, environment_classes())


def environment_classes() -> tuple[type, ...]:
    """Returns the environment classes of the loaded libraries."""
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in _ENVIRONMENT_CLASSES)
    return tuple(kind for kind in kinds if isinstance(kind, type))


def environment_handlers(name: str, value: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    """Yields handlers of an environment and of those inside it; each has its own entry, so it stays shared."""
    yield name, EnvironmentHandler(name, value), value
    for attribute in _INNER_ATTRIBUTES:
        inner = vars(value).get(attribute)
        if isinstance(inner, list | tuple):
            for at, one in enumerate(inner):
                if is_environment(one):
                    yield from environment_handlers(f"{name}.{attribute}[{at}]", one)
        elif is_environment(inner):
            yield from environment_handlers(f"{name}.{attribute}", inner)
