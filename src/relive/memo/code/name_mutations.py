"""Which globals and closure variables bytecode rebinds or mutates: these hold state and are not inputs."""

from __future__ import annotations

import dis
from collections.abc import Sequence

_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"})
_ITEM_STORES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
_ATTRIBUTE_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_MUTATING_METHODS = frozenset(
    "append appendleft extend extendleft insert add update setdefault pop popleft popitem remove discard clear sort "
    "reverse rotate subtract intersection_update difference_update symmetric_difference_update write writelines put "
    "put_nowait increment inc observe __setitem__ __delitem__ __iadd__".split()
)


def find_mutated_and_read(steps: Sequence[dis.Instruction], owned: frozenset[str]) -> tuple[set[str], set[str]]:
    """Returns the names that are rebound or mutated, and those only read; names in `owned` are skipped."""
    mutated: set[str] = set()
    read: set[str] = set()
    for at, step in enumerate(steps):
        name = str(step.argval)
        if name in owned:
            continue
        if step.opname in _STORES:
            mutated.add(name)
        elif step.opname in _LOADS:
            (mutated if _is_mutated(steps, at) else read).add(name)
    return mutated, read


def _is_mutated(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether a value is stored into between the instruction that loads it and the one that consumes it.

    `depth` is the number of stack entries from this value to the top; a value taken out of it counts as part of it.
    """
    name, depth = steps[at].argval, 1
    for before, step in zip(steps[at:], steps[at + 1 :], strict=False):
        swapped = before.opname == "SWAP"
        if step.opname in _ITEM_STORES and (depth == 2 or (depth == 3 and swapped)):
            return True
        if step.opname in _ATTRIBUTE_STORES and (depth == 1 or (depth == 2 and swapped)):
            return True
        if step.opname in _STORES:
            return bool(step.argval == name and depth == 1)
        if step.opname in ("LOAD_METHOD", "LOAD_ATTR") and depth == 1 and step.argval in _MUTATING_METHODS:
            return True
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return False
        depth += dis.stack_effect(step.opcode, step.arg, jump=False)
        if depth < 1:
            return False
    return False
