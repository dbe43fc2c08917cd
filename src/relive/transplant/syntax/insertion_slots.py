"""Slots between statements, and the slots of the old version that are candidates for a statement of the new one."""

from __future__ import annotations

from dataclasses import dataclass

from relive.transplant.syntax.statement_pairs import Alignment
from relive.transplant.syntax.statement_tree import Node, Tree

SIBLINGS = 6  # siblings on each side whose partners are considered
_NEIGHBOURS = 5  # the same for neighbours in the text, of any block


@dataclass(frozen=True, slots=True)
class Slot:
    """A position between two statements: before the `index`-th of a block."""

    block: Node
    index: int

    @property
    def before(self) -> Node | None:
        return self.block.body[self.index - 1] if self.block.body and self.index else None

    @property
    def after(self) -> Node | None:
        body = self.block.body or []
        return body[self.index] if self.index < len(body) else None

    @property
    def depth(self) -> int:
        """Minus the nesting depth of its block: of slots at one place in the text, the innermost comes first."""
        return -sum(1 for _ in self.block.ancestors())

    @property
    def order(self) -> int:
        """The `order` that a statement inserted here would get."""
        before = self.before
        if before is not None:
            return before.after
        return self.block.order + 1 if self.block.parent is not None else 0


@dataclass(frozen=True, slots=True)
class SlotNeighbours:
    """The siblings of a statement of the new version, and the text around it."""

    node: Node
    before: list[Node]  # the siblings before it, the nearest first
    after: list[Node]
    gap_before: str  # the text between it and the preceding statement or header
    gap_after: str


def find_neighbours(tree: Tree, node: Node, is_excluded: list[bool]) -> SlotNeighbours:
    """Returns the neighbours of a statement, without the siblings that `is_excluded` marks."""
    parent = node.parent or tree.root
    if node.is_clause or parent.body is None:
        return SlotNeighbours(node, [], [], "", "")
    before = [sibling for sibling in reversed(parent.body[: node.index]) if not is_excluded[sibling.order]]
    after = [sibling for sibling in parent.body[node.index + 1 :] if not is_excluded[sibling.order]]
    start = parent.body[node.index - 1].end if node.index else parent.head_end
    end = parent.body[node.index + 1].start if node.index + 1 < len(parent.body) else _end_of_gap(tree, parent)
    return SlotNeighbours(node, before, after, tree.text[start : node.start], tree.text[node.end : end])


def _end_of_gap(tree: Tree, block: Node) -> int:
    following = tree.nodes[block.after].start if block.after < len(tree.nodes) else len(tree.text)
    return max(following, block.end)


def gap_text(tree: Tree, slot: Slot) -> str:
    """Returns the text of a slot: comments and blank lines."""
    before, after = slot.before, slot.after
    start = before.end if before is not None else slot.block.head_end
    return tree.text[start : after.start if after is not None else _end_of_gap(tree, slot.block)]


def candidate_slots(alignment: Alignment, neighbours: SlotNeighbours) -> list[Slot]:
    """Returns the slots worth scoring: beside the partners of the statement's neighbours, and at the ends of blocks."""
    node, partner = neighbours.node, alignment.old
    found: dict[Slot, None] = {}

    def add_beside(old: Node | None, *, after: bool) -> None:
        while old is not None and old.parent is not None:
            if not old.is_clause:
                for step in (0, 1, -1, 2, -2):
                    index = old.index + after + step
                    if 0 <= index <= len(old.parent.body or ()):
                        found.setdefault(Slot(old.parent, index))
            if after and old.body is not None:
                found.setdefault(Slot(old, 0))
            last = old.parent.body and old.parent.body[-1] is old
            old = old.parent if (after and last) or (not after and old.index == 0) else None

    for sibling in neighbours.before[:SIBLINGS]:
        add_beside(partner[sibling.order], after=True)
        if partner[sibling.order] is not None and sibling.body is not None:
            _add_ends(partner[sibling.order], found)
    for sibling in neighbours.after[:SIBLINGS]:
        add_beside(partner[sibling.order], after=False)
    for order in range(node.order - 1, max(-1, node.order - 1 - _NEIGHBOURS), -1):
        add_beside(partner[order], after=True)
    for order in range(node.after, min(len(partner), node.after + _NEIGHBOURS)):
        add_beside(partner[order], after=False)
    for outer in node.ancestors():
        old = partner[outer.order] if outer.parent is not None else alignment.old_tree.root
        if old is not None:
            _add_ends(old, found)
            break
    return [slot for slot in found if _takes_statements(slot)]


def _add_ends(old: Node | None, found: dict[Slot, None]) -> None:
    """Adds the first and the last slot of a statement's blocks."""
    for block in [old, *old.clauses] if old is not None else ():
        if block.body is not None:
            found.setdefault(Slot(block, 0))
            found.setdefault(Slot(block, len(block.body)))


def _takes_statements(slot: Slot) -> bool:
    return slot.block.kind != "match" and slot.block.body is not None
