"""State of a library's trainer that runs the loop itself: the plain attributes of its objects, by attribute path."""

from __future__ import annotations

import enum
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from relive.checkpoint.graph.handlers.attributes import skip_attributes
from relive.checkpoint.memory import is_leaf
from relive.checkpoint.state.frame_variables import refill
from relive.checkpoint.state.object_state import MAX_ITEMS, MAX_OBJECTS, MAX_VARIABLE_BYTES, attributes_of
from relive.checkpoint.state.random_state import generator_state, is_generator, restore_generator
from relive.errors import ReliveError

MAX_DEPTH = 8
_SCALARS = (type(None), bool, int, float, str, bytes)
_SEQUENCES = (list, tuple, set, frozenset, deque)
_DICTS = (dict, OrderedDict)
_CLOCK = "time"  # attributes with this in their name hold clock values of another process
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Library:
    """How to recognize the objects of a library, and which of their attributes are no state."""

    name: str
    modules: tuple[str, ...]  # the library's classes are defined in these modules and packages
    skipped: frozenset[str] = frozenset()
    shown: tuple[str, ...] = ()  # classes of these modules, and subclasses, only display progress

    def owns(self, value: Any) -> bool:
        return _is_defined_in(type(value), self.modules)

    def is_display(self, value: Any) -> bool:
        return any(_is_defined_in(kind, self.shown) for kind in type(value).__mro__)


def _is_defined_in(kind: type, modules: Iterable[str]) -> bool:
    module = kind.__module__
    return any(module == own or module.startswith(f"{own}.") for own in modules)


@dataclass(slots=True)
class _TrainerObjects:
    parts: dict[str, Any] = field(default_factory=dict)  # objects of the library, by path
    foreign: dict[str, Any] = field(default_factory=dict)  # other objects that they hold: modules, callbacks


