"""What the objects of a library keep while it runs the loop itself: their plain attributes, by the way to each."""

from __future__ import annotations

import enum
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from relive.checkpoint.memory import is_leaf
from relive.checkpoint.state.frame_variables import refilled
from relive.checkpoint.state.object_state import MAX_ITEMS, MAX_OBJECTS, MAX_VARIABLE_BYTES, attributes_of
from relive.checkpoint.state.random_state import generator_state, is_generator, restore_generator
from relive.errors import ReliveError

MAX_DEPTH = 8
_SCALARS = (type(None), bool, int, float, str, bytes)
_SEQUENCES = (list, tuple, set, frozenset, deque)
_DICTS = (dict, OrderedDict)
_CLOCK = "time"  # attributes so called hold what a clock said, in another process
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Library:
    """How the objects of a library are told from others, and which of their attributes are no state."""

    name: str
    modules: tuple[str, ...]  # classes of these modules are the library's, and of those inside them
    skipped: frozenset[str] = frozenset()
    shown: tuple[str, ...] = ()  # classes of these modules, and those derived from them, only show how far it is

    def owns(self, value: Any) -> bool:
        return _is_of(type(value), self.modules)

    def only_shows(self, value: Any) -> bool:
        return any(_is_of(kind, self.shown) for kind in type(value).__mro__)


def _is_of(kind: type, modules: Iterable[str]) -> bool:
    module = kind.__module__
    return any(module == own or module.startswith(f"{own}.") for own in modules)


@dataclass(slots=True)
class _Walked:
    parts: dict[str, Any] = field(default_factory=dict)  # objects of the library
    things: dict[str, Any] = field(default_factory=dict)  # what they hold that is none of its own: modules, callbacks


class TrainerState:
    """The state of a trainer, and of all objects of its library that it holds. What else it holds is near."""

    is_led = True  # the loop is the library's

    def __init__(self, library: Library, trainer: Any, *, reads_own: bool) -> None:
        self._library = library
        self._trainer = trainer
        # `reads_own`: what comes after the training reads files that the training wrote.
        self.told = {"by": library.name, "reads_own": reads_own}

    def state_dict(self) -> dict[str, Any]:
        found = self._walk().parts
        parts = {way: dict(self._plain_of(part)) for way, part in found.items()}
        drawn = {way: _generators_of(part) for way, part in found.items()}
        return {
            "cwd": os.getcwd(),
            "parts": {way: values for way, values in parts.items() if values},
            "generators": {way: states for way, states in drawn.items() if states},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        there, then, now = self._walk().parts, state["cwd"], os.getcwd()
        for way in [*state["parts"], *state["generators"]]:
            if way not in there:
                raise ReliveError(f"{self._library.name} has no {way} now, which was kept; replay with --from-start")
        for way, values in state["parts"].items():
            for name, value in values.items():
                _put(there[way], name, _moved(value, then, now))
        for way, states in state["generators"].items():
            for name, drawn in states.items():
                _put_generator(there[way], name, drawn)

    def things(self) -> dict[str, Any]:
        """What the library was given: modules, optimizers, generators, callbacks and data of the user's."""
        return self._walk().things

    def holds(self, things: Iterable[Any]) -> bool:
        """Are all of these among them? A version of the library that has them elsewhere is not known well enough."""
        found = {id(thing) for thing in self.things().values()}
        return all(id(thing) in found for thing in things)

    def parts(self) -> list[Any]:
        return list(self._walk().parts.values())

    def _walk(self) -> _Walked:
        found, seen = _Walked(), {id(self._trainer)}
        todo: deque[tuple[str, Any, int]] = deque([("trainer", self._trainer, 0)])
        while todo:
            way, part, depth = todo.popleft()
            found.parts[way] = part
            for name, value in attributes_of(part).items():
                for inner, thing in _inside(f"{way}.{name}", value):
                    is_own = self._library.owns(thing)
                    if (
                        id(thing) in seen
                        or (is_own and name in self._library.skipped)
                        or self._library.only_shows(thing)
                    ):
                        continue
                    seen.add(id(thing))
                    if is_own and not _has_its_own_way(thing) and depth < MAX_DEPTH:
                        todo.append((inner, thing, depth + 1))
                    else:
                        found.things[inner] = thing
        return found

    def _plain_of(self, part: Any) -> Iterator[tuple[str, Any]]:
        for name, value in attributes_of(part).items():
            if name not in self._library.skipped and _CLOCK not in name and _is_plain(value, 0):
                yield name, _changed(value, lambda leaf: leaf.detach() if hasattr(leaf, "detach") else leaf)


def _generators_of(part: Any) -> dict[str, Any]:
    """Random generators that the library itself made, some of them only when they were first drawn from."""
    return {name: generator_state(value) for name, value in attributes_of(part).items() if is_generator(value)}


def _put_generator(part: Any, name: str, state: Any) -> None:
    torch, live = sys.modules.get("torch"), getattr(part, name, None)
    if live is None and torch is not None and is_leaf(state):
        live = torch.Generator()
        object.__setattr__(part, name, live)
    if live is None:
        raise ReliveError(f"{name} of {type(part).__name__} is not there to be restored; replay with --from-start")
    restore_generator(live, state)


def _inside(way: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The objects of an attribute: itself, or those in a list or dict."""
    if isinstance(value, (*_SCALARS, enum.Enum, type)) or is_leaf(value) or is_generator(value):
        return
    if type(value) not in (*_SEQUENCES, *_DICTS):
        yield way, value
    elif len(value) <= MAX_OBJECTS:
        items = value.items() if type(value) in _DICTS else enumerate(value)
        for key, item in list(items):
            yield from _inside(f"{way}[{key!r}]", item)


def _has_its_own_way(thing: Any) -> bool:
    """Modules and optimizers are kept like the user's; what only wraps an optimizer is not one."""
    wraps = {"optimizer", "_optimizer"} & getattr(thing, "__dict__", {}).keys()
    return hasattr(thing, "named_modules") or (hasattr(thing, "param_groups") and not wraps)


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in _SCALARS:
        return True
    if is_leaf(value):
        return value.nbytes <= MAX_VARIABLE_BYTES and kind.__name__ != "Parameter"
    if kind not in (*_SEQUENCES, *_DICTS) or len(value) > MAX_ITEMS or depth > MAX_DEPTH:
        return False
    items: Collection[Any] = [*value.keys(), *value.values()] if kind in _DICTS else value
    return all(_is_plain(item, depth + 1) for item in items)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same value, with each leaf and text of it changed."""
    kind = type(value)
    if kind is str or is_leaf(value):
        return change(value)
    if kind in _DICTS:
        return kind((key, _changed(item, change)) for key, item in value.items())
    if kind in _SEQUENCES:
        return kind(_changed(item, change) for item in value)
    return value


def _moved(value: Any, then: str, now: str) -> Any:
    """A replay has a folder of its own: paths into that of the run lead there."""

    def move(text: Any) -> Any:
        inside = isinstance(text, str) and (text == then or text.startswith(then + os.sep))
        return now + text[len(then) :] if inside else text

    return _changed(value, move)


def _put(part: Any, name: str, value: Any) -> None:
    before = getattr(part, "__dict__", {}).get(name, _MISSING)
    if type(before) in _SCALARS and type(before) is type(value) and before == value:
        return  # some attributes may be set once only
    object.__setattr__(part, name, refilled(before, value))
