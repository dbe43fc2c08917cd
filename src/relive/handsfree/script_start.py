"""What is to be run hands-free."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ScriptStart:
    """What is to be run: a script by its path, or a module by its name. A replay says where the project lies."""

    target: str
    argv: list[str]
    is_module: bool = False
    root: str | None = None
    sources: Collection[str] | None = None  # None: those of the settings
    explains: bool = False  # tell at the end what was kept of each loop
    only: Mapping[tuple[str, int], Collection[str]] = field(default_factory=dict)
