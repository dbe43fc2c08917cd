"""Code that was added beside the log statements: what it binds, and whether it draws or orders things by chance."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relive.hindsight.analysis.reads.added_state import added_lines, has_callbacks
from relive.hindsight.analysis.reads.expression_reads import dotted_name
from relive.hindsight.analysis.reads.set_order import depends_on_set_order, names_of_sets
from relive.hindsight.analysis.reads.volatile_calls import ORDER

SELF_SEEDING = re.compile(
    r"(^|\.)(default_rng|RandomState|SeedSequence|PCG64|PCG64DXSM|MT19937|Philox|SFC64)$|(^|\.)random\.Random$"
)


@dataclass(frozen=True, slots=True)
class OwnCode:
    """`names`: variables, functions and classes that added code makes; no recorded state has them."""

    names: frozenset[str] = frozenset()
    seeds_itself: str = ""  # a generator that it makes without a seed
    has_set_order: bool = False
    has_callbacks: bool = False  # functions of it are called by others: hooks

    def label(self, *, has_hash_seed: bool) -> str | None:
        """Returns what the added code depends on besides the state; None if that is nothing."""
        if self.seeds_itself:
            return f"draws random numbers of a generator that seeds itself ({self.seeds_itself})"
        return ORDER if self.has_set_order and not has_hash_seed else None


def find_own_code(texts: Sequence[tuple[str, str]], statements: Collection[int]) -> OwnCode:
    """Finds what was added to files, given as old and new texts, beside the log statements that begin at some lines."""
    names: set[str] = set()
    seeding, has_order = "", False
    for old, new in texts:
        lines = added_lines(old, new) - {*statements}
        try:
            nodes = [*ast.walk(ast.parse(new))] if lines else []
        except (SyntaxError, ValueError, RecursionError):
            continue
        sets = names_of_sets(nodes)
        for node in nodes:
            if getattr(node, "lineno", 0) not in lines:
                continue
            match node:
                case ast.Name(name, ast.Store()) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                    names.add(name)
                case ast.ClassDef(name):
                    names.add(name)
                case ast.Call(function, [], []) if SELF_SEEDING.search(dotted_name(function)):
                    seeding = seeding or dotted_name(function)
            value = getattr(node, "iter", None) or getattr(node, "value", None)
            has_order |= isinstance(node, ast.stmt) and value is not None and depends_on_set_order(value, sets)
    calls_back = any(has_callbacks({"": old}, {"": new}) for old, new in texts)
    return OwnCode(frozenset(names), seeding, has_order, calls_back)
