"""What a transplant gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HIGH, MEDIUM = 0.95, 0.7  # below the second a place is a guess


@dataclass(frozen=True, slots=True)
class Statement:
    """A log statement of the new version: where it is, what it logs, and whether the old version has it too."""

    path: str
    line: int
    name: str
    in_old: bool


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a statement of the new version, at `path:line`, went in the old one."""

    path: str
    line: int
    old_path: str
    old_line: int  # its line in the patched text
    before: int  # the line of the old text before which it was put
    probability: float  # that this is the place, or one that makes no difference
    equivalent: bool  # whether the next best place would make no difference
    notes: tuple[str, ...] = ()

    @property
    def confidence(self) -> str:
        return "high" if self.probability >= HIGH else "medium" if self.probability >= MEDIUM else "low"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A statement that can't be carried over, and why; with the place where it would have gone, if there is one."""

    path: str
    line: int
    reason: str
    old_path: str | None = None
    before: int | None = None
    probability: float = 0.0


@dataclass(frozen=True, slots=True)
class Transplant:
    """The old version with statements of the new one."""

    files: Mapping[str, str] = field(default_factory=dict)  # only those that changed, whole
    landings: tuple[Landing, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # what the old version calls names of the new one
    refusals: tuple[Refusal, ...] = ()
    added: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the lines of the patched texts that are new
