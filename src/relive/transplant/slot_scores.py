"""How well a gap of the old version suits a statement: what is counted, and how much each counts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from relive.transplant.syntax import LOOPS, SIBLINGS, Alignment, Node, Slot, SlotNeighbours, gap

_COMMENT = re.compile(r"#[^\r\n]*")
_BLANK = re.compile(r"(?:\r\n|\n|\r)[ \t\f]*(?:\r\n|\n|\r)")

WEIGHTS = {
    "previous": 1.71,  # the sibling before it is the one before the gap
    "previous_blank": -1.73,  # … with a blank line between them
    "next": 1.88,  # the sibling after it is the one after the gap
    "next_blank": -2.08,  # … with a blank line between them
    "at_start": 0.30,  # both are the first of a block
    "at_end": 0.45,  # both are the last of a block
    "parent": 0.93,  # the block is the one it stands in
    "other_parent": -0.92,  # its block has another partner
    "before_in_order": 0.50,  # siblings before it that are before the gap
    "after_in_order": 0.70,  # siblings after it that are after the gap
    "before_crossed": -0.94,  # siblings before it that are after the gap
    "after_crossed": -1.26,  # siblings after it that are before the gap
    "text_previous": 0.94,  # the statement before it in the text, of any block
    "text_next": 0.95,  # the statement after it in the text, of any block
    "loop": 0.27,  # the innermost loop is the same
    "scope": 0.58,  # the function is the same
    "comment": 1.36,  # the comment above it stands in the gap
    "comment_below": 1.76,  # the comment below it stands in the gap
    "blank_before": 0.81,  # both have a blank line
    "blank_after": 1.23,  # both have a blank line
    "uses_crossed": -0.83,  # words that it has in common with earlier statements, which are after the gap
    "used_crossed": -0.56,  # words that it has in common with later statements, which are before the gap
    "far_before": -0.36,  # statements between the gap and the nearest sibling
    "far_after": -0.15,  # the same, after it
    "akin_before": 1.47,  # words shared with the statement before the gap
    "akin_after": 0.35,  # words shared with the statement after the gap
    "previous_akin": 0.91,  # the sibling before it is there, and speaks of the same
    "next_akin": 1.11,  # the sibling after it is there, and speaks of the same
}


class Weigher:
    """Says how well each slot suits a statement."""

    def __init__(self, alignment: Alignment, around: SlotNeighbours) -> None:
        self.alignment, self.around = alignment, around
        self.old_nodes = alignment.old_tree.nodes
        partner, likeness = alignment.old, alignment.likeness
        self.before = [(partner[node.order], likeness[node.order]) for node in around.before[:SIBLINGS]]
        self.after = [(partner[node.order], likeness[node.order]) for node in around.after[:SIBLINGS]]
        node = around.node
        self.parent = self._partner_of(node.parent)
        self.scope = self._partner_of(node.scope)
        self.loops = [outer for outer in node.around() if outer.kind in LOOPS]
        self.text_previous = partner[node.order - 1] if node.order else None
        self.text_next = partner[node.after] if node.after < len(partner) else None
        self.blank_before = bool(_BLANK.search(around.gap_before))
        self.blank_after = bool(_BLANK.search(around.gap_after))
        self.comment = _comment_words(around.gap_before)
        self.comment_below = _comment_words(around.gap_after)
        self.words = _all_words(node)
        self.uses = list(self._flow(range(node.order - 1, -1, -1)))
        self.used = list(self._flow(range(node.after, len(partner))))
        self.akin_previous = _akin(self.words, around.before[0]) if around.before else 0.0
        self.akin_next = _akin(self.words, around.after[0]) if around.after else 0.0

    def _partner_of(self, node: Node | None) -> Node | None:
        if node is None or node.parent is None:
            return self.alignment.old_tree.root
        return self.alignment.old[node.order]

    def _flow(self, orders: range) -> Iterator[Node]:
        """For each word of the statement, the partner of the nearest statement, on one side, that has it too."""
        missing = set(self.words)
        new_nodes, partner = self.alignment.new_tree.nodes, self.alignment.old
        for order in orders[:150]:
            shared = missing & new_nodes[order].words
            if shared:
                old = partner[order]
                if old is not None:
                    missing -= shared
                    yield old
            if not missing:
                return

    def features(self, slot: Slot) -> list[float]:
        around, before, after, order = self.around, slot.before, slot.after, slot.order
        body = slot.block.body or []
        old_gap = gap(self.alignment.old_tree, slot)
        previous = self.before[0][1] if self.before and before is not None and self.before[0][0] is before else 0.0
        following = self.after[0][1] if self.after and after is not None and self.after[0][0] is after else 0.0
        loops = [outer for outer in (slot.block, *slot.block.around()) if outer.kind in LOOPS]
        own_loop = self._partner_of(self.loops[0]) if self.loops else None
        blank = bool(_BLANK.search(old_gap))
        comments = _comment_words(old_gap)
        text_before = self.old_nodes[order - 1] if order else None
        text_after = self.old_nodes[order] if order < len(self.old_nodes) else None
        before_in, before_crossed, far_before = _ordered(self.before, slot, order, ahead=True)
        after_in, after_crossed, far_after = _ordered(self.after, slot, order, ahead=False)
        scope = slot.block if slot.block.kind in ("def", "class", "module") else slot.block.scope
        return [
            previous, previous * self.blank_before, following, following * self.blank_after,
            float(not around.before and slot.index == 0), float(not around.after and slot.index == len(body)),
            float(self.parent is slot.block), float(self.parent is not None and self.parent is not slot.block),
            before_in, after_in, before_crossed, after_crossed,
            float(text_before is not None and text_before is self.text_previous),
            float(text_after is not None and text_after is self.text_next),
            float(bool(loops) and own_loop is loops[0]), float(scope is self.scope),
            _overlap(self.comment, comments), _overlap(self.comment_below, comments),
            float(self.blank_before and blank), float(self.blank_after and blank),
            sum(1.0 for old in self.uses if old.order >= order), sum(1.0 for old in self.used if old.order < order),
            far_before, far_after,
            _akin(self.words, before) if before else 0.0, _akin(self.words, after) if after else 0.0,
            previous * self.akin_previous, following * self.akin_next,
        ]  # fmt: skip


def _ordered(
    partners: list[tuple[Node | None, float]], slot: Slot, order: int, *, ahead: bool
) -> tuple[float, float, float]:
    """How many siblings stand on their side of a slot in its block, how many on the other, how far the nearest is."""
    inside = crossed = 0.0
    far = -1.0
    weight = 1.0
    for old, _ in partners:
        if old is not None:
            if (old.order < order) != ahead:
                crossed += weight
            elif old.parent is slot.block:
                inside += weight
                if far < 0:
                    far = float(slot.index - 1 - old.index if ahead else old.index - slot.index)
        weight *= 0.7
    return inside, crossed, min(far, 6.0) if far >= 0 else 3.0


def _comment_words(text: str) -> frozenset[str]:
    return (
        frozenset(word for comment in _COMMENT.findall(text) for word in comment.split())
        if "#" in text
        else frozenset()
    )


def _overlap(mine: frozenset[str], theirs: frozenset[str]) -> float:
    return 2 * len(mine & theirs) / (len(mine) + len(theirs)) if mine and theirs else 0.0


def _all_words(node: Node) -> frozenset[str]:
    return node.words.union(*(inner.words for inner in node.inside()))


def _akin(words: frozenset[str], node: Node) -> float:
    return 2 * len(words & node.words) / (len(words) + len(node.words) or 1)
