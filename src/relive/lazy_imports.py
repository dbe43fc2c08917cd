"""Lazy names for the `__init__.py` of a package: each is listed once, and loads its module on first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

_IMPORT = re.compile(r"^    from (\S+) import (\([^)]*\)|.*)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def lazy_names(room: str) -> Callable[[str], Any]:
    """Returns a `__getattr__` that resolves the names imported under `if TYPE_CHECKING:` in the room's `__init__.py`.

    Type checkers read that block; reading it here as well keeps it the only list of names.
    """

    spec = sys.modules[room].__spec__
    source = spec.loader.get_data(spec.origin).decode()  # type: ignore[union-attr]
    block = source.partition("\nif TYPE_CHECKING:\n")[2]
    modules_by_name = {name: module for module, names in _IMPORT.findall(block) for name in _NAME.findall(names)}

    def get(name: str) -> Any:
        module = modules_by_name.get(name)
        if module is None:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        if module == room:  # the name is a module of the room
            __import__(f"{room}.{name}")
            return sys.modules[f"{room}.{name}"]
        __import__(module)  # also when it is loaded: another thread may still be executing it
        value = getattr(sys.modules[module], name)
        setattr(sys.modules[room], name, value)  # later lookups do not call this function
        return value

    return get
