"""Places that a user chose: a statement put at a line, or a patch changed by hand, remembered for its version."""

from __future__ import annotations

import ast
import contextlib
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from relive.errors import NotFound, ReliveError
from relive.hashing import stable_hash
from relive.hindsight.analysis.depth import Added
from relive.hindsight.analysis.patched_source import Files, Patch, make_diff
from relive.instrument import names_told
from relive.store import Home
from relive.transplant import Statement, added_statements


class Pins:
    """The choices of a home, by the content of a version and the names that are asked for."""

    def __init__(self, home: Home, names: Sequence[str]) -> None:
        self._folder = home.path / "pins"
        self._names = list(names)

    def find(self, tree: str) -> Patch | None:
        with contextlib.suppress(FileNotFoundError):
            try:
                return msgspec.json.decode(self._path(tree).read_bytes(), type=Patch)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise ReliveError(f"{self._path(tree)} can't be read ({error}); remove it to choose again") from error
        return None

    def keep(self, tree: str, patch: Patch) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(tree)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(msgspec.json.encode(patch))
        part.rename(path)

    def _path(self, tree: str) -> Path:
        return self._folder / f"{stable_hash([tree, sorted(self._names)])[:32]}.json"


def put_at(old: Files, new: Files, names: Sequence[str], place: str, *, any_logger: bool = False) -> Patch:
    """The statements of the new version before a line of the old one, given as `file:line`."""
    file, _, number = place.rpartition(":")
    if file not in old or not number.isdecimal():
        raise NotFound(f"--at {place!r} is not `file:line` of this version; it has {', '.join(sorted(old)[:10])}")
    lines = old[file].splitlines(keepends=True)
    line = int(number)
    if not 1 <= line <= len(lines) + 1:
        raise NotFound(f"{file} has {len(lines)} lines in this version; give one of them after --at")
    fresh = [one for one in _found(old, new, names, any_logger) if not one.in_old]
    if not fresh:
        raise NotFound(f"nothing in the project logs {' or '.join(names)}; add the statement first")
    below = lines[line - 1] if line <= len(lines) else lines[-1]
    indent = below[: len(below) - len(below.lstrip())]
    ending = "\r\n" if below.endswith("\r\n") else "\n"
    texts = [_statement(new[one.path], one.line) for one in fresh]
    inserted = [f"{indent}{row}{ending}" for text in texts for row in text.splitlines()]
    patched = "".join([*lines[: line - 1], *inserted, *lines[line - 1 :]])
    return from_text(old, {file: patched}, names, any_logger=any_logger)


def _found(old: Files, new: Files, names: Sequence[str], any_logger: bool) -> list[Statement]:
    return added_statements(old, new, names, also=names_told if any_logger else None)


def from_text(old: Files, files: Files, names: Sequence[str], *, any_logger: bool = False) -> Patch:
    """A patch that is given as the whole text of the files it changes."""
    changed = {file: text for file, text in files.items() if old.get(file) != text}
    for file, text in changed.items():
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise ReliveError(f"{file}:{error.lineno}: {error.msg}; put the statement on a line of its own") from error
    added = [one for one in _found(old, {**old, **changed}, names, any_logger) if not one.in_old]
    if not added:
        raise NotFound(f"nothing in the changed files logs {' or '.join(names)}; add the statement there")
    return Patch(changed, tuple(Added(one.path, one.line, one.name) for one in added), make_diff(old, changed))


def _statement(text: str, line: int) -> str:
    """The whole statement that begins at a line, without its indentation."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt) and node.lineno == line]
    last = min((node.end_lineno or line for node in nodes), default=line)
    return textwrap.dedent("\n".join(text.splitlines()[line - 1 : last]))
