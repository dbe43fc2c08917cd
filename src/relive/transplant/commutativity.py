"""Whether it matters on which side of its neighbours a statement stands."""

from __future__ import annotations

from relive.transplant.dependency_slice import SliceUnit
from relive.transplant.syntax import SCOPES, Node, Slot, Tree, effects

_LEAVES = ("return", "raise", "continue", "break", "yield", "del", "assert", "exit(", "sys.exit(")
_ONLY_TELL = ("print(", "logger.", "logging.", "log(", "relive.log(", "wandb.log(", "writer.add_", "tqdm.write(")


def makes_no_difference(old: Tree, one: Slot, other: Slot, new: Tree, unit: SliceUnit) -> bool:
    """Whether two slots are of one block and all that stands between them commutes with the statement."""
    if one == other:
        return True
    if one.block is not other.block:
        return False
    first, last = sorted((one.index, other.index))
    reads, writes = _told(new, list(unit.nodes()))
    return all(_commutes(old, node, reads, writes) for node in (one.block.body or [])[first:last])


def _told(tree: Tree, nodes: list[Node]) -> tuple[set[str], set[str]]:
    found = [effects(tree, node) for node in nodes]
    reads = {name for each in found for name in each.reads}
    return reads, {name for each in found for name in each.binds | each.changes | each.unbinds}


def _commutes(tree: Tree, node: Node, reads: set[str], writes: set[str]) -> bool:
    """A call whose result nobody keeps is made for what it changes, which can't be seen; telling changes nothing."""
    inside = [node] if node.kind in SCOPES else [node, *node.inside()]
    for each in inside:
        if each.key.startswith(_LEAVES) or not effects(tree, each).known:
            return False
        bare_call = not each.kind and not effects(tree, each).binds and "(" in each.key
        if bare_call and not each.key.startswith(_ONLY_TELL):
            return False
    their_reads, their_writes = _told(tree, inside)
    return not (their_writes & (reads | writes) or writes & their_reads)
