"""The source that a replay runs: an old version and, in it, the statements that were added since."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.hindsight.depth import Added

_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})
MAX_FILES = 5_000
Files = Mapping[str, str]  # path below the project's root → text


@dataclass(frozen=True, slots=True)
class Patch:
    """What is added to a version, or why it can't be."""

    files: Files  # those that change, whole
    added: tuple[Added, ...]
    diff: str
    refusal: str = ""


def read_tree(root: Path) -> dict[str, str]:
    """The Python files below a folder; hidden folders, environments and libraries are not the project's."""
    found: dict[str, str] = {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not _is_foreign(Path(folder) / name)]
        for file in files:
            if file.endswith(".py") and len(found) < MAX_FILES:
                path = Path(folder) / file
                found[path.relative_to(root).as_posix()] = path.read_bytes().decode("utf-8", "surrogateescape")
    return found


def _is_foreign(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _SKIPPED or (folder / "pyvenv.cfg").exists()


def make_patch(old: Files, new: Files, names: Collection[str]) -> Patch:
    """Put the statements that log these names in `new` into `old`."""
    added: list[Added] = []
    changed: dict[str, str] = {}
    for file, text in new.items():
        statements = list(log_statements(text, names))
        before = old.get(file)
        if not statements:
            continue
        if before is None:
            return Patch({}, (), "", f"{file} isn't in this version")
        lines = _inserted(before, text)
        if lines is None:
            return Patch({}, (), "", f"{file} has changed by more than added statements")
        fresh = [Added(file, line, name) for line, name in statements if line in lines]
        if fresh:
            added += fresh
            changed[file] = text
    if not added:
        return Patch({}, (), "", f"no statement that logs {' or '.join(names)} was added")
    return Patch(changed, tuple(added), make_diff(old, changed))


def log_statements(text: str, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """The lines at which a text logs one of the names."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "log" and node.args[0].value in names:
                yield node.lineno, str(node.args[0].value)


def _inserted(before: str, after: str) -> set[int] | None:
    """The lines that were added; None when others were changed or removed."""
    old, new = before.splitlines(), after.splitlines()
    lines: set[int] = set()
    for what, _, _, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "insert":
            lines |= set(range(first + 1, last + 1))
        elif what != "equal":
            return None
    return lines


def make_diff(old: Files, changed: Files) -> str:
    """The patch as people read it."""
    parts: list[str] = []
    for file, text in sorted(changed.items()):
        before = old.get(file, "").splitlines(keepends=True)
        parts += difflib.unified_diff(before, text.splitlines(keepends=True), f"a/{file}", f"b/{file}")
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts)
