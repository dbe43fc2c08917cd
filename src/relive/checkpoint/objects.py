"""What an object of the user's own class keeps between iterations: its data, attribute by attribute."""

from __future__ import annotations

import ast
import io
import linecache
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.frames import refilled
from relive.checkpoint.randomness import is_generator
from relive.checkpoint.subjects import Rest, Source
from relive.checkpoint.tree import Json, Unpicklable, is_leaf

MAX_VARIABLE_BYTES = 64 << 20
MAX_ITEMS = 200_000  # in a list or dict that is kept whole
_NO_STATE = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, io.IOBase)
_FOREIGN = ("/site-packages/", "/dist-packages/", "<frozen", "/lib/python3")
_DATA_MODULES = frozenset({"builtins", "collections", "numpy", "pathlib", "decimal", "datetime", "fractions", "uuid"})
_MISSING = object()


def is_foreign(filename: str) -> bool:
    """Code of Python, of a library, or of relive itself."""
    own = sys.modules["relive"].__file__ or ""
    return any(part in filename for part in _FOREIGN) or filename.startswith(own.removesuffix("__init__.py"))


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


def is_users_object(value: Any) -> bool:
    """An instance of a class of the project, such as a running average or a trainer."""
    if isinstance(value, _NO_STATE) or not hasattr(value, "__dict__") or hasattr(value, "state_dict"):
        return False
    return _is_users_class(type(value).__module__)


def _is_users_class(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (file is not None and not is_foreign(file))


class ObjectSubject:
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
        changing = changing_attributes(type(self._thing).__module__)
        trees: list[list[Any]] = []
        for name, value in list(vars(self._thing).items()):
            if changing is not None and name not in changing:
                continue
            if is_data(value) and not _holds_objects(value):
                try:
                    trees.append([name, plant(value, f"{self._name}.{name}")])
                except Unpicklable as error:
                    self.left_out.append(str(error))
            elif is_iterator(value):
                self.left_out.append(f"{self._name}.{name} is an iterator, whose place can't be kept")
        return {"$dict": trees}

    def put_back(self, leaves: dict[str, int], rest: Json, source: Source) -> None:
        for name, value in source.value(rest).items():
            before = vars(self._thing).get(name, _MISSING)
            setattr(self._thing, name, value if before is _MISSING else refilled(before, value))


def _holds_objects(value: Any) -> bool:
    """A list or dict of objects with state: those are looked after one by one."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(not is_data(item) and item is not None for item in list(items)[:64])


def changing_attributes(module: str) -> frozenset[str] | None:
    """The attributes that code of a module sets or changes outside of `__init__`; None when its source is gone."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return _changing_in(file) if file else None


@lru_cache(maxsize=256)
def _changing_in(filename: str) -> frozenset[str] | None:
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return None
    return frozenset(_changes(tree)) if tree.body else None


def _changes(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            continue
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store | ast.Del):
            yield child.attr
        elif isinstance(child, ast.Subscript) and isinstance(child.ctx, ast.Store | ast.Del):
            yield from _attribute(child.value)
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
            yield from _attribute(child.func.value)
        # What is given away may be changed by whoever gets it.
        if isinstance(child, ast.Call):
            for given in [*child.args, *(keyword.value for keyword in child.keywords)]:
                yield from _attribute(given)
        yield from _changes(child)


def _attribute(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        yield node.attr
        yield from _attribute(node.value)
