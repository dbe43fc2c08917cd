"""How the door of a room opens only as far as somebody goes: names that load their module when first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(room: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a door: `modules` says which module of the room holds which names, separated by blanks."""
    home_of = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        module = home_of.get(name)
        if module is None:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        full = f"{room}.{module}"
        __import__(full)  # also when it is there: another thread may still be loading it
        value = getattr(sys.modules[full], name)
        setattr(sys.modules[room], name, value)  # the next time it is found without coming here
        return value

    return get
