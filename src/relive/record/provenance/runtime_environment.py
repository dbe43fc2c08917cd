"""Describes interpreter, machine, packages, command line and variables of a run; redacts secrets."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from relive.machine import usable_cpu_count
from relive.record.process import LAUNCH_VARIABLES

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

REDACTED = "<redacted>"

_RECORDED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES OMP_NUM_THREADS MKL_NUM_THREADS PYTHONHASHSEED CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE "
    "NCCL_* TORCH_* PYTORCH_* HF_HUB_OFFLINE TOKENIZERS_PARALLELISM MASTER_ADDR MASTER_PORT "
    "SLURM_JOB_ID SLURM_*NODE* CONDA_DEFAULT_ENV VIRTUAL_ENV"
).split()
_RECORDED_VARIABLES += LAUNCH_VARIABLES  # a replay sets these for each rank

_SECRET_WORDS = frozenset(
    "secret secrets pwd passphrase passcode apikey accesskey secretkey privatekey credential credentials creds cred "
    "auth oauth authorization bearer jwt cookie cookies private dsn sas signature".split()
)
_SECRET_ENDINGS = ("token", "secret", "password", "passwd")
# Ambiguous words: secret, unless a neighbouring word shows that they belong to a model or a table.
_AMBIGUOUS_WORDS = frozenset("token tokens key keys pass session sessions".split())
_HARMLESS_NEIGHBOURS = frozenset(
    "pad eos bos mask unk cls sep special new image num n max min total per type types dim dims size len length count "
    "limit embedding embeddings dropout batch value query values heads head hidden padding through forward backward "
    "level wise mixer mixing index vocab merge drop prune sort group join primary foreign".split()
)

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_ASSIGNMENT = re.compile(r"(?P<name>[\w.+/-]*\w)\s*[=:]\s*(?P<value>[^{\[].*)", re.DOTALL)
_INNER_PAIR = re.compile(
    r"""(?P<name>[\w.-]+)["']?\s*[=:]\s*(?P<value>"[^"]*"|'[^']*'|[^\s,&{}\[\]"'][^\s,&{}\[\]]*)"""
)
_USER_IN_URL = re.compile(r"(?P<scheme>[a-zA-Z][\w+.-]*://)[^/@\s]*:[^/@\s]*@")
_URL_PARAMETER = re.compile(r"[?&](?P<name>[\w.-]+)=(?P<value>[^&#\s]*)")
_TOKEN_SHAPE = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}|sk-[\w-]{20,}"
    r"|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|(?<=Bearer )\S+|(?<=Basic )\S+)"
)


def describe_environment(
    environ: Mapping[str, str], argv: Sequence[str], *, extra: Iterable[str] = ()
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
        "command": list[Json](redact_argv(argv)),
        "variables": _variables(environ, extra),
    }


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


def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret, which must not be recorded."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(_is_secret_word(words, at) for at in range(len(words)))


def _is_secret_word(words: Sequence[str], at: int) -> bool:
    word = words[at]
    if word in _AMBIGUOUS_WORDS:
        neighbours = {*words[max(0, at - 1) : at], *words[at + 1 : at + 2]}
        return not neighbours & _HARMLESS_NEIGHBOURS
    return word in _SECRET_WORDS or word.startswith("passw") or word.endswith(_SECRET_ENDINGS)


def redact_argv(argv: Sequence[str]) -> list[str]:
    """Redacts secrets in a command line: `--token abc`, `password=abc`, `https://me:abc@host`."""
    cleaned: list[str] = []
    value_is_secret = False
    for part in argv:
        hide = value_is_secret and not part.startswith("-")
        cleaned.append(REDACTED if hide else redact(part))
        value_is_secret = part.startswith("-") and "=" not in part and " " not in part and is_secret(part)
    return cleaned


def redact(text: str) -> str:
    """Redacts secrets in one word of a command line, or in the value of a variable."""
    text = _USER_IN_URL.sub(rf"\g<scheme>{REDACTED}@", text)
    text = _URL_PARAMETER.sub(_hide_if_secret, text)
    text = _INNER_PAIR.sub(_hide_if_secret, text)
    text = _TOKEN_SHAPE.sub(REDACTED, text)
    assignment = _ASSIGNMENT.fullmatch(text)
    return _hide_if_secret(assignment) if assignment else text


def _hide_if_secret(found: re.Match[str]) -> str:
    if not is_secret(found["name"]):
        return found[0]
    return found[0][: found.start("value") - found.start()] + REDACTED


def _variables(environ: Mapping[str, str], extra: Iterable[str]) -> dict[str, Json]:
    names = {*_RECORDED_VARIABLES, *extra}
    patterns = [name for name in names if "*" in name]  # few, since each takes a tenth of a millisecond to compile
    recorded = (name for name in sorted(environ) if name in names or any(fnmatchcase(name, p) for p in patterns))
    return {name: redact(environ[name]) for name in recorded if not is_secret(name)}


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
