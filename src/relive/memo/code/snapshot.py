"""The code of a function at one time: its hash, and what to check to know whether anything has changed since."""

from __future__ import annotations

import operator
import os
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from relive.errors import Unstable
from relive.hashing import stable_hash
from relive.memo.code.code_tokens import ABSENT, cell_content, substitute_code
from relive.memo.code.imported_sources import module_files

# Variables that say where and how a process was started, not what it should compute.
_CHANGING_VARIABLES = frozenset(
    "_ COLUMNS LINES OLDPWD PWD SHLVL TERM TERM_SESSION_ID WINDOWID SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK "
    "XDG_SESSION_ID INVOCATION_ID JOURNAL_STREAM PYTEST_CURRENT_TEST PYTEST_VERSION PYTEST_XDIST_WORKER "
    "PYTEST_XDIST_TESTRUNUID COV_CORE_DATAFILE".split()
)


class StaleSnapshot(Exception):
    """A traced value now refers to code that the snapshot does not contain."""


@dataclass(frozen=True, slots=True, eq=False)
class StateRoot:
    """A global, closure variable or attribute that the code reads and also changes."""

    label: str
    holder: Mapping[str, Any] | types.CellType | type  # where it is looked up
    name: str

    def read(self) -> Any:
        if isinstance(self.holder, types.CellType):
            return cell_content(self.holder)
        return (vars(self.holder) if isinstance(self.holder, type) else self.holder).get(self.name)


@dataclass(slots=True)
class Snapshot:
    """The code of a function or class at one time: its hash, its parts, and what to check for changes."""

    digest: str = ""
    parts: dict[str, str] = field(default_factory=dict)  # function, class or global → hash
    names: list[tuple[Mapping[str, Any], str, Any]] = field(default_factory=list)
    sizes: list[tuple[Mapping[str, Any], int]] = field(default_factory=list)
    functions: list[tuple[types.FunctionType, types.CodeType, Any, Any]] = field(default_factory=list)
    cells: list[tuple[types.CellType, Any]] = field(default_factory=list)
    values: list[tuple[Any, str]] = field(default_factory=list)  # mutable values, with their hashes
    files: list[tuple[str, str]] = field(default_factory=list)  # modules imported at run time, with their hashes
    members: list[tuple[Mapping[str, Any], list[Any]]] = field(default_factory=list)  # of library classes, by identity
    checks: list[tuple[Callable[[], Any], Any]] = field(default_factory=list)  # other facts, with their values
    index: dict[int, int] = field(default_factory=dict)  # id of each visited function and class → its number
    alive: list[Any] = field(default_factory=list)  # what an id stands for: another object must not get its address
    states: list[StateRoot] = field(default_factory=list)  # what the code both reads and changes; not in the hash
    volatile: dict[str, None] = field(default_factory=dict)  # clocks and sources of chance that it asks, by name
    unseen: dict[str, str] = field(default_factory=dict)  # what it may depend on and can't be seen, with the reason
    has_cache: bool = False  # it keeps results in memory, so a later call may not read again what it depends on

    def is_fresh(self) -> bool:
        """Whether nothing has changed. On the path of every hit, so compares identities wherever possible."""
        for namespace, name, expected in self.names:
            if namespace.get(name, ABSENT) is not expected:
                return False
        for function, code, defaults, kwdefaults in self.functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not kwdefaults
            ):
                return False
        for holder, size in self.sizes:
            if len(holder) != size:
                return False
        return self._are_contents_fresh()

    def _are_contents_fresh(self) -> bool:
        if self.members and not all(_are_same(members.values(), expected) for members, expected in self.members):
            return False
        if self.cells and any(cell_content(cell) is not expected for cell, expected in self.cells):
            return False
        if self.checks and any(check() != expected for check, expected in self.checks):
            return False
        if self.files and any(module_files(name)[1] != expected for name, expected in self.files):
            return False
        try:
            return not self.values or all(
                value_hash(value, self._known_code) == expected for value, expected in self.values
            )
        except (StaleSnapshot, Unstable):
            return False

    def _known_code(self, value: Any) -> object:
        """Replaces functions and classes inside a value by the numbers that they had when it was first hashed."""
        return substitute_code(value, self._known_number)

    def _known_number(self, thing: Any) -> int:
        number = self.index.get(id(thing))
        if number is None:
            raise StaleSnapshot
        return number


def _are_same(found: Collection[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(map(operator.is_, found, expected))


def value_hash(value: Any, substitute: Callable[[Any], object]) -> str:
    return stable_hash(value, exactly=True, substitute=substitute)


def environment() -> dict[str, str]:
    """Returns the variables that a computation may depend on."""
    found = dict(os.environ)
    return {
        name: found[name]
        for name in sorted(found)
        if name not in _CHANGING_VARIABLES and not name.startswith(("RELIVE_", "COV_CORE"))
    }
