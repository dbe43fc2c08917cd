"""State outside of frames and objects: in functions, classes, modules and open files."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from relive.checkpoint.analysis import escaping_from_functions, mutated_attributes, mutated_globals
from relive.checkpoint.memory import Json, Unpicklable, is_leaf
from relive.checkpoint.state.object_state import MISSING, is_data, is_iterator, is_small
from relive.checkpoint.state.state_handlers import Flatten, OtherState, RestoreSource, TensorlessHandler

_CONTAINERS = (list, dict, set, bytearray)
MAX_ESCAPING_BYTES = 64 << 20
MAX_ESCAPING_ITEMS = 10_000  # larger lists that only escape are data sets
Namespace = Mapping[str, Any]


class NamespaceHandler(TensorlessHandler):
    """Captures a namespace: data by name in a function, class or module."""

    kind = "places"

    def __init__(
        self, name: str, obj: Any, namespace: Callable[[], Namespace], set_: Callable[[str, Any], None]
    ) -> None:
        self._name = name
        self._object = obj
        self._namespace = namespace
        self._set = set_
        self.uncaptured: list[str] = []

    def other_state(self, flatten: Flatten) -> OtherState:
        self.uncaptured = []
        trees: list[list[Any]] = []
        for name, value in self._namespace().items():
            if is_iterator(value):
                self.uncaptured.append(f"{self._name}.{name} is an iterator, whose position can't be kept")
                continue
            try:
                trees.append([name, flatten(value, f"{self._name}.{name}")])
            except Unpicklable as error:
                self.uncaptured.append(str(error))
        return {"$dict": trees}

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        current = self._namespace()
        for name, value in source.unflatten(tree).items():
            before = current.get(name, MISSING)
            self._set(name, source.live_object_for(value) if before is MISSING else source.refill(before, value))


class FileHandler(TensorlessHandler):
    """Captures the read position of a file."""

    kind = "file"

    def __init__(self, name: str, file: Any) -> None:
        self._name = name
        self._object = file
        self.uncaptured: list[str] = []

    def other_state(self, flatten: Flatten) -> OtherState:
        self.uncaptured = []
        try:
            return flatten(self._object.tell(), self._name)
        except (OSError, ValueError):
            self.uncaptured = [
                f"{self._name} is a file in the middle of a loop over its lines, whose position is unknown"
            ]
            return None

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        if tree is not None:
            self._object.seek(source.unflatten(tree))


class UnsupportedHandler(TensorlessHandler):
    """Stands for state that can't be captured, with the reason."""

    kind = "lost"

    def __init__(self, why: str) -> None:
        self._object = None
        self.uncaptured = [why]

    def other_state(self, flatten: Flatten) -> OtherState:
        return None

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        """Does nothing: there is no state."""


def is_small_mutable_data(value: Any) -> bool:
    """Whether a value is mutable data, such as a list or an array, and smaller than a data set."""
    if is_leaf(value):
        return bool(value.nbytes <= MAX_ESCAPING_BYTES)
    return isinstance(value, (*_CONTAINERS, deque)) and len(value) <= MAX_ESCAPING_ITEMS


def is_input_file(value: Any) -> bool:
    """Whether a value is a seekable file that is open for reading only."""
    try:
        return isinstance(value, io.IOBase) and value.readable() and value.seekable() and not value.writable()
    except ValueError:  # a closed file
        return False


def function_namespace(function: FunctionType) -> Namespace:
    """Returns the data that a function holds between its calls: cells, mutable defaults, attributes."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        value = _cell_value(cell)
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


def function_objects(function: FunctionType) -> Namespace:
    """Returns the objects that a function holds; discovery visits them."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    values = {name: _cell_value(cell) for name, cell in cells}
    values |= {str(at): value for at, value in enumerate(function.__defaults__ or ())}
    values |= {**(function.__kwdefaults__ or {}), **vars(function)}
    return {name: value for name, value in values.items() if not is_data(value)}


def function_setter(function: FunctionType) -> Callable[[str, Any], None]:
    """Returns a function that sets a name of `function_namespace`."""

    def set_(key: str, value: Any) -> None:
        kind, _, name = key.partition(" ")
        if kind == "cell":
            (function.__closure__ or ())[function.__code__.co_freevars.index(name)].cell_contents = value
        elif kind == "attribute":
            setattr(function, name, value)
        # Defaults are only refilled in place.

    return set_


def class_namespace(owner: type) -> Namespace:
    """Returns the attributes of a class that the project mutates."""
    mutated = mutated_attributes()
    return {
        name: value
        for name, value in vars(owner).items()
        if not name.startswith("__") and (mutated is None or name in mutated) and is_data(value)
    }


def module_namespace(module: ModuleType) -> Namespace:
    """Returns the variables of a module that functions, or other modules, mutate."""
    file = getattr(module, "__file__", None) or ""
    mutated, escaping = mutated_globals(file), escaping_from_functions(file)
    attributes = mutated_attributes() or frozenset()
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__")
        and (
            name in mutated
            or (name in attributes and is_small(value))
            or (name in escaping and is_small_mutable_data(value))
        )
        and (is_data(value) or value is None)
    }


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None
