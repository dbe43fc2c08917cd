"""Ranks the slots of the old version in which a statement of the new one may belong."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relive.transplant.slot_scores import WEIGHTS, SlotScorer
from relive.transplant.syntax import (
    SCOPES,
    Alignment,
    Node,
    Slot,
    SlotNeighbours,
    can_insert,
    candidate_slots,
    leaves_block,
)

_WEIGHTS = tuple(WEIGHTS.values())
_ONE_NEIGHBOUR = 0.98  # the certainty of a place of which one neighbour or none is known
_ALIKE = 0.5  # the similarity of partners below which they may be paired by chance
_NEARBY = 10  # statements before and after, of any block, of which one must have a partner


@dataclass(frozen=True, slots=True)
class RankedSlot:
    """A slot of the old version, and the probability that it is the right one."""

    slot: Slot
    probability: float


def rank_slots(alignment: Alignment, neighbours: SlotNeighbours) -> list[RankedSlot]:
    """Returns the candidate slots for a statement, the most probable first."""
    compound = neighbours.node.body is not None
    slots = [slot for slot in candidate_slots(alignment, neighbours) if can_insert(slot, compound=compound)]
    if not any(leaves_block(node) for node in neighbours.before[:1]):
        slots = [slot for slot in slots if slot.before is None or not leaves_block(slot.before)]
    if not slots:
        return []
    scorer = SlotScorer(alignment, neighbours)
    scores = [_score(scorer.features(slot)) for slot in slots]
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]  # a softmax
    total = sum(shares)
    ranked = [RankedSlot(slot, share / total) for slot, share in zip(slots, shares, strict=True)]
    return sorted(ranked, key=lambda place: -place.probability)


def _score(features: list[float]) -> float:
    return sum([weight * feature for weight, feature in zip(_WEIGHTS, features, strict=True)])


def has_evidence(alignment: Alignment, node: Node) -> bool:
    """Whether there is evidence for a place: a partner of the function, of a sibling, or of a statement nearby."""
    if node.scope.parent is not None and alignment.old[node.scope.order] is not None:
        return True
    siblings = [each.order for each in (node.parent.body if node.parent else None) or ()]
    nearby = [*range(max(0, node.order - _NEARBY), node.order), *range(node.after, node.after + _NEARBY)]
    return any(alignment.old[order] is not None for order in (*siblings, *nearby) if order < len(alignment.old))


def scope_certainty(alignment: Alignment, node: Node) -> float:
    """Returns the certainty that the enclosing functions are paired correctly; lower if paired by similarity."""
    scopes = [outer for outer in node.ancestors() if outer.kind in SCOPES and alignment.old[outer.order] is not None]
    return min([1.0, *(0.5 + alignment.similarity[scope.order] for scope in scopes)])


def neighbour_certainty(alignment: Alignment, neighbours: SlotNeighbours, slot: Slot) -> float:
    """Returns the certainty of a slot from its neighbours; lower unless both are those of the statement."""
    sides = ((neighbours.before, slot.before), (neighbours.after, slot.after))
    both = all(_is_partner(alignment, nodes[0], old) if nodes else old is None for nodes, old in sides)
    return 1.0 if both else _ONE_NEIGHBOUR


def _is_partner(alignment: Alignment, new: Node, old: Node | None) -> bool:
    """Whether two statements are partners, and alike enough to be evidence."""
    return old is not None and alignment.old[new.order] is old and alignment.similarity[new.order] >= _ALIKE
