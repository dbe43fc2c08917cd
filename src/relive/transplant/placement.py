"""Where in the old version a statement of the new one belongs, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relive.transplant.slot_scores import WEIGHTS, Weigher
from relive.transplant.syntax import Alignment, Node, Slot, SlotNeighbours, candidates, fits

_WEIGHTS = tuple(WEIGHTS.values())


@dataclass(frozen=True, slots=True)
class ScoredPlace:
    """A slot of the old version, and the share of the evidence that speaks for it."""

    slot: Slot
    probability: float


def places(alignment: Alignment, around: SlotNeighbours) -> list[ScoredPlace]:
    """The slots that may suit a statement, the best first."""
    compound = around.node.body is not None
    slots = [slot for slot in candidates(alignment, around) if fits(slot, compound=compound)]
    if not slots:
        return []
    weigher = Weigher(alignment, around)
    scores = [_score(weigher.features(slot)) for slot in slots]
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]
    total = sum(shares)
    ranked = [ScoredPlace(slot, share / total) for slot, share in zip(slots, shares, strict=True)]
    return sorted(ranked, key=lambda place: -place.probability)


def _score(features: list[float]) -> float:
    return sum([weight * feature for weight, feature in zip(_WEIGHTS, features, strict=True)])


def is_around(node: Node, other: Node) -> bool:
    """Whether a node is inside another, or is that one."""
    return other.order <= node.order < other.after
