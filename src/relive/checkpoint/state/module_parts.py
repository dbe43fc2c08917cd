"""What a torch module is made of: found once, and found again only when its parts have changed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import is_
from typing import Any

from relive.checkpoint.analysis import is_projects


class ModuleParts:
    """All modules inside one, itself included."""

    def __init__(self, module: Any) -> None:
        found = list(module.named_modules())
        self.identities = frozenset(id(part) for _, part in found)
        # Those of the project's own classes, and how they are reached: they may hold more than torch knows of.
        self.own = [(way, part) for way, part in found if is_projects(type(part).__module__)]
        self._holders: list[dict[str, Any]] = [part._modules for _, part in found]
        self._children = list(_values(self._holders))

    def are_the_same(self) -> bool:
        """In loops of C, because the training waits for the answer."""
        now = list(_values(self._holders))
        return len(now) == len(self._children) and all(map(is_, now, self._children))


def _values(holders: Iterable[dict[str, Any]]) -> Iterable[Any]:
    return chain.from_iterable(map(dict.values, holders))


class ModulePartsCache:
    """The parts of modules that were looked at. Holds them all: it lives as long as their state is kept."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, ModuleParts]] = {}

    def parts_of(self, module: Any) -> ModuleParts:
        """The parts of a module as they are now."""
        _, known = self._known.get(id(module), (None, None))
        if known is None or not known.are_the_same():
            known = ModuleParts(module)
            self._known[id(module)] = module, known
        return known
