"""Detects the rank of this process in a distributed launch, its entry point, and the project of that."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from relive.installation import PACKAGE_FOLDER
from relive.store.journal import process_start_stamp

# The variables by which launchers pass a process its rank.
LAUNCH_VARIABLES = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
    "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS RELIVE_RANK RELIVE_WORLD_SIZE "
    "RELIVE_LOCAL_RANK SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_STEP_ID SLURM_STEP_NUM_TASKS PMI_RANK PMI_SIZE "
    "MPI_LOCALRANKID MPI_LOCALNRANKS OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK "
    "OMPI_COMM_WORLD_LOCAL_SIZE"
).split()
_LOCAL_ADDRESSES = ("", "localhost", "127.0.0.1", "::1")
_PROJECT_MARKERS = (".relive", "relive.toml", "pyproject.toml", "setup.py", "setup.cfg")


class Launch(NamedTuple):
    """The rank of a process within a launch. `key` is equal on all ranks of the launch, and on no other process."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    key: str | None = None  # None: a single process, or its launch can't be identified


def detect_launch(environ: Mapping[str, str] = os.environ) -> Launch:
    """Reads the variables of torchrun, srun, mpirun or the user (RELIVE_RANK, RELIVE_WORLD_SIZE, RELIVE_LAUNCH)."""
    launchers = (
        _detect_relive,
        _detect_torchrun,
        _detect_slurm,
        _detect_open_mpi,
        _detect_mpich,
        _detect_process_group,
    )
    found = next((launch for launcher in launchers if (launch := launcher(environ)) is not None), Launch())
    return found._replace(key=environ.get("RELIVE_LAUNCH") or found.key)


def launches_rank(environ: Mapping[str, str], rank: int, world_size: int) -> bool:
    """Whether a process that is started with these variables has this rank."""
    launch = detect_launch(environ)
    return (launch.rank, launch.world_size) == (rank, world_size)


def _detect_relive(environ: Mapping[str, str]) -> Launch | None:
    names = "RELIVE_RANK RELIVE_WORLD_SIZE RELIVE_LOCAL_RANK"
    return _read_launch(environ, names, lambda: _make_key("relive", *_parent_identity()))


def _detect_torchrun(environ: Mapping[str, str]) -> Launch | None:
    """Also accelerate, deepspeed and torch.distributed.launch, which set the same variables."""

    def key() -> str:
        names = "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT MASTER_ADDR MASTER_PORT SLURM_JOB_ID".split()
        # On one machine the run id is usually "none" and the port always the same; only the agent differs per launch.
        agent = _agent_identity(environ) if _is_on_one_machine(environ) else ()
        return _make_key("torchrun", *(environ.get(name, "") for name in names), *agent)

    return _read_launch(environ, "RANK WORLD_SIZE LOCAL_RANK", key)


def _is_on_one_machine(environ: Mapping[str, str]) -> bool:
    if "LOCAL_WORLD_SIZE" in environ:
        return environ["LOCAL_WORLD_SIZE"] == environ.get("WORLD_SIZE")
    return environ.get("MASTER_ADDR", "") in _LOCAL_ADDRESSES


