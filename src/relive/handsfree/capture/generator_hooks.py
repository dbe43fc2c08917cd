"""Notes the global random generators of libraries when the script imports them, so that a replay begins with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

from relive.record import session

# Module whose import makes the generator → name of the library among the random states.
_LIBRARIES = {"numpy.random": "numpy", "torch": "torch"}


def _note_generators(library: str, _module: ModuleType) -> None:
    if session.driver is not None:  # else the line that the run begins with has them
        session.driver.note_generators(library)


GENERATOR_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    module: partial(_note_generators, library) for module, library in _LIBRARIES.items()
}
