"""Describes a script or module to run hands-free."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ScriptStart:
    """A script by its path, or a module by its name. Only replays set `root`, the folder of the project."""

    target: str
    argv: list[str]
    is_module: bool = False
    root: str | None = None
    sources: Collection[str] | None = None  # log sources to capture; None: those of the settings
    explains: bool = False  # print at exit what the checkpoints of each loop hold
    only: Mapping[tuple[str, int], Collection[str]] = field(default_factory=dict)  # (file, line) → names to capture
    holds_back: bool = True  # printed values whose name a logger may log; else, as in older runs, they are dropped
    recorded: Mapping[str, str | None] = field(default_factory=dict)  # real path of a patched file → its text before
    argv0: str = ""  # what the script sees in `sys.argv[0]`; else its path as given
