"""The folder in which a segment is replayed: the tree of the version, with the inputs of the run linked in."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.errors import NotFound
from relive.hindsight.notebooks import cell_file_name, is_notebook_run
from relive.hindsight.workers.confinement import OWN_FOLDERS
from relive.model import RunRecord
from relive.record.process import LAUNCH_VARIABLES
from relive.record.provenance import APPENDED, OF_THE_PLACE
from relive.store.journal import ParsedJournal, line_schema
from relive.store.versions import code_versions

MAX_COPIED_BYTES = 16 << 20  # larger inputs are linked; C libraries may write through a link unnoticed
START_PRECISION_S = 0.01  # Linux rounds the start of a process down to this; Python itself takes longer to start
MAX_LINKED_FILES = 10_000  # of a folder; with more, the folder itself is linked
_HERE, _BIRTH_TIME, _BIRTH_TIME_OFFSET = -100, 0x800, 0x50  # of statx(2)
# Experiment trackers write to the folder of the replay instead of their server.
OFFLINE = {"WANDB_MODE": "offline", "NEPTUNE_MODE": "offline", "CLEARML_OFFLINE_MODE": "1", "COMET_MODE": "OFFLINE"}
# Where the ranks of a process group find each other.
_RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")
# Never taken from today's variables: they are as recorded, or not set.
_OF_THE_RUN = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one segment."""

    base: Path
    tree: Path  # the project as it was, with the added statements
    cwd: Path
    script: Path
    missing: tuple[str, ...] = ()  # files that the run found in a state that nobody knows

    def folder(self, rank: int) -> Path:
        """The folder for the journals and the report of one rank. All else is common to all ranks."""
        return self.base / "journals" / str(rank)


def materialise(record: RunRecord, files: Mapping[str, str], into: Path) -> None:
    """Writes the tree of a run's version into a folder, with some files replaced."""
    code = record.code
    if not record.version:
        raise NotFound(f"run {record.run} has no code version; record runs with `versions` switched on to replay them")
    code_versions.materialise(record.version, repository=Path(code["repository"]), into=into)
    for name, text in files.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))


def create_workspace(
    record: RunRecord, ranks: Sequence[ParsedJournal], tree: Path, base: Path, home: Path
) -> Workspace:
    """Copies a materialised tree for the workers of a segment, and adds the files that the run may have read."""
    base.mkdir(parents=True)
    own = base / "tree"
    shutil.copytree(tree, own, symlinks=True)
    root = Path(record.code["root"])
    cwd = Path(record.code.get("cwd") or root)
    folders = {root: own}
    if not _is_below(cwd, root):
        folders[cwd] = base / "cwd"
        (base / "cwd").mkdir()
    for path in dict.fromkeys(path for rank in ranks for path in _input_paths(record, rank)):
        _provide(path, folders)
    _link_beside(root, base, {path for rank in ranks for path in _paths_outside(record, rank)})
    for line in (line for rank in ranks for line in line_schema.lines_of(line_schema.InputRead, rank.lines)):
        if line.role == APPENDED:
            _provide_beginning(line.path, line.size_bytes or 0, folders)
    began_s = script_began_s(record, ranks[0])
    missing: list[str] = []
    for outside, inside in folders.items():
        _make_older_folders(outside, inside, base, began_s + START_PRECISION_S)
        missing += _link_older_files(outside, inside, base, record.started_us / 1e6, began_s)
        if _is_below(home, outside):  # the script may list the folder
            (inside / os.path.relpath(home, outside)).mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        (base / "journals" / str(rank.journal.rank)).mkdir(parents=True)
    place = own / os.path.relpath(cwd, root) if _is_below(cwd, root) else base / "cwd"
    place.mkdir(parents=True, exist_ok=True)
    return Workspace(base, own, place, own / entry_file(record), tuple(missing))


def entry_file(record: RunRecord) -> str:
    """The path of the script inside its version; for a notebook, of the file with its cells."""
    if is_notebook_run(record):
        return cell_file_name(record)
    script, root = record.code.get("script"), record.code.get("root")
    if not script or not root or not _is_below(Path(script), Path(root)):
        raise NotFound(f"run {record.run} has no script inside its project; only scripts can be replayed")
    return Path(os.path.relpath(script, root)).as_posix()


