"""The modules inside a torch module, collected again only when they have changed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import is_
from typing import Any

from relive.checkpoint.analysis import is_project_module


class ModuleParts:
    """All modules inside a module, including itself."""

    def __init__(self, module: Any) -> None:
        found = list(module.named_modules())
        self.identities = frozenset(id(part) for _, part in found)
        # Modules of the project's own classes, with their paths: they may hold state that torch doesn't know of.
        self.of_project = [(path, part) for path, part in found if is_project_module(type(part).__module__)]
        self._holders: list[dict[str, Any]] = [part._modules for _, part in found]
        self._children = list(_values(self._holders))

    def are_unchanged(self) -> bool:
        """Whether the module still consists of the same modules. Loops in C, because the training waits."""
        now = list(_values(self._holders))
        return len(now) == len(self._children) and all(map(is_, now, self._children))


def _values(holders: Iterable[dict[str, Any]]) -> Iterable[Any]:
    return chain.from_iterable(map(dict.values, holders))


class ModulePartsCache:
    """The parts of modules by identity. References the modules, so that no identity is reused."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, ModuleParts]] = {}

    def parts_of(self, module: Any) -> ModuleParts:
        """Returns the current parts of a module."""
        _, known = self._known.get(id(module), (None, None))
        if known is None or not known.are_unchanged():
            known = ModuleParts(module)
            self._known[id(module)] = module, known
        return known
