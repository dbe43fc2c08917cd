"""Two courses beside each other, as data: where they parted, and how much was compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from relive.hindsight.divergence.graph_difference import LeafDifference

STATE, DIGEST, LOGGED, LENGTH = "state", "digest", "value", "iterations"  # what differs at a parting


@dataclass(frozen=True, slots=True)
class Parting:
    """The first moment at which two courses differ."""

    where: str
    what: str  # STATE, DIGEST, LOGGED, or LENGTH of a loop inside the main one
    leaf: str  # the first object, logged name or loop that differs
    loop: int = 0  # of the first run
    iteration: int = -1  # -1: at the entry of the loop
    order: float = 0.0
    one: Any = None
    other: Any = None
    leaves: tuple[LeafDifference, ...] = ()  # all that differ, at `leaves_where`
    leaves_where: str = ""
    last_agreed: str = ""  # the last moment that agreed; "" if there is none
    last_agreed_iteration: int | None = None
    between: int | None = (
        None  # iterations of the loop after that moment and before this one, of which nothing is known
    )


@dataclass(slots=True)
class Compared:
    """How much was compared."""

    states: int = 0  # checkpoints, and entries of loops
    objects: int = 0  # in the fullest of them
    digests: int = 0
    tensors: int = 0  # in each digest
    values: int = 0
    unknown: int = 0  # objects that could not be looked at
    states_there: int = 0  # that both have; bisection does not look at all of them

    @property
    def is_nothing(self) -> bool:
        return not (self.states or self.digests or self.values)


@dataclass(slots=True)
class Course:
    """Two courses beside each other: where they parted, if they did, and what was compared."""

    parted: Parting | None = None
    numbers: Parting | None = None  # if only settings and plain values differed there: the first numbers that did
    compared: Compared = field(default_factory=Compared)
    settings: list[LeafDifference] = field(default_factory=list)  # that follow from args
    aside: list[LeafDifference] = field(default_factory=list)  # texts, clocks, files: they differ without consequence
    only_one: list[str] = field(default_factory=list)  # variables and names that can't be compared
    only_other: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Terms:
    """What does not count as a difference."""

    args: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # that differ
    ignored: Collection[str] = ()  # names of variables and logged values
