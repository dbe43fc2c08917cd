"""What an object of the user's own class keeps between iterations: its data, attribute by attribute."""

from __future__ import annotations

import io
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import changing_attributes, is_projects, rebound_attributes
from relive.checkpoint.memory import Json, Unpicklable, is_leaf
from relive.checkpoint.state.loader_iterators import is_watched
from relive.checkpoint.state.random_state import is_generator
from relive.checkpoint.state.state_handlers import Rest, RestoreSource

MAX_VARIABLE_BYTES = 64 << 20
MAX_ITEMS = 200_000  # in a list or dict that is kept whole
MAX_OBJECTS = 64  # in a list or dict whose objects are looked after one by one
_CONTENT = "(content)"  # of a class derived from list, dict or set
_NO_STATE = (
    ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, io.IOBase, property, staticmethod, classmethod,
)  # fmt: skip
_DATA_MODULES = frozenset({"builtins", "collections", "numpy", "pathlib", "decimal", "datetime", "fractions", "uuid"})
_SIMPLE = (bool, int, float, str, type(None))  # kept with the module
missing = object()
_SMALL_BYTES = 1 << 20  # what nobody may ask for is kept if it is no larger
_SMALL_ITEMS = 1_000
_PARTS = (list, tuple, dict, set, frozenset, deque)
_BUILTIN_PARTS = (list, dict, set)


def is_data(value: Any) -> bool:
    """Numbers, texts, containers, tensors and arrays; not machinery, which a restart makes anew."""
    if isinstance(value, _NO_STATE) or is_generator(value) or is_iterator(value):
        return False
    if is_leaf(value):
        return bool(value.nbytes <= MAX_VARIABLE_BYTES)
    if type(value).__module__ not in _DATA_MODULES:
        return False
    return not isinstance(value, list | dict | set | tuple) or len(value) <= MAX_ITEMS


def is_iterator(value: Any) -> bool:
    """Something that is used up by `next`: where it stands can't be kept."""
    return hasattr(type(value), "__next__") and not isinstance(value, io.IOBase)


def is_lost_iterator(value: Any) -> bool:
    """The same, but for those that relive counts."""
    return is_iterator(value) and not is_watched(value)


def is_small(value: Any, depth: int = 0) -> bool:
    """Little enough to be kept without knowing whether anybody will ask for it: numbers, short lists, small arrays."""
    if is_leaf(value):
        return bool(value.nbytes <= _SMALL_BYTES >> depth)
    if isinstance(value, _PARTS):
        items = value.values() if isinstance(value, dict) else value
        limit = _SMALL_ITEMS >> 2 * depth
        return is_data(value) and len(value) <= limit and all(is_small(item, depth + 1) for item in list(items))
    if depth == 0 and is_users_object(value):
        return all(is_small(part, 1) for part in attributes_of(value).values())
    return value is None or (is_data(value) and (not hasattr(value, "__len__") or len(value) <= _SMALL_ITEMS))


def is_users_object(value: Any) -> bool:
    """An instance of a class of the project, such as a running average or a trainer."""
    if isinstance(value, _NO_STATE) or _has_its_own_way(value):
        return False
    return is_projects(type(value).__module__) and (hasattr(value, "__dict__") or bool(_slots(type(value))))


def _has_its_own_way(value: Any) -> bool:
    """Modules, optimizers, schedulers and scalers of torch are kept otherwise, whoever derived them."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(value, "state_dict"):
        return False
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
    return isinstance(value, kinds)


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots too."""
    slots = {name: getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> list[str]:
    found: list[str] = []
    for base in kind.__mro__:
        own = base.__dict__.get("__slots__", ())
        found += [own] if isinstance(own, str) else list(own)
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def may_change(value: Any) -> bool:
    """May the program change an attribute of this object after it was made?"""
    changing = changing_of(type(value))
    return changing is None or any(name in changing for name in attributes_of(value))


def changing_of(kind: type) -> frozenset[str] | None:
    """The attributes of objects of a class that may change; None: any, since a library has a hand in it."""
    bases = [base for base in kind.__mro__[:-1] if not is_projects(base.__module__)]
    foreign = [base for base in bases if base.__module__ not in ("builtins", "abc", "typing", "enum")]
    return None if foreign else changing_attributes()


class ObjectHandler:
    """An object of the user's own class. Only attributes that some method or function changes are kept."""

    kind = "object"

    def __init__(self, name: str, thing: Any) -> None:
        self._name = name
        self._thing = thing
        self.left_out: list[str] = []

    def tensors(self) -> dict[str, Any]:
        return {}

    def is_same(self) -> bool:
        return True

    def rest(self, plant: Callable[[Any, str], Json]) -> Rest:
        self.left_out = []
        changing = changing_of(type(self._thing))
        trees: list[list[Any]] = []
        for name, value in self._parts(changing):
            if is_data(value) and not holds_too_many(value):
                try:
                    trees.append([name, plant(value, f"{self._name}.{name}")])
                except Unpicklable as error:
                    self.left_out.append(str(error))
            elif is_lost_iterator(value):
                self.left_out.append(f"{self._name}.{name} is an iterator, whose place can't be kept")
        return {"$dict": trees}

    def _parts(self, changing: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        for name, value in attributes_of(self._thing).items():
            if changing is None or name in changing:
                yield name, value
        for kind in _BUILTIN_PARTS:
            if isinstance(self._thing, kind):
                yield _CONTENT, kind(self._thing)

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        there, rebound = attributes_of(self._thing), rebound_attributes()
        for name, value in source.value(rest).items():
            if name == _CONTENT:
                _refill(self._thing, value)
                continue
            before = there.get(name, missing)
            is_new = before is missing or (is_leaf(value) and (rebound is None or name in rebound))
            object.__setattr__(self._thing, name, source.settled(value) if is_new else source.settle(before, value))


class ModuleAttributes(ObjectHandler):
    """What the user's own modules have besides parameters, buffers and simple attributes, and the program changes."""

    kind = "module attributes"

    def _parts(self, changing: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        yield from own_attributes(self._thing).items()


def own_attributes(module: Any) -> dict[str, Any]:
    """Attributes of a module that are neither torch's nor kept with its parameters."""
    changing, torchs = changing_attributes(), _module_attributes()
    return {
        name: value
        for name, value in vars(module).items()
        if name not in torchs
        and (name in changing if changing is not None else name[0] != "_" or type(value) in _SIMPLE)
        and (name[0] == "_" or type(value) not in _SIMPLE)
    }


@lru_cache(maxsize=1)
def _module_attributes() -> frozenset[str]:
    return frozenset(vars(sys.modules["torch"].nn.Module()))


def _refill(thing: Any, content: Any) -> None:
    if isinstance(thing, list):
        thing[:] = content
    else:
        thing.clear()
        thing.update(content)


def holds_too_many(value: Any) -> bool:
    """A list or dict of so many objects that they are not looked after one by one."""
    return isinstance(value, _PARTS) and len(value) > MAX_OBJECTS and _first_object(value) is not None


def loses_objects(value: Any) -> bool:
    """The same, and the program changes such objects."""
    return holds_too_many(value) and may_change(_first_object(value))


def _first_object(value: Any) -> Any:
    items = list(value.values() if isinstance(value, dict) else value)[:MAX_OBJECTS]
    return next((item for item in items if is_users_object(item)), None)
