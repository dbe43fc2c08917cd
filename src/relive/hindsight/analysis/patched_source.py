"""The source that a replay runs: an old version with the statements that were added since."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.hindsight.analysis.depth import AddedStatement
from relive.instrument import logged_name_patterns
from relive.transplant import Landing, find_log_statements, transplant

_FOREIGN_FOLDERS = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})
MAX_FILES = 5_000
Files = Mapping[str, str]  # path below the project's root → text


@dataclass(frozen=True, slots=True)
class Patch:
    """The statements added to a version, or the reason why they can't be."""

    files: Files = field(default_factory=dict)  # the changed files, with their whole text
    added: tuple[AddedStatement, ...] = ()
    diff: str = ""
    refusal: str = ""
    notes: tuple[str, ...] = ()
    landings: tuple[Landing, ...] = ()
    originals: Mapping[str, str | None] = field(default_factory=dict)  # the changed files before; None: added ones

    @property
    def confidence(self) -> str:
        """The confidence of the least certain statement."""
        order = ("low", "medium", "high")
        return min((landing.confidence for landing in self.landings), key=order.index, default="high")

    @property
    def is_certain(self) -> bool:
        return not self.refusal and not self.notes and self.confidence == "high"

    @property
    def rank(self) -> tuple[bool, int, int]:
        """A key to compare two patches: the higher is the better one."""
        return not self.refusal, len(self.added), ("low", "medium", "high").index(self.confidence)


def read_source(root: Path, file: str) -> str | None:
    """Reads one file below a folder; None if there is none."""
    try:
        return (root / file).read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def read_python_files(root: Path, *, home: Path) -> dict[str, str]:
    """Reads the Python files below a folder, except in hidden folders, virtual environments, libraries and the home.

    The home holds the trees of replays that are running, or were killed.
    """
    found: dict[str, str] = {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not _is_foreign(path := Path(folder) / name) and path != home]
        for file in files:
            if file.endswith(".py") and len(found) < MAX_FILES:
                path = Path(folder) / file
                found[path.relative_to(root).as_posix()] = path.read_bytes().decode("utf-8", "surrogateescape")
    return found


def _is_foreign(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _FOREIGN_FOLDERS or (folder / "pyvenv.cfg").exists()


def make_patch(
    old: Files, new: Files, names: Sequence[str], *, any_logger: bool = False, between: Sequence[Files] = ()
) -> Patch:
    """Copies the statements of `new` that log these names, and what they depend on, into `old`.

    `any_logger`: calls of other loggers, and prints, count like `relive.log`. `between` are versions between the two,
    the oldest first: they help to align versions that have little in common.
    """
    statements = find_log_statements(old, new, names, also=logged_name_patterns if any_logger else None)
    fresh = [statement for statement in statements if not statement.in_old]
    if not statements:
        return Patch(refusal=f'nothing in the project logs {" or ".join(names)}; add relive.log("{names[0]}", …) first')
    if not fresh:
        return Patch(refusal=f"this version logs {' and '.join(names)} itself")
    moved = transplant(old, new, [(one.path, one.line) for one in fresh], chain=between)
    logged = {(one.path, one.line): one.name for one in fresh}
    added = tuple(AddedStatement(one.old_path, one.old_line, logged[one.path, one.line]) for one in moved.landings)
    notes = tuple(f"{one.path}:{one.line} is left out: {one.reason}" for one in moved.refusals)
    if not added:
        return Patch(refusal="not applicable: " + "; ".join(dict.fromkeys(one.reason for one in moved.refusals)))
    return Patch(moved.files, added, make_diff(old, moved.files), notes=notes, landings=moved.landings)


def make_diff(old: Files, changed: Files) -> str:
    """Returns the patch as a unified diff."""
    parts: list[str] = []
    for file, text in sorted(changed.items()):
        before = old.get(file, "").splitlines(keepends=True)
        parts += difflib.unified_diff(before, text.splitlines(keepends=True), f"a/{file}", f"b/{file}")
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts)