def merged_variables(recorded: Mapping[str, str], *, threads: int | None) -> dict[str, str]:
    """Today's environment variables, with the recorded ones in place of those that affect results."""
    recorded_ones = {name: value for name, value in recorded.items() if name not in OF_THE_PLACE}
    today = {name: value for name, value in os.environ.items() if not _is_replaced(name)}
    if threads and "OMP_NUM_THREADS" not in recorded_ones:
        recorded_ones["OMP_NUM_THREADS"] = str(threads)
    return {**today, **recorded_ones, "PYTHONUNBUFFERED": "1"}


def _is_replaced(name: str) -> bool:
    return name in (*_OF_THE_RUN, *_RENDEZVOUS, *LAUNCH_VARIABLES, "RELIVE_PARENT") or name.startswith("TORCHELASTIC_")


def rendezvous_variables(recorded: Mapping[str, str]) -> dict[str, str]:
    """The rendezvous of ranks that are replayed together: this machine, at a free port; empty if they had none."""
    if not {*_RENDEZVOUS, *LAUNCH_VARIABLES} & {*recorded}:
        return {}
    with socket.socket() as free:
        free.bind(("", 0))
        return dict(zip(_RENDEZVOUS, ("127.0.0.1", str(free.getsockname()[1])), strict=True))


def needs_temporary_folder(protected: Iterable[str]) -> bool:
    """Whether no file can be made in the folder for temporary files, since a protected folder is below it."""
    common = Path(os.path.realpath(tempfile.gettempdir()))
    return any(_is_below(Path(os.path.realpath(path)), common) for path in protected)


def worker_environment(
    recorded: Mapping[str, str], base: Path, *, offline: bool, threads: int | None, scratch: Path | None = None,
    unset: Collection[str] = (),
) -> dict[str, str]:  # fmt: skip
    """The environment variables of a worker, which direct output to its own folder.

    `scratch`: its temporary files; `unset`: variables of today that the run did not have.
    """
    temporary = {"TMPDIR": str(scratch)} if scratch is not None else {}
    redirected = (
        {**OFFLINE, "WANDB_DIR": str(base), "MLFLOW_TRACKING_URI": (base / "mlruns").as_uri()} if offline else {}
    )
    # Processes that the script starts must not record runs of their own.
    merged = {name: value for name, value in merged_variables(recorded, threads=threads).items() if name not in unset}
    return {**merged, **temporary, **redirected, "RELIVE_OFF": "1"}


def _input_paths(record: RunRecord, recorded: ParsedJournal) -> Iterable[str]:
    """The files that a rank declared or was seen reading, and those too large for versions."""
    read = line_schema.lines_of(line_schema.DataFields, recorded.lines)
    paths = [line.path for line in read if line.path and line.role not in ("made", APPENDED)]
    for path in [*paths, *(file["path"] for file in record.code.get("large") or ())]:
        if path:
            yield path if os.path.isabs(path) else os.path.join(record.code["root"], path)


def _paths_outside(record: RunRecord, recorded: ParsedJournal) -> Iterable[str]:
    """The files outside of the project that a rank read or wrote, as far as that was seen."""
    yield from _input_paths(record, recorded)
    for line in line_schema.lines_of(line_schema.CheckpointTaken, recorded.lines):
        yield from line.outside or ()


def _link_beside(root: Path, base: Path, paths: Iterable[str]) -> None:
    """Links what lies beside the project and was used by the run: the script may name it by `../`."""
    inside = (Path(path).relative_to(root.parent).parts for path in paths if _is_below(Path(path), root.parent))
    for name in {parts[0] for parts in inside if parts} - {root.name}:
        if os.path.exists(root.parent / name) and not os.path.lexists(base / name) and name not in OWN_FOLDERS:
            (base / name).symlink_to(root.parent / name)


def _provide(path: str, folders: Mapping[Path, Path]) -> None:
    """Puts an input of the project where the script looks for it; paths outside of the project work as they are."""
    for outside, inside in folders.items():
        if _is_below(Path(path), outside):
            target = inside / os.path.relpath(path, outside)
            if os.path.isdir(path) and not os.path.islink(target):
                _provide_folder(path, target)
            elif os.path.isfile(path) and not os.path.lexists(target):
                _provide_file(path, target)
            return


