"""The results of a transplant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HIGH, MEDIUM = 0.98, 0.7  # below MEDIUM, a place is a guess


@dataclass(frozen=True, slots=True)
class LogStatement:
    """A log statement of the new version: where it is, the name it logs, and whether the old version has it too."""

    path: str
    line: int
    name: str
    in_old: bool


@dataclass(frozen=True, slots=True)
class Landing:
    """The place in the old version of a statement of the new one, which is at `path:line` there."""

    path: str
    line: int
    old_path: str
    old_line: int  # its line in the patched text
    before: int  # the line of the old text before which it was inserted
    probability: float  # that this is the right place, or equivalent to it
    equivalent: bool  # whether the next best place is equivalent
    notes: tuple[str, ...] = ()

    @property
    def confidence(self) -> str:
        return "high" if self.probability >= HIGH else "medium" if self.probability >= MEDIUM else "low"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A statement that can't be carried over, with the reason, and its place in the old version, if there is one."""

    path: str
    line: int
    reason: str
    old_path: str | None = None
    before: int | None = None
    probability: float = 0.0


@dataclass(frozen=True, slots=True)
class Transplant:
    """The old version with the carried statements of the new one."""

    files: Mapping[str, str] = field(default_factory=dict)  # the complete texts of changed and new files
    landings: tuple[Landing, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # what the old version calls names of the new one
    refusals: tuple[Refusal, ...] = ()
    added: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # the numbers of the new lines in the patched texts
