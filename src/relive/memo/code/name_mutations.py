"""Which names a piece of code changes what they stand for: those are where it leaves things, not what it works from."""

from __future__ import annotations

import dis
from collections.abc import Sequence

_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"})
_INTO_ITEM = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
_INTO_ATTRIBUTE = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_METHODS = frozenset(
    "append appendleft extend extendleft insert add update setdefault pop popleft popitem remove discard clear sort "
    "reverse rotate subtract intersection_update difference_update symmetric_difference_update write writelines put "
    "put_nowait increment inc observe __setitem__ __delitem__ __iadd__".split()
)


def changed_and_read(steps: Sequence[dis.Instruction], owned: frozenset[str]) -> tuple[set[str], set[str]]:
    """The names that are changed, and those that are looked at otherwise; `owned` are the code's own variables."""
    changed: set[str] = set()
    read: set[str] = set()
    for at, step in enumerate(steps):
        name = str(step.argval)
        if name in owned:
            continue
        if step.opname in _STORES:
            changed.add(name)
        elif step.opname in _LOADS:
            (changed if _is_changed(steps, at) else read).add(name)
    return changed, read


def _is_changed(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Follow a value from where it is loaded to where it is used up: does anything store into it on the way?

    `depth` counts the values from this one upwards on Python's stack; what is taken out of it counts as part of it.
    """
    name, depth = steps[at].argval, 1
    for before, step in zip(steps[at:], steps[at + 1 :], strict=False):
        swapped = before.opname == "SWAP"
        if step.opname in _INTO_ITEM and (depth == 2 or (depth == 3 and swapped)):
            return True
        if step.opname in _INTO_ATTRIBUTE and (depth == 1 or (depth == 2 and swapped)):
            return True
        if step.opname in _STORES:
            return bool(step.argval == name and depth == 1)
        if step.opname in ("LOAD_METHOD", "LOAD_ATTR") and depth == 1 and step.argval in _METHODS:
            return True
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return False
        depth += dis.stack_effect(step.opcode, step.arg, jump=False)
        if depth < 1:
            return False
    return False
