"""Describes interpreter, machine, packages, command line and variables of a run, without the secrets in them."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from relive.machine import usable_cpu_count
from relive.record.process import LAUNCH_VARIABLES
from relive.record.provenance.secret_filter import SecretFilter, is_secret

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_RECORDED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES OMP_NUM_THREADS MKL_NUM_THREADS PYTHONHASHSEED CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE "
    "NCCL_* TORCH_* PYTORCH_* HF_HUB_OFFLINE TOKENIZERS_PARALLELISM MASTER_ADDR MASTER_PORT "
    "SLURM_JOB_ID SLURM_*NODE* CONDA_DEFAULT_ENV VIRTUAL_ENV"
).split()
_RECORDED_VARIABLES += LAUNCH_VARIABLES  # a replay sets these for each rank


SIGNALS = tuple(
    name for name in "SIGINT SIGTERM SIGHUP SIGQUIT SIGUSR1 SIGUSR2".split() if hasattr(signal, name)
)  # fmt: skip


def describe_environment(
    environ: Mapping[str, str], argv: Sequence[str], *, secrets: SecretFilter, extra: Iterable[str] = ()
) -> dict[str, Json]:
    """Returns what is known within a few milliseconds, without importing a framework or initializing a GPU."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": _platform(),
        "hostname": platform.node(),
        "user": _user(environ),
        "pid": os.getpid(),
        "cwd": _cwd(),
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "cpus_usable": usable_cpu_count(),
        "memory_bytes": _memory_bytes(),
        "gpus": list(gpu_names()),
        "command": list[Json](secrets.argv(argv)),
        "variables": _variables(environ, extra, secrets),
        "variable_names": [*sorted(environ)],
        **ignored_signals(),
    }


def ignored_signals() -> dict[str, Json]:
    """Returns the signals that this process ignores, if there are any: those that its parent ignored, as a rule."""
    found = [name for name in SIGNALS if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN]
    return {"ignored_signals": list[Json](found)} if found else {}


def set_ignored_signals(names: Collection[str]) -> None:
    """Ignores these signals, and restores Python's own handlers of others that are ignored."""
    for name in SIGNALS:
        number = getattr(signal, name)
        if name in names:
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


def installed_packages() -> dict[str, str]:
    """Returns name → version of every installed distribution, from its metadata.

    Without importlib.metadata, which imports and executes much code; this runs on a thread beside the training.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        for place in _find_distributions(folder or os.curdir):
            package = _name_and_version(place)
            if package is not None:
                found.setdefault(*package)  # the first on the path is the one that is imported
    return dict(sorted(found.items(), key=lambda pair: pair[0].lower()))


def _find_distributions(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:  # a zip file, or missing
        return []


def _name_and_version(place: str) -> tuple[str, str] | None:
    for file in (f"{place}/METADATA", f"{place}/PKG-INFO", place):
        with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
            head = dict(line.rstrip("\n").partition(": ")[::2] for line in itertools.takewhile(str.strip, lines))
            return (head["Name"], head["Version"]) if head.get("Name") and head.get("Version") else None
    return None


def _variables(environ: Mapping[str, str], extra: Iterable[str], secrets: SecretFilter) -> dict[str, Json]:
    names = {*_RECORDED_VARIABLES, *extra}
    patterns = [name for name in names if "*" in name]  # few, since each takes a tenth of a millisecond to compile
    recorded = (name for name in sorted(environ) if name in names or any(fnmatchcase(name, p) for p in patterns))
    return {name: secrets.word(environ[name]) for name in recorded if not is_secret(name)}


def _platform() -> str:
    facts = platform.uname()  # `platform.platform()` would read the C library to find its version
    return f"{facts.system}-{facts.release}-{facts.machine}"


def _user(environ: Mapping[str, str]) -> str | None:
    user = next((environ[name] for name in ("LOGNAME", "USER", "LNAME", "USERNAME") if environ.get(name)), None)
    if user is None:
        with contextlib.suppress(ImportError, KeyError, OSError):  # the user of a container may have no name
            import pwd

            user = pwd.getpwuid(os.getuid()).pw_name
    return user


def _cwd() -> str | None:
    with contextlib.suppress(OSError):  # the folder may have been removed
        return os.getcwd()
    return None


def cpu_name() -> str | None:
    """Returns the name of the processor."""
    for line in _read_first_page("/proc/cpuinfo").splitlines():
        if line.lower().startswith(("model name", "cpu model", "hardware")):
            return line.partition(":")[2].strip()
    return platform.machine() or None


def _memory_bytes() -> int | None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def gpu_names() -> Iterator[Json]:
    """Yields the names of the GPUs.

    From the files of the driver: CUDA would be initialized in this process, and then break in forked children.
    """
    folder = Path("/proc/driver/nvidia/gpus")
    with contextlib.suppress(OSError):
        for card in sorted(folder.iterdir()):
            facts = _read_first_page(str(card / "information")).splitlines()
            yield next((line.partition(":")[2].strip() for line in facts if line.startswith("Model")), "unknown")


def _read_first_page(path: str) -> str:
    """Reads 4096 bytes only: the kernel generates these files on read, which is slow with hundreds of cores."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096).decode(errors="replace")
    except OSError:
        return ""
