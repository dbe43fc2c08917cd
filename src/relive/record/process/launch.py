"""Who this process is: its rank in a launch of many, what was started, and to which project that belongs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

from relive.installation import PACKAGE_FOLDER
from relive.store.journal import process_start

# What launchers tell each rank about itself.
LAUNCHED_BY = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
    "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS RELIVE_RANK RELIVE_WORLD_SIZE "
    "RELIVE_LOCAL_RANK SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_STEP_ID SLURM_STEP_NUM_TASKS PMI_RANK PMI_SIZE "
    "MPI_LOCALRANKID MPI_LOCALNRANKS OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK "
    "OMPI_COMM_WORLD_LOCAL_SIZE"
).split()
_LOCAL_ADDRESSES = ("", "localhost", "127.0.0.1", "::1")
_MARKERS = (".relive", "relive.toml", "pyproject.toml", "setup.py", "setup.cfg")


class Launch(NamedTuple):
    """A process among those started together. `key` is the same on all of them, and on no others."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    key: str | None = None  # None: it stands alone, or nothing tells its launch from another


def detect(environ: Mapping[str, str] = os.environ) -> Launch:
    """Read what torchrun, srun, mpirun or the user (RELIVE_RANK, RELIVE_WORLD_SIZE, RELIVE_LAUNCH) say of us."""
    launchers = (_own, _torchrun, _slurm, _open_mpi, _mpich, _process_group)
    found = next((launch for launcher in launchers if (launch := launcher(environ)) is not None), Launch())
    return found._replace(key=environ.get("RELIVE_LAUNCH") or found.key)


def makes_rank(environ: Mapping[str, str], rank: int, world_size: int) -> bool:
    """Would a process that is started with these variables be this rank?"""
    told = detect(environ)
    return (told.rank, told.world_size) == (rank, world_size)


def _own(environ: Mapping[str, str]) -> Launch | None:
    names = "RELIVE_RANK RELIVE_WORLD_SIZE RELIVE_LOCAL_RANK"
    return _launch(environ, names, lambda: _key("relive", *_parent()))


def _torchrun(environ: Mapping[str, str]) -> Launch | None:
    """Also what others launch in its way: accelerate, deepspeed, torch.distributed.launch."""

    def key() -> str:
        told = "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT MASTER_ADDR MASTER_PORT SLURM_JOB_ID".split()
        # On one machine the run id is mostly "none" and the port the same every time; the agent is what differs.
        agent = _agent(environ) if _is_on_one_machine(environ) else ()
        return _key("torchrun", *(environ.get(name, "") for name in told), *agent)

    return _launch(environ, "RANK WORLD_SIZE LOCAL_RANK", key)


def _is_on_one_machine(environ: Mapping[str, str]) -> bool:
    if "LOCAL_WORLD_SIZE" in environ:
        return environ["LOCAL_WORLD_SIZE"] == environ.get("WORLD_SIZE")
    return environ.get("MASTER_ADDR", "") in _LOCAL_ADDRESSES