class TrainerState:
    """Captures a trainer and all objects of its library that it holds. Other objects that it holds are discovered."""

    runs_the_loop = True

    def __init__(self, library: Library, trainer: Any, *, reads_own: bool) -> None:
        self._library = library
        self._trainer = self.trainer = trainer
        skip_attributes(library.modules, library.skipped)
        # `reads_own`: code after the training reads files that the training wrote.
        self.journal_fields = {"by": library.name, "reads_own": reads_own}

    def state_dict(self) -> dict[str, Any]:
        found = self._walk().parts
        parts = {path: dict(self._plain_attributes(part)) for path, part in found.items()}
        generators = {path: _generator_states(part) for path, part in found.items()}
        return {
            "cwd": os.getcwd(),
            "parts": {path: values for path, values in parts.items() if values},
            "generators": {path: states for path, states in generators.items() if states},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        parts, old_folder, new_folder = self._walk().parts, state["cwd"], os.getcwd()
        for path in [*state["parts"], *state["generators"]]:
            if path not in parts:
                raise ReliveError(
                    f"{self._library.name} has no {path} now, which is in the checkpoint; replay with --from-start"
                )
        for path, values in state["parts"].items():
            for name, value in values.items():
                _set_attribute(parts[path], name, _relocate(value, old_folder, new_folder))
        for path, states in state["generators"].items():
            for name, generator in states.items():
                _restore_generator_attribute(parts[path], name, generator)

    def foreign_objects(self) -> dict[str, Any]:
        """Returns the objects that the library was given: the user's modules, optimizers, callbacks and data."""
        return self._walk().foreign

    def holds(self, objects: Iterable[Any]) -> bool:
        """Whether the walk finds all of these objects; if not, this version of the library is not supported."""
        found = {id(obj) for obj in self.foreign_objects().values()}
        return all(id(obj) in found for obj in objects)

    def parts(self) -> list[Any]:
        """Returns the trainer and the objects of its library."""
        return list(self._walk().parts.values())

    def _walk(self) -> _TrainerObjects:
        found, seen = _TrainerObjects(), {id(self._trainer)}
        todo: deque[tuple[str, Any, int]] = deque([("trainer", self._trainer, 0)])
        while todo:
            path, part, depth = todo.popleft()
            found.parts[path] = part
            for name, value in attributes_of(part).items():
                for inner, obj in _objects_inside(f"{path}.{name}", value):
                    is_library_object = self._library.owns(obj)
                    if (
                        id(obj) in seen
                        or (is_library_object and name in self._library.skipped)
                        or self._library.is_display(obj)
                    ):
                        continue
                    seen.add(id(obj))
                    if is_library_object and not _has_torch_handler(obj) and depth < MAX_DEPTH:
                        todo.append((inner, obj, depth + 1))
                    else:
                        found.foreign[inner] = obj
        return found

    def _plain_attributes(self, part: Any) -> Iterator[tuple[str, Any]]:
        for name, value in attributes_of(part).items():
            if name not in self._library.skipped and _CLOCK not in name and _is_plain_data(value, 0):
                yield name, _map_leaves(value, lambda leaf: leaf.detach() if hasattr(leaf, "detach") else leaf)


def unwrapped(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Returns named objects; in place of a library's state the trainer itself."""
    return {name: one.trainer if isinstance(one, TrainerState) else one for name, one in objects.items()}


def _generator_states(part: Any) -> dict[str, Any]:
    """Returns the states of generators that the library created, some of them only at their first draw."""
    return {name: generator_state(value) for name, value in attributes_of(part).items() if is_generator(value)}


def _restore_generator_attribute(part: Any, name: str, state: Any) -> None:
    torch, live = sys.modules.get("torch"), getattr(part, name, None)
    if live is None and torch is not None and is_leaf(state):
        live = torch.Generator()
        object.__setattr__(part, name, live)
    if live is None:
        raise ReliveError(
            f"{name} of {type(part).__name__} does not exist now, so it can't be restored; replay with --from-start"
        )
    restore_generator(live, state)


def _objects_inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the object of an attribute, or the objects in its list or dict."""
    if isinstance(value, (*_SCALARS, enum.Enum, type)) or is_leaf(value) or is_generator(value):
        return
    if type(value) not in (*_SEQUENCES, *_DICTS):
        yield path, value
    elif len(value) <= MAX_OBJECTS:
        items = value.items() if type(value) in _DICTS else enumerate(value)
        for key, item in list(items):
            yield from _objects_inside(f"{path}[{key!r}]", item)


def _has_torch_handler(obj: Any) -> bool:
    """Whether an object is a module or an optimizer, which have handlers; a wrapper of an optimizer is none."""
    wraps = {"optimizer", "_optimizer"} & getattr(obj, "__dict__", {}).keys()
    return hasattr(obj, "named_modules") or (hasattr(obj, "param_groups") and not wraps)


def _is_plain_data(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in _SCALARS:
        return True
    if is_leaf(value):
        return value.nbytes <= MAX_VARIABLE_BYTES and kind.__name__ != "Parameter"
    if kind not in (*_SEQUENCES, *_DICTS) or len(value) > MAX_ITEMS or depth > MAX_DEPTH:
        return False
    items: Collection[Any] = [*value.keys(), *value.values()] if kind in _DICTS else value
    return all(_is_plain_data(item, depth + 1) for item in items)


def _map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns the value with `change` applied to each of its leaves and texts."""
    kind = type(value)
    if kind is str or is_leaf(value):
        return change(value)
    if kind in _DICTS:
        return kind((key, _map_leaves(item, change)) for key, item in value.items())
    if kind in _SEQUENCES:
        return kind(_map_leaves(item, change) for item in value)
    return value


def _relocate(value: Any, old_folder: str, new_folder: str) -> Any:
    """Replaces the working folder of the run by that of the replay in all paths."""

    def move(text: Any) -> Any:
        inside = isinstance(text, str) and (text == old_folder or text.startswith(old_folder + os.sep))
        return new_folder + text[len(old_folder) :] if inside else text

    return _map_leaves(value, move)


def _set_attribute(part: Any, name: str, value: Any) -> None:
    before = getattr(part, "__dict__", {}).get(name, _MISSING)
    if type(before) in _SCALARS and type(before) is type(value) and before == value:
        return  # some attributes may be set once only
    object.__setattr__(part, name, refill(before, value))
