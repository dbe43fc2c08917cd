"""State that hides in functions, classes, modules and open files, where no variable of a running function shows it."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from relive.checkpoint.analysis import changed_globals, changing_attributes, given_by_functions
from relive.checkpoint.memory import Json, Unpicklable, is_leaf
from relive.checkpoint.state.object_state import is_data, is_iterator, is_small, missing
from relive.checkpoint.state.state_handlers import Rest, RestoreSource

_CONTAINERS = (list, dict, set, bytearray)
MAX_GIVEN_BYTES = 64 << 20
MAX_GIVEN = 10_000  # items of a list that is only given to others; larger ones are data sets
Places = Mapping[str, Any]


class PlacesHandler:
    """Places that hold data by name, and a way to put other data there."""

    kind = "places"

    def __init__(self, name: str, thing: Any, places: Callable[[], Places], put: Callable[[str, Any], None]) -> None:
        self._name = name
        self._thing = thing
        self._places = places
        self._put = put
        self.left_out: list[str] = []

    def tensors(self) -> dict[str, Any]:
        return {}

    def is_same(self) -> bool:
        return True

    def rest(self, plant: Callable[[Any, str], Json]) -> Rest:
        self.left_out = []
        trees: list[list[Any]] = []
        for name, value in self._places().items():
            if is_iterator(value):
                self.left_out.append(f"{self._name}.{name} is an iterator, whose place can't be kept")
                continue
            try:
                trees.append([name, plant(value, f"{self._name}.{name}")])
            except Unpicklable as error:
                self.left_out.append(str(error))
        return {"$dict": trees}

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        there = self._places()
        for name, value in source.value(rest).items():
            before = there.get(name, missing)
            self._put(name, source.settled(value) if before is missing else source.settle(before, value))


class FileHandler:
    """A file that is read bit by bit: how far it was read."""

    kind = "file"

    def __init__(self, name: str, file: Any) -> None:
        self._name = name
        self._thing = file
        self.left_out: list[str] = []

    def tensors(self) -> dict[str, Any]:
        return {}

    def is_same(self) -> bool:
        return True

    def rest(self, plant: Callable[[Any, str], Json]) -> Rest:
        self.left_out = []
        try:
            return plant(self._thing.tell(), self._name)
        except (OSError, ValueError):
            self.left_out = [f"{self._name} is a file in the middle of a loop over its lines, whose place isn't told"]
            return None

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        if rest is not None:
            self._thing.seek(source.value(rest))


class LostHandler:
    """Something that changes and can't be kept, and why."""

    kind = "lost"

    def __init__(self, why: str) -> None:
        self._thing = None
        self.left_out = [why]

    def tensors(self) -> dict[str, Any]:
        return {}

    def is_same(self) -> bool:
        return True

    def rest(self, plant: Callable[[Any, str], Json]) -> Rest:
        return None

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        """There is nothing to put back."""


def is_given(value: Any) -> bool:
    """Something that whoever gets it may change: a list or an array, say, but not a whole data set."""
    if is_leaf(value):
        return bool(value.nbytes <= MAX_GIVEN_BYTES)
    return isinstance(value, (*_CONTAINERS, deque)) and len(value) <= MAX_GIVEN


def is_read_file(value: Any) -> bool:
    """A file that is open for reading and not for writing, and that can be wound."""
    try:
        return isinstance(value, io.IOBase) and value.readable() and value.seekable() and not value.writable()
    except ValueError:  # it is closed
        return False


def function_places(function: FunctionType) -> Places:
    """What a function holds between its calls: cells, defaults that can be changed, attributes."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        value = _content(cell)
        if is_iterator(value) or (is_data(value) and (is_small(value) or isinstance(value, _CONTAINERS))):
            found[f"cell {name}"] = value
    for at, value in enumerate(function.__defaults__ or ()):
        if isinstance(value, _CONTAINERS) and is_data(value):
            found[f"default {at}"] = value
    for name, value in (function.__kwdefaults__ or {}).items():
        if isinstance(value, _CONTAINERS) and is_data(value):
            found[f"option {name}"] = value
    found |= {f"attribute {name}": value for name, value in vars(function).items() if is_data(value)}
    return found


def function_objects(function: FunctionType) -> Places:
    """The objects that a function holds: they are looked at by themselves."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = {name: _content(cell) for name, cell in cells}
    held |= {str(at): value for at, value in enumerate(function.__defaults__ or ())}
    held |= {**(function.__kwdefaults__ or {}), **vars(function)}
    return {name: value for name, value in held.items() if not is_data(value)}


def put_into_function(function: FunctionType) -> Callable[[str, Any], None]:
    def put(place: str, value: Any) -> None:
        kind, _, name = place.partition(" ")
        if kind == "cell":
            (function.__closure__ or ())[function.__code__.co_freevars.index(name)].cell_contents = value
        elif kind == "attribute":
            setattr(function, name, value)
        # Defaults are changed in place only.

    return put


def class_places(owner: type) -> Places:
    """Attributes of a class that the program changes."""
    changing = changing_attributes()
    return {
        name: value
        for name, value in vars(owner).items()
        if not name.startswith("__") and (changing is None or name in changing) and is_data(value)
    }


def module_places(module: ModuleType) -> Places:
    """Variables of a module that functions, or other modules, change."""
    file = getattr(module, "__file__", None) or ""
    changed, given, attributes = changed_globals(file), given_by_functions(file), changing_attributes() or frozenset()
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__")
        and (name in changed or (name in attributes and is_small(value)) or (name in given and is_given(value)))
        and (is_data(value) or value is None)
    }


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None