def _agent(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The folder torchrun makes for each launch, …/<random>/attempt_0/<local rank>/error.json, or else our parent.

    The folder comes first since a shell between the agent and us would give every rank a parent of its own.
    """
    error_file = Path(environ.get("TORCHELASTIC_ERROR_FILE", ""))
    if len(error_file.parts) > 4 and error_file.parent.parent.name.startswith("attempt_"):
        return platform.node(), str(error_file.parents[2])
    return _parent()


def _slurm(environ: Mapping[str, str]) -> Launch | None:
    """Only what srun started: a batch script carries the variables of its allocation, but stands alone."""
    size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    if "SLURM_STEP_ID" not in environ or environ.get(size, "1") == "1":
        return None
    told = [environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")]
    return _launch(environ, f"SLURM_PROCID {size} SLURM_LOCALID", lambda: _key("slurm", *told))


def _open_mpi(environ: Mapping[str, str]) -> Launch | None:
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    names = "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK"
    return _launch(environ, names, lambda: _key("openmpi", job) if job else None)


def _mpich(environ: Mapping[str, str]) -> Launch | None:
    """Also Intel MPI. Its PMI_ID is the rank under another name, so it is of no use here."""

    def key() -> str | None:
        job = environ.get("PMI_JOBID") or environ.get("PMI_KVSNAME")
        is_local = environ.get("MPI_LOCALNRANKS", "") == environ["PMI_SIZE"]
        return _key("mpich", job or "", *(_parent() if is_local else ())) if job or is_local else None

    return _launch(environ, "PMI_RANK PMI_SIZE MPI_LOCALRANKID", key)


def _process_group(environ: Mapping[str, str]) -> Launch | None:
    """What a script set up by itself, as the workers of torch.multiprocessing.spawn do."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, size = distributed.get_rank(), distributed.get_world_size()
    told = [environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
    parent = _parent() if _is_on_one_machine(environ) else ()
    return Launch(rank, size, rank, _key("group", *told, *parent) if size > 1 else None)


def _launch(environ: Mapping[str, str], names: str, key: Callable[[], str | None]) -> Launch | None:
    rank, size, local = (_number(environ.get(name)) for name in names.split())
    if rank is None or size is None or not 0 <= rank < size:
        return None
    return Launch(rank, size, rank if local is None else local, key() if size > 1 else None)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _parent() -> tuple[str, ...]:
    parent = os.getppid()
    return platform.node(), str(parent), process_start(parent) or ""


def _key(launcher: str, *facts: str) -> str:
    from relive.hashing import stable_hash  # only ranks need it

    return f"{launcher}-{stable_hash(facts)[:16]}"


def is_pool_worker() -> bool:
    """Were we started by another Python process to work for it: a data loader's worker, a process pool?"""
    process = sys.modules.get("multiprocessing.process")  # a worker of any kind has loaded it
    return process is not None and process.parent_process() is not None


class EntryPoint(NamedTuple):
    """What the user started."""

    kind: Literal["script", "module", "notebook", "interactive", "command"]
    script: str | None  # absolute, without symbolic links; for a notebook its file, if known
    module: str | None  # for `python -m`
    root: str  # the folder of the project
    cwd: str


def find_entry(main_module: ModuleType | None = None, cwd: str | os.PathLike[str] | None = None) -> EntryPoint:
    """What was started, told from the main module; a spawned worker tells its parent's script."""
    main = main_module or sys.modules.get("__mp_main__") or sys.modules.get("__main__")
    here = os.fspath(cwd) if cwd is not None else _cwd()
    notebook = _notebook(main, here)
    if notebook is not None:
        return _entry("notebook", notebook or None, None, here)
    script = getattr(main, "__file__", None)
    module = _module_name(main)
    if not script or not os.path.isfile(script) or module == "_pyrepl":
        return _entry("interactive", None, None, here)
    if _is_installed(os.path.abspath(script)) or _is_installed(os.path.realpath(script)):
        return EntryPoint("command", os.path.realpath(script), module, str(project_root(Path(here))), here)
    return _entry("module" if module else "script", script, module, here)


def _entry(kind: Literal["script", "module", "notebook", "interactive"], script: str | None, module: str | None,
           cwd: str) -> EntryPoint:  # fmt: skip
    real = os.path.realpath(os.path.join(cwd, script)) if script else None
    # Where the script lies decides, never where it was called from: that may be inside another project.
    start = Path(real).parent if real else Path(os.path.realpath(cwd))
    if module and real:  # a package is no project of its own: what holds it may be
        levels = module.count(".") + (Path(real).name == "__main__.py")
        start = [start, *start.parents][min(levels, len(start.parents))]
    return EntryPoint(kind, real, module, str(project_root(start)), cwd)


def _cwd() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # removed under our feet
        return os.environ.get("PWD") or os.sep


def _notebook(main: ModuleType | None, cwd: str) -> str | None:
    """The notebook's path, "" for one that can't be told, None when this isn't one."""
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
    """Not the user's: a console script, or a module of Python, of a library, or of relive wherever that lies."""
    folder = os.path.dirname(path)
    programs = {os.path.join(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in ("bin", "Scripts")}
    libraries = ("/site-packages/", "/dist-packages/", f"{os.path.dirname(os.path.realpath(os.__file__))}/")
    return (
        folder in programs
        or path.startswith(PACKAGE_FOLDER)
        or any(part in path.replace(os.sep, "/") for part in libraries)
    )


def project_root(start: Path) -> Path:
    """The git top level around a folder, else the nearest folder above that looks like a project, else itself."""
    folders = list(_below_home(start))
    for markers in ((".git",), _MARKERS):
        for folder in folders:
            if any((folder / marker).exists() for marker in markers):
                return folder
    return start


def _below_home(start: Path) -> Iterator[Path]:
    """The folder and those above it, as far as a project may reach: a marker in the home folder is a stray."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for folder in (start, *start.parents):
        if folder == home or folder == folder.parent or folder in home.parents:
            return
        yield folder
