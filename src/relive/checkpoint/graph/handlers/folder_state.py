"""Files of the working folder that the script changes: seen by their size and time, kept with their content."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

from relive.checkpoint.graph.registry import Handler, Restorer, Walker

MAX_FILES = 4_000
MAX_SCAN_S = 0.02
SLOW_S = 0.003
MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 64 << 20
_LEFT_OUT = frozenset({
    ".git", ".relive", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache",
    "wandb", "mlruns", "lightning_logs", "runs", "tb_logs",
})  # fmt: skip
Seen = tuple[int, int, int]  # size, time, inode
_FOLDER: Seen = (0, 0, 0)


class FolderState:
    """Stands for the working folder in the graph: what its files were when it was made."""

    def __init__(self, folder: str, home: str = "") -> None:
        self.folder = folder
        self.home = home
        begun = time.perf_counter()
        self.files, self.is_complete = scan(folder, home)
        self.is_slow = time.perf_counter() - begun > SLOW_S  # then it is looked at only when the loop has ended


class FolderHandler(Handler):
    """Files that were written since the loop began, with their content; files that were removed."""

    def content(self, obj: Any, walk: Walker) -> Any:
        if not obj.is_complete or (obj.is_slow and not walk.is_end):
            walk.note_unknown("files of the working folder", "looking at all of them takes too long")
            return ()
        now, is_complete = scan(obj.folder, obj.home)
        if not is_complete:
            walk.note_unknown("files of the working folder", "there are too many to look at")
            return ()
        found: list[Any] = []
        total = 0
        for path in sorted(now):
            if now[path] == obj.files.get(path):
                continue
            if path.endswith(os.sep):
                found += (path, b"")
                continue
            size = now[path][0]
            total += size
            if size > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES:
                walk.note_unknown(f"file {path}", "it changes, and is too large to be kept")
                continue
            content = _read(os.path.join(obj.folder, path))
            if content is not None:
                found += (path, content)
        gone = tuple(sorted(path for path in obj.files if path not in now))
        return tuple(found), gone

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if not content:
            return
        files, gone = content
        for path, data in zip(files[::2], files[1::2], strict=True):
            target = Path(obj.folder, path)
            if path.endswith(os.sep):
                target.mkdir(parents=True, exist_ok=True)
            elif _read(str(target)) != data:
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.is_symlink() or _is_shared(target):
                    target.unlink()  # a link to the file of the recorded run: that one stays as it is
                target.write_bytes(data)
        for path in gone:
            if not path.endswith(os.sep):
                Path(obj.folder, path).unlink(missing_ok=True)


def scan(folder: str, home: str) -> tuple[dict[str, Seen], bool]:
    """Returns the files of a folder, and whether these are all: there may be too many."""
    found: dict[str, Seen] = {}
    output = _standard_streams()
    todo, deadline = [""], time.perf_counter() + MAX_SCAN_S
    while todo:
        inner = todo.pop()
        try:
            entries = list(os.scandir(os.path.join(folder, inner)))
        except OSError:
            continue
        for entry in entries:
            if entry.name in _LEFT_OUT or (home and entry.path == home):
                continue
            path = os.path.join(inner, entry.name)
            try:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(path)
                    found[path + os.sep] = _FOLDER
                    continue
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) and (about.st_dev, about.st_ino) not in output:
                found[path] = about.st_size, about.st_mtime_ns, about.st_ino
        if len(found) > MAX_FILES or time.perf_counter() > deadline:
            return found, False
    return found, True


def _standard_streams() -> set[tuple[int, int]]:
    """The files that the output of this process is redirected to: they grow, and nobody reads them."""
    found = set()
    for number in (0, 1, 2):
        try:
            about = os.fstat(number)
        except OSError:
            continue  # closed
        found.add((about.st_dev, about.st_ino))
    return found


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _is_shared(path: Path) -> bool:
    try:
        return path.lstat().st_nlink > 1
    except OSError:
        return False


def choose_folder(kind: type) -> Handler | None:
    return FolderHandler() if kind is FolderState else None
