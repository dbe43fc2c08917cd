"""What is carried for one statement: its units, their places and names in the old version, or the reason against it."""

from __future__ import annotations

from dataclasses import dataclass, field

from relive.transplant.dependency_slice import SliceUnit
from relive.transplant.syntax import Node, Slot


class CarryRefused(Exception):
    """A statement can't be carried over; the message says why."""


@dataclass(frozen=True, slots=True)
class PlacedUnit:
    """A unit with the file and slot it goes to, and the old names of its variables."""

    unit: SliceUnit
    old_path: str
    slot: Slot
    names: dict[str, str]  # of the new version to the old one; attributes count as variables: `self.net` to `net`

    def needed_for(self, name: str) -> set[str]:
        """Returns the names that must have a value in the old version where the new one uses a name."""
        if name in self.names:
            return {self.names[name].split(".")[0]}
        attributes = {old.split(".")[0] for new, old in self.names.items() if new.startswith(f"{name}.")}
        return attributes or {name}


@dataclass(slots=True)
class CarryResult:
    """A carried statement with everything that is carried along; the statement itself is the last of `placed`."""

    placed: list[PlacedUnit] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # complete files that the old version lacks
    probability: float = 1.0
    equivalent: bool = False
    notes: list[str] = field(default_factory=list)
    node: Node | None = None  # the statement itself
    where: PlacedUnit | None = None  # its place, which is set even if the statement is refused later
