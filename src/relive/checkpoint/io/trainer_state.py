"""The trainer of a library that runs the loop itself: which of its attributes are no state, and what it leads to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from relive.checkpoint.graph import Observer, Roots
from relive.checkpoint.graph.handlers import skip_attributes

_SEARCH_S = 5.0  # the longest that a training waits until the objects that it was given are found


@dataclass(frozen=True, slots=True)
class Library:
    """How to recognize the objects of a library, and which of their attributes are no state."""

    name: str
    modules: tuple[str, ...]  # the library's classes are defined in these modules and packages
    skipped: frozenset[str] = frozenset()
    shown: tuple[str, ...] = ()  # classes of these modules only display progress


class TrainerState:
    """Stands for a trainer among the named objects: its state is that of the trainer and of all that it holds."""

    runs_the_loop = True

    def __init__(self, library: Library, trainer: Any, *, reads_own: bool) -> None:
        self.library = library
        self.trainer = trainer
        # `reads_own`: code after the training reads files that the training wrote.
        self.journal_fields = {"by": library.name, "reads_own": reads_own}
        skip_attributes(library.modules, library.skipped, shown=library.shown)

    def holds(self, objects: Iterable[Any]) -> bool:
        """Whether the trainer leads to all of these objects; if not, this version of the library is not supported."""
        walk = Observer().walk(Roots({self.library.name: self.trainer}, has_modules=False), seconds=_SEARCH_S)
        found = {id(node.obj) for node in walk.nodes}
        walk.release()
        return all(id(obj) in found for obj in objects)


def unwrapped(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Returns named objects; in place of a library's state the trainer itself."""
    return {name: one.trainer if isinstance(one, TrainerState) else one for name, one in objects.items()}
