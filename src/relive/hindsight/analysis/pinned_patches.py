"""Patches that the user chose, by a line or by editing the files, stored for each version."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from relive.errors import Damaged, NotFound, ReliveError
from relive.hashing import stable_hash
from relive.hindsight.analysis.depth import AddedStatement
from relive.hindsight.analysis.patched_source import Files, Patch, make_diff
from relive.instrument import logged_name_patterns
from relive.store import Home, append_lines, make_folder, read_all_lines, read_sealed, write_sealed
from relive.transplant import LogStatement, find_log_statements

LIST = "pins.lines"  # names the files, so that one that is missing is missed
_REMEDY = "choose again with --at or --edit, or remove the folder to let relive choose"


def _list_pins(folder: Path) -> list[dict[str, str]]:
    return [{"file": line["file"]} for line in read_all_lines(folder / LIST)]


class PinnedPatches:
    """The pinned patches of a home, by the content of a version and the names asked for."""

    def __init__(self, home: Home, names: Sequence[str]) -> None:
        self._folder = home.path / "pins"
        self._names = list(names)

    def find(self, tree: str) -> Patch | None:
        path = self._path(tree)
        try:
            return msgspec.json.decode(read_sealed(path), type=Patch)
        except FileNotFoundError:
            if {"file": path.name} in _list_pins(self._folder):
                raise Damaged(f"{path} is missing; {_REMEDY}") from None
            return None
        except (ValueError, Damaged) as error:
            raise Damaged(f"{path} can't be read ({error}); {_REMEDY}") from error

    def write(self, tree: str, patch: Patch) -> None:
        make_folder(self._folder)
        write_sealed(self._path(tree), msgspec.json.encode(patch))
        new = {"file": self._path(tree).name}
        append_lines(self._folder / LIST, lambda _: [] if new in _list_pins(self._folder) else [new])

    def _path(self, tree: str) -> Path:
        return self._folder / f"{stable_hash([tree, sorted(self._names)])[:32]}.json"


def patch_at_line(old: Files, new: Files, names: Sequence[str], place: str, *, any_logger: bool = False) -> Patch:
    """Returns a patch with the statements of the new version before a line of the old one, given as `file:line`."""
    file, _, number = place.rpartition(":")
    if file not in old or not number.isdecimal():
        raise NotFound(f"--at {place!r} is not `file:line` of this version; it has {', '.join(sorted(old)[:10])}")
    lines = old[file].splitlines(keepends=True)
    line = int(number)
    if not 1 <= line <= len(lines) + 1:
        raise NotFound(f"{file} has {len(lines)} lines in this version; give one of them after --at")
    fresh = [one for one in _find_statements(old, new, names, any_logger) if not one.in_old]
    if not fresh:
        raise NotFound(f"nothing in the project logs {' or '.join(names)}; add the statement first")
    below = lines[line - 1] if line <= len(lines) else lines[-1]
    indent = below[: len(below) - len(below.lstrip())]
    ending = "\r\n" if below.endswith("\r\n") else "\n"
    texts = [_statement_text(new[one.path], one.line) for one in fresh]
    inserted = [f"{indent}{row}{ending}" for text in texts for row in text.splitlines()]
    patched = "".join([*lines[: line - 1], *inserted, *lines[line - 1 :]])
    return patch_from_files(old, {file: patched}, names, any_logger=any_logger)


def _find_statements(old: Files, new: Files, names: Sequence[str], any_logger: bool) -> list[LogStatement]:
    return find_log_statements(old, new, names, also=logged_name_patterns if any_logger else None)


def patch_from_files(old: Files, files: Files, names: Sequence[str], *, any_logger: bool = False) -> Patch:
    """Returns a patch made from the whole text of the changed files."""
    changed = {file: text for file, text in files.items() if old.get(file) != text}
    for file, text in changed.items():
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise ReliveError(f"{file}:{error.lineno}: {error.msg}; put the statement on a line of its own") from error
    added = [one for one in _find_statements(old, {**old, **changed}, names, any_logger) if not one.in_old]
    if not added:
        raise NotFound(f"nothing in the changed files logs {' or '.join(names)}; add the statement there")
    return Patch(changed, tuple(AddedStatement(one.path, one.line, one.name) for one in added), make_diff(old, changed))


def _statement_text(text: str, line: int) -> str:
    """The statement that begins at a line, dedented."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt) and node.lineno == line]
    last = min((node.end_lineno or line for node in nodes), default=line)
    return textwrap.dedent("\n".join(text.splitlines()[line - 1 : last]))
