"""Ranks the slots of the old version in which a statement of the new one may belong."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relive.transplant.slot_scores import WEIGHTS, SlotScorer
from relive.transplant.syntax import Alignment, Slot, SlotNeighbours, can_insert, candidate_slots

_WEIGHTS = tuple(WEIGHTS.values())


@dataclass(frozen=True, slots=True)
class RankedSlot:
    """A slot of the old version, and the probability that it is the right one."""

    slot: Slot
    probability: float


def rank_slots(alignment: Alignment, neighbours: SlotNeighbours) -> list[RankedSlot]:
    """Returns the candidate slots for a statement, the most probable first."""
    compound = neighbours.node.body is not None
    slots = [slot for slot in candidate_slots(alignment, neighbours) if can_insert(slot, compound=compound)]
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