def _provide_beginning(path: str, size_bytes: int, folders: Mapping[Path, Path]) -> None:
    """Puts a file where the script looks for it as it was before the run appended to it."""
    for outside, inside in folders.items():
        target = inside / os.path.relpath(path, outside)
        if _is_below(Path(path), outside) and not os.path.lexists(target) and os.path.isfile(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "rb") as source:
                target.write_bytes(source.read(size_bytes))


def _provide_folder(path: str, target: Path) -> None:
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    if len(files) > MAX_LINKED_FILES:
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
        return
    for file in files:
        inside = target / os.path.relpath(file, path)
        if not os.path.lexists(inside):
            _provide_file(file, inside)


def _provide_file(path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.getsize(path) <= MAX_COPIED_BYTES:
        shutil.copy2(path, target)
    else:
        target.symlink_to(path)


def _make_older_folders(outside: Path, inside: Path, base: Path, moment_s: float) -> None:
    """Makes the folders that existed when the script was started; a version has no empty and no ignored ones."""
    made = 0
    for folder, names, _ in os.walk(outside):
        names[:] = [name for name in names if not _is_excluded(Path(folder) / name, base)]
        target = inside / os.path.relpath(folder, outside)
        if not os.path.lexists(target) and min(_modified_s(folder), _born_s(folder)) < moment_s:
            target.mkdir(parents=True, exist_ok=True)
            made += 1
        if made > MAX_LINKED_FILES:
            return


def script_began_s(record: RunRecord, recorded: ParsedJournal) -> float:
    """When the script was started (wall clock): it had been running for a while when it began to record."""
    header = recorded.header
    age_s = float((header.since_start_s if isinstance(header, line_schema.RunStarted) else None) or 0.0)
    return record.started_us / 1e6 - age_s


def _link_older_files(outside: Path, inside: Path, base: Path, begun_s: float, started_s: float) -> list[str]:
    """Links files that are older than the run: they may have been read before relive was imported.

    Files made or changed since are not what the run saw, and are left out. In a project with more than
    `MAX_LINKED_FILES` such files none is linked. Returns the places of those that were there when the script was
    started, and have changed since.
    """
    found: list[tuple[str, Path]] = []
    missing: list[str] = []
    for folder, names, files in os.walk(outside):
        names[:] = [name for name in names if not _is_excluded(Path(folder) / name, base)]
        for name in files:
            path, target = os.path.join(folder, name), inside / os.path.relpath(folder, outside) / name
            if os.path.lexists(target):
                continue
            if _modified_s(path) < begun_s:
                found.append((path, target))
            elif _born_s(path) < started_s - START_PRECISION_S and len(missing) < MAX_LINKED_FILES:
                missing.append(str(target))
        if len(found) > MAX_LINKED_FILES:
            return missing
    for path, target in found:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path)
    return missing


def _is_excluded(folder: Path, base: Path) -> bool:
    """Whether a folder is hidden, a cache, a virtual environment, or a home of relive."""
    is_home = folder / "replays" in base.parents
    return is_home or folder.name.startswith(".") or folder.name == "__pycache__" or (folder / "pyvenv.cfg").exists()


def _born_s(path: str) -> float:
    """When a file or folder was made; infinity where the system does not tell."""
    try:
        born = getattr(os.stat(path), "st_birthtime", None)  # not on Linux
        if born is not None:
            return float(born)
        filled = ctypes.create_string_buffer(256)
        if ctypes.CDLL(None).statx(_HERE, os.fsencode(path), 0, _BIRTH_TIME, filled):
            return math.inf
    except (OSError, AttributeError):
        return math.inf
    (mask,) = struct.unpack_from("I", filled, 0)
    seconds, nanoseconds = struct.unpack_from("qI", filled, _BIRTH_TIME_OFFSET)
    return seconds + nanoseconds / 1e9 if mask & _BIRTH_TIME else math.inf


def _modified_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return math.inf


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
