"""The features that score a slot of the old version for a statement, and their fitted weights."""

from __future__ import annotations

import re
from collections.abc import Iterator

from relive.transplant.syntax import LOOPS, SIBLINGS, Alignment, Node, Slot, SlotNeighbours, dice_similarity, gap_text

_COMMENT = re.compile(r"#[^\r\n]*")
_BLANK = re.compile(r"(?:\r\n|\n|\r)[ \t\f]*(?:\r\n|\n|\r)")

# Fitted with bench/alignment.py. "It" is the statement, "the gap" is the slot.
WEIGHTS = {
    "previous": 1.71,  # the sibling before it is the one before the gap
    "previous_blank": -1.73,  # … with a blank line between them
    "next": 1.88,  # the sibling after it is the one after the gap
    "next_blank": -2.08,  # … with a blank line between them
    "at_start": 0.30,  # both are the first of a block
    "at_end": 0.45,  # both are the last of a block
    "parent": 0.93,  # the block of the gap is the partner of its block
    "other_parent": -0.92,  # its block has another partner
    "before_in_order": 0.50,  # siblings before it that are before the gap
    "after_in_order": 0.70,  # siblings after it that are after the gap
    "before_crossed": -0.94,  # siblings before it that are after the gap
    "after_crossed": -1.26,  # siblings after it that are before the gap
    "text_previous": 0.94,  # the statement before it in the text, of any block
    "text_next": 0.95,  # the statement after it in the text, of any block
    "loop": 0.27,  # the innermost loop is the same
    "scope": 0.58,  # the function is the same
    "comment": 1.36,  # the comment above it is in the gap
    "comment_below": 1.76,  # the comment below it is in the gap
    "blank_before": 0.81,  # both have a blank line
    "blank_after": 1.23,  # both have a blank line
    "uses_crossed": -0.83,  # words that it has in common with earlier statements, which are after the gap
    "used_crossed": -0.56,  # words that it has in common with later statements, which are before the gap
    "far_before": -0.36,  # statements between the gap and the nearest sibling
    "far_after": -0.15,  # the same, after it
    "akin_before": 1.47,  # words shared with the statement before the gap
    "akin_after": 0.35,  # words shared with the statement after the gap
    "previous_akin": 0.91,  # the sibling before it is before the gap, times the words it shares with it
    "next_akin": 1.11,  # the sibling after it is after the gap, times the words it shares with it
}


class SlotScorer:
    """Computes the features of slots for one statement."""

    def __init__(self, alignment: Alignment, neighbours: SlotNeighbours) -> None:
        self.alignment, self.neighbours = alignment, neighbours
        self.old_nodes = alignment.old_tree.nodes
        partner, similarity = alignment.old, alignment.similarity
        self.before = [(partner[node.order], similarity[node.order]) for node in neighbours.before[:SIBLINGS]]
        self.after = [(partner[node.order], similarity[node.order]) for node in neighbours.after[:SIBLINGS]]
        node = neighbours.node
        self.parent = self._partner_of(node.parent)
        self.scope = self._partner_of(node.scope)
        self.loops = [outer for outer in node.ancestors() if outer.kind in LOOPS]
        self.text_previous = partner[node.order - 1] if node.order else None
        self.text_next = partner[node.after] if node.after < len(partner) else None
        self.blank_before = bool(_BLANK.search(neighbours.gap_before))
        self.blank_after = bool(_BLANK.search(neighbours.gap_after))
        self.comment = _comment_words(neighbours.gap_before)
        self.comment_below = _comment_words(neighbours.gap_after)
        self.words = _words_with_body(node)
        self.uses = list(self._word_partners(range(node.order - 1, -1, -1)))
        self.used = list(self._word_partners(range(node.after, len(partner))))
        self.words_shared_before = dice_similarity(self.words, neighbours.before[0].words) if neighbours.before else 0.0
        self.words_shared_after = dice_similarity(self.words, neighbours.after[0].words) if neighbours.after else 0.0

    def _partner_of(self, node: Node | None) -> Node | None:
        if node is None or node.parent is None:
            return self.alignment.old_tree.root
        return self.alignment.old[node.order]

    def _word_partners(self, orders: range) -> Iterator[Node]:
        """Yields for each word of the statement the partner of the nearest statement, on one side, that has it too."""
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
        """Returns the features of a slot, in the order of WEIGHTS."""
        neighbours, before, after, order = self.neighbours, slot.before, slot.after, slot.order
        body = slot.block.body or []
        old_gap = gap_text(self.alignment.old_tree, slot)
        previous = self.before[0][1] if self.before and before is not None and self.before[0][0] is before else 0.0
        following = self.after[0][1] if self.after and after is not None and self.after[0][0] is after else 0.0
        loops = [outer for outer in (slot.block, *slot.block.ancestors()) if outer.kind in LOOPS]
        own_loop = self._partner_of(self.loops[0]) if self.loops else None
        blank = bool(_BLANK.search(old_gap))
        comments = _comment_words(old_gap)
        text_before = self.old_nodes[order - 1] if order else None
        text_after = self.old_nodes[order] if order < len(self.old_nodes) else None
        before_in, before_crossed, far_before = _order_features(self.before, slot, order, ahead=True)
        after_in, after_crossed, far_after = _order_features(self.after, slot, order, ahead=False)
        scope = slot.block if slot.block.kind in ("def", "class", "module") else slot.block.scope
        return [
            previous, previous * self.blank_before, following, following * self.blank_after,
            float(not neighbours.before and slot.index == 0), float(not neighbours.after and slot.index == len(body)),
            float(self.parent is slot.block), float(self.parent is not None and self.parent is not slot.block),
            before_in, after_in, before_crossed, after_crossed,
            float(text_before is not None and text_before is self.text_previous),
            float(text_after is not None and text_after is self.text_next),
            float(bool(loops) and own_loop is loops[0]), float(scope is self.scope),
            dice_similarity(self.comment, comments), dice_similarity(self.comment_below, comments),
            float(self.blank_before and blank), float(self.blank_after and blank),
            sum(1.0 for old in self.uses if old.order >= order), sum(1.0 for old in self.used if old.order < order),
            far_before, far_after,
            dice_similarity(self.words, before.words) if before else 0.0,
            dice_similarity(self.words, after.words) if after else 0.0,
            previous * self.words_shared_before, following * self.words_shared_after,
        ]  # fmt: skip


def _order_features(
    partners: list[tuple[Node | None, float]], slot: Slot, order: int, *, ahead: bool
) -> tuple[float, float, float]:
    """Returns the weighted number of siblings on the expected side of a slot, on the wrong side, and the distance."""
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


def _words_with_body(node: Node) -> frozenset[str]:
    return node.words.union(*(inner.words for inner in node.descendants()))
