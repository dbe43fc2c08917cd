"""Questions about the code of a run: its files, the text of one, and what differs from another version."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from relive.errors import NotFound, VersionError
from relive.server.endpoints.run.run_lookup import find_record
from relive.server.endpoints.run.wire_values import clean_text
from relive.store.catalog import Index
from relive.store.versions import version_checkout, version_contents

MAX_TEXT_BYTES = 1 << 20
MAX_DIFF_LINES = 20_000
MAX_LINE_CHARS = 5_000
Code = Mapping[str, Any]


def list_code(index: Index, run: str, is_local: bool, offset: int, limit: int) -> dict[str, Any]:
    """Returns the files of a run's version, with what changed since the version before."""
    code = _code_of(index, run, is_local=is_local)
    parent = version_contents.parent_version(index.home, code)
    changed = version_contents.changed_paths(index.home, code, parent) if parent is not None else {}
    files = version_contents.list_version(index.home, code)
    first = "same" if parent is not None else "added"
    return {
        "version": code["version"], "parent": parent, "head": code.get("head"), "dirty": code.get("dirty"),
        "branch": code.get("branch"), "script": code.get("script"), "root": code.get("root"), "total": len(files),
        "files": [
            {"path": clean_text(file.path), "bytes": file.size_bytes, "status": changed.get(file.path, first)}
            for file in files[offset : offset + limit]
        ],
        "removed": sorted(clean_text(path) for path, status in changed.items() if status == "removed")[:limit],
        "large": (code.get("large") or [])[:limit],
    }  # fmt: skip


def read_code(index: Index, run: str, is_local: bool, path: str) -> dict[str, Any]:
    """Returns the text of one file of a run's version."""
    content = version_contents.read_listed(index.home, _code_of(index, run, is_local=is_local), path)
    shown = content[:MAX_TEXT_BYTES]
    is_binary = b"\0" in shown
    text = "" if is_binary else shown.decode("utf-8", "replace")
    is_cut = len(content) > MAX_TEXT_BYTES
    return {"path": path, "text": text, "is_binary": is_binary, "truncated": is_cut, "bytes": len(content)}


def diff_code(index: Index, run: str, is_local: bool, against: str) -> dict[str, Any]:
    """Returns what differs from `against` to the version of a run, file by file."""
    code = _code_of(index, run, is_local=is_local)
    old = _older_code(index, code, against, is_local=is_local)
    shown = {"version": code["version"], "against": old["version"] if old is not None else None}
    if old is None:
        return {**shown, "files": [], "truncated": False}
    rows = version_checkout.diff(index.home, old, code).split("\n")
    files = list(_parse_files(iter(rows[:MAX_DIFF_LINES])))
    return {**shown, "files": files, "truncated": len(rows) > MAX_DIFF_LINES}


def _older_code(index: Index, code: Code, against: str, *, is_local: bool) -> Code | None:
    """Returns the code that a run is compared with; None if it is the first version."""
    if against == "parent":
        parent = version_contents.parent_version(index.home, code)
        return None if parent is None else {**code, "version": parent, "tree": None}
    if against == "head":
        if not code.get("head"):
            raise NotFound("the project had no commit when the run began; compare with parent, or with another run")
        return {**code, "version": code["head"], "tree": None}
    return _code_of(index, against, is_local=is_local)


def _code_of(index: Index, run: str, *, is_local: bool) -> Code:
    """Returns the field `code` of a run, with a repository that may be read.

    Who sends a run to a server names its repository; on the server, only those of the store itself are read.
    """
    code = find_record(index, run).code
    if not code.get("version"):
        raise NotFound("no code version was taken for this run; record with git installed and `versions` on")
    trusted = code if is_local else {**code, "repository": str(index.home.path / "versions.git")}
    try:
        version_checkout.find_repository(index.home, trusted)
    except VersionError as error:
        if is_local:
            raise NotFound(str(error)) from error
        raise NotFound(
            f"version {str(code['version'])[:12]} is in the repository of whoever recorded the run, not on the server; "
            "push its branch into a repository around the store to see it here"
        ) from None
    return trusted


# --- parsing a unified diff -------------------------------------------------------------------------------------------


def _parse_files(rows: Iterator[str]) -> Iterator[dict[str, Any]]:
    for is_new, group in itertools.groupby(rows, _FileCounter()):
        if is_new:
            yield _parse_file(list(group))


class _FileCounter:
    """Numbers the files of a diff from 1; what comes before the first is 0."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, row: str) -> int:
        self._number += row.startswith("diff --git ")
        return self._number


def _parse_file(rows: list[str]) -> dict[str, Any]:
    """Returns path, status and hunks from the lines of a diff that are about one file."""
    head = list(itertools.takewhile(lambda row: not row.startswith("@@"), rows))
    status, path, old = "changed", "", None
    for row in head:
        if row.startswith("new file"):
            status = "added"
        elif row.startswith("deleted file"):
            status = "removed"
        elif row.startswith("rename from "):
            status, old = "renamed", _unquote(row.removeprefix("rename from "))
        elif row.startswith("rename to "):
            path = _unquote(row.removeprefix("rename to "))
        elif row.startswith(("+++ ", "--- ")) and row[4:] != "/dev/null":
            path = path or _unquote(row[4:].rstrip("\t"))[2:]
    path = path or _unquote(head[0].rpartition(" ")[2])[2:]
    found: dict[str, Any] = {"path": clean_text(path), "status": status, "hunks": list(_parse_hunks(rows[len(head) :]))}
    if old is not None:
        found["old_path"] = clean_text(old)
    if any(row.startswith("Binary files ") for row in head):
        found["is_binary"] = True
    return found


def _parse_hunks(rows: list[str]) -> Iterator[dict[str, Any]]:
    hunk: dict[str, Any] | None = None
    for row in rows:
        if row.startswith("@@"):
            if hunk is not None:
                yield hunk
            old, new = row.split(" ")[1:3]
            hunk = {"old_start": _start(old), "new_start": _start(new), "lines": []}
        elif hunk is not None and row[:1] in (" ", "+", "-"):
            text = row[1:].removesuffix("\r")
            hunk["lines"].append({"kind": row[0], "text": clean_text(text[:MAX_LINE_CHARS])})
    if hunk is not None:
        yield hunk


def _start(word: str) -> int:
    return int(word[1:].partition(",")[0])


def _unquote(path: str) -> str:
    """Returns a path without git's quotes around unusual characters."""
    if not path.startswith('"'):
        return path
    raw = path.strip('"').encode("latin-1", "replace").decode("unicode_escape")
    return raw.encode("latin-1", "replace").decode("utf-8", "replace")