def _agent_identity(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the folder torchrun makes per launch (…/<random>/attempt_0/<local rank>/error.json), or else our parent.

    The folder is preferred: with a shell between the agent and the ranks, each rank has a different parent.
    """
    error_file = Path(environ.get("TORCHELASTIC_ERROR_FILE", ""))
    if len(error_file.parts) > 4 and error_file.parent.parent.name.startswith("attempt_"):
        return platform.node(), str(error_file.parents[2])
    return _parent_identity()


def _detect_slurm(environ: Mapping[str, str]) -> Launch | None:
    """Only processes that srun started: a batch script has the variables of its allocation, but is a single process."""
    size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    if "SLURM_STEP_ID" not in environ or environ.get(size, "1") == "1":
        return None
    job = [environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")]
    return _read_launch(environ, f"SLURM_PROCID {size} SLURM_LOCALID", lambda: _make_key("slurm", *job))


def _detect_open_mpi(environ: Mapping[str, str]) -> Launch | None:
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    names = "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK"
    return _read_launch(environ, names, lambda: _make_key("openmpi", job) if job else None)


def _detect_mpich(environ: Mapping[str, str]) -> Launch | None:
    """Also Intel MPI. Its PMI_ID is the rank again, so it does not identify the job."""

    def key() -> str | None:
        job = environ.get("PMI_JOBID") or environ.get("PMI_KVSNAME")
        is_local = environ.get("MPI_LOCALNRANKS", "") == environ["PMI_SIZE"]
        return _make_key("mpich", job or "", *(_parent_identity() if is_local else ())) if job or is_local else None

    return _read_launch(environ, "PMI_RANK PMI_SIZE MPI_LOCALRANKID", key)


def _detect_process_group(environ: Mapping[str, str]) -> Launch | None:
    """A process group that the script itself initialized, as workers of torch.multiprocessing.spawn do."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, size = distributed.get_rank(), distributed.get_world_size()
    address = [environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
    parent = _parent_identity() if _is_on_one_machine(environ) else ()
    return Launch(rank, size, rank, _make_key("group", *address, *parent) if size > 1 else None)


def _read_launch(environ: Mapping[str, str], names: str, key: Callable[[], str | None]) -> Launch | None:
    rank, size, local = (_parse_decimal(environ.get(name)) for name in names.split())
    if rank is None or size is None or not 0 <= rank < size:
        return None
    return Launch(rank, size, rank if local is None else local, key() if size > 1 else None)


def _parse_decimal(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _parent_identity() -> tuple[str, ...]:
    parent = os.getppid()
    return platform.node(), str(parent), process_start_stamp(parent) or ""


def _make_key(launcher: str, *facts: str) -> str:
    from relive.hashing import stable_hash  # imported only if there are several ranks

    return f"{launcher}-{stable_hash(facts)[:16]}"


def is_pool_worker() -> bool:
    """Whether another Python process started this one as its worker: by multiprocessing, a pool, a data loader."""
    process = sys.modules.get("multiprocessing.process")  # every kind of worker has imported it
    return process is not None and process.parent_process() is not None


class EntryPoint(NamedTuple):
    """The script, module, notebook or command that the user started."""

    kind: Literal["script", "module", "notebook", "interactive", "command"]
    script: str | None  # absolute, without symbolic links; for a notebook its file, if known
    module: str | None  # for `python -m`
    root: str  # the folder of the project
    cwd: str


def find_entry(main_module: ModuleType | None = None, cwd: str | os.PathLike[str] | None = None) -> EntryPoint:
    """Determines what was started from the main module; in a spawned worker, the script of its parent."""
    main = main_module or sys.modules.get("__mp_main__") or sys.modules.get("__main__")
    here = os.fspath(cwd) if cwd is not None else _cwd()
    notebook = _notebook_path(main, here)
    if notebook is not None:
        return _make_entry("notebook", notebook or None, None, here)
    script = getattr(main, "__file__", None)
    if main_module is None and script and _is_installed(os.path.abspath(script)) and is_pool_worker():
        pool_script = _script_of_pool()  # of joblib and others, whose workers don't load the main module
        script, main = (pool_script, None) if pool_script else (script, main)
    module = _module_name(main)
    if not script or not os.path.isfile(script) or module == "_pyrepl":
        return _make_entry("interactive", None, None, here)
    if _is_installed(os.path.abspath(script)) or _is_installed(os.path.realpath(script)):
        return EntryPoint("command", os.path.realpath(script), module, str(project_root(Path(here))), here)
    return _make_entry("module" if module else "script", script, module, here)


def _script_of_pool() -> str | None:
    """Returns the script that started the pool to which this worker belongs, whose arguments the worker was given."""
    started_in = sys.modules["multiprocessing.process"].ORIGINAL_DIR
    path = os.path.join(started_in or "", sys.argv[0] if sys.argv else "")
    return path if os.path.isfile(path) and not _is_installed(path) else None


def _make_entry(kind: Literal["script", "module", "notebook", "interactive"], script: str | None, module: str | None,
           cwd: str) -> EntryPoint:  # fmt: skip
    real = os.path.realpath(os.path.join(cwd, script)) if script else None
    # The location of the script decides, not the working directory, which may be inside another project.
    start = Path(real).parent if real else Path(os.path.realpath(cwd))
    if module and real:  # start above the top-level package: a package is not a project
        levels = module.count(".") + (Path(real).name == "__main__.py")
        start = [start, *start.parents][min(levels, len(start.parents))]
    return EntryPoint(kind, real, module, str(project_root(start)), cwd)


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the folder was removed
        return os.environ.get("PWD") or os.sep


def _notebook_path(main: ModuleType | None, cwd: str) -> str | None:
    """Returns the path of the notebook, "" if it is unknown, None if this is no notebook."""
    if "ipykernel" not in sys.modules or getattr(main, "__file__", None):
        return None
    named = getattr(main, "__vsc_ipynb_file__", None) or os.environ.get("JPY_SESSION_NAME")
    if not named:
        return ""
    candidates = os.path.join(cwd, named), os.path.join(cwd, os.path.basename(named))
    return next((path for path in candidates if os.path.isfile(path)), "")


def _module_name(main: ModuleType | None) -> str | None:
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if not isinstance(name, str) or name in ("__main__", "__mp_main__"):
        return None
    return name.removesuffix(".__main__")


def _is_installed(path: str) -> bool:
    """Whether a file is not the user's: a console script, or a module of Python, of a library, or of relive."""
    folder = os.path.dirname(path)
    programs = {os.path.join(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in ("bin", "Scripts")}
    libraries = ("/site-packages/", "/dist-packages/", f"{os.path.dirname(os.path.realpath(os.__file__))}/")
    return (
        folder in programs
        or path.startswith(PACKAGE_FOLDER)
        or any(part in path.replace(os.sep, "/") for part in libraries)
    )


def project_root(start: Path) -> Path:
    """Returns the git top level of a folder, else its nearest parent with a project marker, else the folder itself."""
    folders = list(_project_candidates(start))
    for markers in ((".git",), _PROJECT_MARKERS):
        for folder in folders:
            if any((folder / marker).exists() for marker in markers):
                return folder
    return start


def _project_candidates(start: Path) -> Iterator[Path]:
    """Yields the folder and its parents, but neither the user's home nor folders above it."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for folder in (start, *start.parents):
        if folder == home or folder == folder.parent or folder in home.parents:
            return
        yield folder
