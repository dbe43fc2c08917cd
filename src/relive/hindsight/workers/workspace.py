"""Where a segment is replayed: a folder made from the version, with the inputs that the run read linked in."""

from __future__ import annotations

import math
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.errors import NotFound
from relive.model import RunRecord
from relive.record.process import LAUNCHED_BY
from relive.store.journal import ParsedJournal
from relive.store.versions import code_versions

COPIED_BYTES = 16 << 20  # smaller inputs are copied: libraries in C may write through a link unheard
LINKED_FILES = 10_000  # of a folder; beyond that the folder itself is linked
# Loggers that would talk to a server write to the replay's folder instead.
OFFLINE = {"WANDB_MODE": "offline", "NEPTUNE_MODE": "offline", "CLEARML_OFFLINE_MODE": "1", "COMET_MODE": "OFFLINE"}
_MEETING = ("MASTER_ADDR", "MASTER_PORT")
_KEPT_AS_IS = frozenset({"VIRTUAL_ENV", "CONDA_DEFAULT_ENV"})
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one segment."""

    base: Path
    tree: Path  # the project as it was, with the added statements
    cwd: Path
    script: Path

    def folder(self, rank: int) -> Path:
        """Where the worker of a rank leaves its journals and its report. All else is the same for all ranks."""
        return self.base / "journals" / str(rank)


def materialise(record: RunRecord, files: Mapping[str, str], into: Path) -> None:
    """The tree of a run's version, with some files replaced."""
    code = record.code
    if not record.version:
        raise NotFound(f"run {record.run} has no code version; record runs with `versions` switched on to replay them")
    code_versions.materialise(record.version, repository=Path(code["repository"]), into=into)
    for name, text in files.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))


def lay_out(record: RunRecord, ranks: Sequence[ParsedJournal], tree: Path, base: Path) -> Workspace:
    """Copy a materialised tree for the workers of a segment, and bring in what the run read, or may have read."""
    base.mkdir(parents=True)
    own = base / "tree"
    shutil.copytree(tree, own, symlinks=True)
    root = Path(record.code["root"])
    cwd = Path(record.code.get("cwd") or root)
    folders = {root: own}
    if not _is_below(cwd, root):
        folders[cwd] = base / "cwd"
        (base / "cwd").mkdir()
    for path in dict.fromkeys(path for rank in ranks for path in _inputs(record, rank)):
        _bring(path, folders)
    for outside, inside in folders.items():
        _link_older(outside, inside, base, record.started_us / 1e6)
    for rank in ranks:
        (base / "journals" / str(rank.journal.rank)).mkdir(parents=True)
    place = own / os.path.relpath(cwd, root) if _is_below(cwd, root) else base / "cwd"
    place.mkdir(parents=True, exist_ok=True)
    script = own / os.path.relpath(record.code["script"], root)
    return Workspace(base, own, place, script)


def entry_file(record: RunRecord) -> str:
    """The script, as the version names it."""
    script, root = record.code.get("script"), record.code.get("root")
    if not script or not root or not _is_below(Path(script), Path(root)):
        raise NotFound(f"run {record.run} has no script inside its project; only scripts can be replayed")
    return Path(os.path.relpath(script, root)).as_posix()


def variables(recorded: Mapping[str, str], *, threads: int | None) -> dict[str, str]:
    """Those of now, with those that mattered then as they were."""
    then = {name: value for name, value in recorded.items() if name not in _KEPT_AS_IS}
    now = {name: value for name, value in os.environ.items() if not _is_told_anew(name)}
    if threads and "OMP_NUM_THREADS" not in then:
        then["OMP_NUM_THREADS"] = str(threads)
    return {**now, **then, "PYTHONUNBUFFERED": "1"}


def _is_told_anew(name: str) -> bool:
    return name in (*_THREADS, *_MEETING, *LAUNCHED_BY, "RELIVE_PARENT") or name.startswith("TORCHELASTIC_")


def meeting_place(recorded: Mapping[str, str]) -> dict[str, str]:
    """Where ranks that are replayed together find each other, if they do: on this machine, at a port of their own."""
    if not {*_MEETING, *LAUNCHED_BY} & {*recorded}:
        return {}
    with socket.socket() as free:
        free.bind(("", 0))
        return dict(zip(_MEETING, ("127.0.0.1", str(free.getsockname()[1])), strict=True))


def environment(
    record: RunRecord, recorded: Mapping[str, str], base: Path, *, offline: bool, threads: int | None
) -> dict[str, str]:
    """The variables of a worker; what programs write goes to its own folder."""
    own = {}
    # Below the folder for temporary files the project itself may lie, which can't be written.
    if Path(tempfile.gettempdir()) in Path(os.path.realpath(record.code["root"])).parents:
        (base / "tmp").mkdir(exist_ok=True)
        own["TMPDIR"] = str(base / "tmp")
    quiet = {**OFFLINE, "WANDB_DIR": str(base), "MLFLOW_TRACKING_URI": (base / "mlruns").as_uri()} if offline else {}
    # Processes that the script starts must not record runs of their own.
    return {**variables(recorded, threads=threads), **own, **quiet, "RELIVE_OFF": "1"}


def _inputs(record: RunRecord, recorded: ParsedJournal) -> Iterable[str]:
    """What a rank declared or was seen reading, and what is too large for versions."""
    read = [line for line in recorded.lines if line.get("k") in ("data", "read")]
    for item in [*read, *(record.code.get("large") or ())]:
        path = item.get("path") if isinstance(item, dict) else None
        if path and item.get("role") != "made":
            yield path if os.path.isabs(path) else os.path.join(record.code["root"], path)


def _bring(path: str, folders: Mapping[Path, Path]) -> None:
    """Make an input findable where the script will look for it; what lies elsewhere is found as it is."""
    for outside, inside in folders.items():
        if _is_below(Path(path), outside):
            target = inside / os.path.relpath(path, outside)
            if os.path.isdir(path) and not os.path.islink(target):
                _bring_folder(path, target)
            elif os.path.isfile(path) and not os.path.lexists(target):
                _bring_file(path, target)
            return


def _bring_folder(path: str, target: Path) -> None:
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    if len(files) > LINKED_FILES:
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
        return
    for file in files:
        inside = target / os.path.relpath(file, path)
        if not os.path.lexists(inside):
            _bring_file(file, inside)


def _bring_file(path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.getsize(path) <= COPIED_BYTES:
        shutil.copy2(path, target)
    else:
        target.symlink_to(path)


def _link_older(outside: Path, inside: Path, base: Path, begun_s: float) -> None:
    """Link what was there before the run began and is unchanged: it may have been read before relive was asked.

    What was made or changed since is not what the run saw, and is left out. Nor are there links in a project of so many
    files that finding them would take longer than it helps.
    """
    found: list[tuple[str, Path]] = []
    for folder, names, files in os.walk(outside):
        names[:] = [name for name in names if not _is_machinery(Path(folder) / name, base)]
        for name in files:
            path, target = os.path.join(folder, name), inside / os.path.relpath(folder, outside) / name
            if not os.path.lexists(target) and _changed_s(path) < begun_s:
                found.append((path, target))
        if len(found) > LINKED_FILES:
            return
    for path, target in found:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path)


def _is_machinery(folder: Path, base: Path) -> bool:
    """Hidden folders, environments, and homes of relive."""
    is_home = folder / "replays" in base.parents
    return is_home or folder.name.startswith(".") or folder.name == "__pycache__" or (folder / "pyvenv.cfg").exists()


def _changed_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return math.inf


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
