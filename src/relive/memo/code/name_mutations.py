"""Which globals and closure variables bytecode rebinds, mutates or reads: what it changes is no input."""

from __future__ import annotations

import dis
from collections.abc import Sequence

_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"})
_ITEM_STORES = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
_ATTRIBUTE_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_READING_METHODS = frozenset("setdefault pop popleft popitem".split())  # they mutate, and return what was there
_MUTATING_METHODS = _READING_METHODS | frozenset(
    "append appendleft extend extendleft insert add update remove discard clear sort "
    "reverse rotate subtract intersection_update difference_update symmetric_difference_update write writelines put "
    "put_nowait increment inc observe __setitem__ __delitem__ __iadd__".split()
)

Place = tuple[str, str]  # a name, and the attribute of it that is used, or ""


def find_mutated_and_read(steps: Sequence[dis.Instruction], owned: frozenset[str]) -> tuple[set[Place], set[Place]]:
    """Returns what is rebound or mutated, and what is read; names in `owned` are skipped."""
    mutated: set[Place] = set()
    read: set[Place] = set()
    for at, step in enumerate(steps):
        name = str(step.argval)
        if step.opname in _ATTRIBUTE_LOADS and not _is_updated(steps, at):
            read.add(("", name))
        if name in owned:
            continue
        if step.opname in _STORES:
            mutated.add((name, ""))
        elif step.opname in _LOADS:
            attribute, is_read = _find_mutation(steps, at)
            if attribute is not None:
                mutated.add((name, attribute))
            if is_read:
                read.add((name, _loaded_attribute(steps, at)))
    return mutated, read


def _loaded_attribute(steps: Sequence[dis.Instruction], at: int) -> str:
    """Returns the attribute that is loaded from the value just loaded, or ""."""
    after = next((step for step in steps[at + 1 :] if step.opname != "COPY"), None)
    return str(after.argval) if after is not None and after.opname in _ATTRIBUTE_LOADS else ""


def _is_updated(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether an attribute is loaded only to be assigned again, as by `+=`."""
    return at > 0 and steps[at - 1].opname == "COPY"


def _find_mutation(steps: Sequence[dis.Instruction], at: int) -> tuple[str | None, bool]:
    """Returns the attribute through which a value is stored into before it is consumed, and whether it is read.

    The attribute is "" if the value itself is stored into, and None if nothing is.
    `depth` is the number of stack entries from this value to the top; a value taken out of it counts as part of it.
    """
    name, depth = steps[at].argval, 1
    inner = _loaded_attribute(steps, at)
    for before, step in zip(steps[at:], steps[at + 1 :], strict=False):
        swapped = before.opname == "SWAP"
        if step.opname in _ITEM_STORES and (depth == 2 or (depth == 3 and swapped)):
            return inner, False
        if step.opname in _ATTRIBUTE_STORES and (depth == 1 or (depth == 2 and swapped)):
            return inner or str(step.argval), False
        if step.opname in _STORES:
            is_own_update = step.argval == name and depth == 1
            return ("", False) if is_own_update else (None, True)
        if step.opname in _ATTRIBUTE_LOADS and depth == 1 and step.argval in _MUTATING_METHODS:
            return ("" if inner == step.argval else inner), step.argval in _READING_METHODS
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return None, True
        depth += dis.stack_effect(step.opcode, step.arg, jump=False)
        if depth < 1:
            return None, True
    return None, True
