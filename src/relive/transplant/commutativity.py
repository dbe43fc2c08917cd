"""Whether a statement commutes with its neighbours, so that its exact position makes no difference."""

from __future__ import annotations

from relive.transplant.dependency_slice import SliceUnit
from relive.transplant.syntax import LOGGING_PREFIXES, SCOPES, Node, Slot, Tree, effects

_BARRIERS = ("return", "raise", "continue", "break", "yield", "del", "assert", "exit(", "sys.exit(")


def is_equivalent_slot(old: Tree, one: Slot, other: Slot, new: Tree, unit: SliceUnit) -> bool:
    """Whether two slots are in one block and everything between them commutes with the statement."""
    if one == other:
        return True
    if one.block is not other.block:
        return False
    first, last = sorted((one.index, other.index))
    reads, writes = _reads_and_writes(new, list(unit.nodes()))
    return all(_commutes(old, node, reads, writes) for node in (one.block.body or [])[first:last])


def _reads_and_writes(tree: Tree, nodes: list[Node]) -> tuple[set[str], set[str]]:
    """Returns the names that statements read, and the names they bind, change or unbind."""
    found = [effects(tree, node) for node in nodes]
    reads = {name for each in found for name in each.reads}
    return reads, {name for each in found for name in each.binds | each.changes | each.unbinds}


def _commutes(tree: Tree, node: Node, reads: set[str], writes: set[str]) -> bool:
    """Whether a statement commutes with one that has these reads and writes.

    A call whose result is discarded is made for its side effects, which are unknown; log calls have none that matter.
    """
    inside = [node] if node.kind in SCOPES else [node, *node.descendants()]
    for each in inside:
        if each.key.startswith(_BARRIERS) or not effects(tree, each).known:
            return False
        bare_call = not each.kind and not effects(tree, each).binds and "(" in each.key
        if bare_call and not each.key.startswith(LOGGING_PREFIXES):
            return False
    their_reads, their_writes = _reads_and_writes(tree, inside)
    return not (their_writes & (reads | writes) or writes & their_reads)
