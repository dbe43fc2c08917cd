"""What a run ran on: interpreter, machine, packages, command line and harmless variables; it knows what a secret is."""

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

from relive.record.process import LAUNCHED_BY

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

REDACTED = "<redacted>"

_RECORDED = (
    "CUDA_VISIBLE_DEVICES OMP_NUM_THREADS MKL_NUM_THREADS PYTHONHASHSEED CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE "
    "NCCL_* TORCH_* PYTORCH_* HF_HUB_OFFLINE TOKENIZERS_PARALLELISM MASTER_ADDR MASTER_PORT "
    "SLURM_JOB_ID SLURM_*NODE* CONDA_DEFAULT_ENV VIRTUAL_ENV"
).split()
_RECORDED += LAUNCHED_BY  # what a replay must tell each rank again

_SECRET_WORDS = frozenset(
    "secret secrets pwd passphrase passcode apikey accesskey secretkey privatekey credential credentials creds cred "
    "auth oauth authorization bearer jwt cookie cookies private dsn sas signature".split()
)
_SECRET_ENDINGS = ("token", "secret", "password", "passwd")
# Words of both worlds: secret, unless a neighbour tells that a model or a table is meant.
_DOUBTFUL_WORDS = frozenset("token tokens key keys pass session sessions".split())
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


def quick(environ: Mapping[str, str], argv: Sequence[str], *, extra: Iterable[str] = ()) -> dict[str, Json]:
    """What is known within a few milliseconds, without importing a framework or waking a GPU."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": _platform(),
        "hostname": platform.node(),
        "user": _user(environ),
        "pid": os.getpid(),
        "cwd": _cwd(),
        "cpu": cpu(),
        "cpus": os.cpu_count(),
        "cpus_usable": _usable_cpus(),
        "memory_bytes": _memory_bytes(),
        "gpus": list(gpus()),
        "command": list[Json](redact_argv(argv)),
        "variables": _variables(environ, extra),
    }


def packages() -> dict[str, str]:
    """Name → version of every installed distribution, as their metadata says.

    Without importlib.metadata: that loads and runs much, and would do so on a thread beside the training.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        for place in _distributions(folder or os.curdir):
            named = _name_and_version(place)
            if named is not None:
                found.setdefault(*named)  # the first on the path is the one that is imported
    return dict(sorted(found.items(), key=lambda pair: pair[0].lower()))


def _distributions(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:  # a zip, or nothing at all
        return []


def _name_and_version(place: str) -> tuple[str, str] | None:
    for file in (f"{place}/METADATA", f"{place}/PKG-INFO", place):
        with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
            head = dict(line.rstrip("\n").partition(": ")[::2] for line in itertools.takewhile(str.strip, lines))
            return (head["Name"], head["Version"]) if head.get("Name") and head.get("Version") else None
    return None


def is_secret(name: str) -> bool:
    """Does a variable or an option of this name hold something that must not be recorded?"""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(_is_secret_word(words, at) for at in range(len(words)))


def _is_secret_word(words: Sequence[str], at: int) -> bool:
    word = words[at]
    if word in _DOUBTFUL_WORDS:
        around = {*words[max(0, at - 1) : at], *words[at + 1 : at + 2]}
        return not around & _HARMLESS_NEIGHBOURS
    return word in _SECRET_WORDS or word.startswith("passw") or word.endswith(_SECRET_ENDINGS)


def redact_argv(argv: Sequence[str]) -> list[str]:
    """The command line with the values of secrets taken out: `--token abc`, `password=abc`, `https://me:abc@host`."""
    cleaned: list[str] = []
    value_is_secret = False
    for part in argv:
        hide = value_is_secret and not part.startswith("-")
        cleaned.append(REDACTED if hide else redact(part))
        value_is_secret = part.startswith("-") and "=" not in part and " " not in part and is_secret(part)
    return cleaned


def redact(text: str) -> str:
    """One word of a command line, or the value of a variable, without secrets."""
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
    wanted = {*_RECORDED, *extra}
    patterns = [name for name in wanted if "*" in name]  # few, since each costs a tenth of a millisecond to compile
    kept = (name for name in sorted(environ) if name in wanted or any(fnmatchcase(name, like) for like in patterns))
    return {name: redact(environ[name]) for name in kept if not is_secret(name)}


def _platform() -> str:
    facts = platform.uname()  # `platform.platform()` would read the C library to tell its version
    return f"{facts.system}-{facts.release}-{facts.machine}"


def _user(environ: Mapping[str, str]) -> str | None:
    named = next((environ[name] for name in ("LOGNAME", "USER", "LNAME", "USERNAME") if environ.get(name)), None)
    if named is None:
        with contextlib.suppress(ImportError, KeyError, OSError):  # a container's user may have no name
            import pwd

            named = pwd.getpwuid(os.getuid()).pw_name
    return named


def _cwd() -> str | None:
    with contextlib.suppress(OSError):  # the folder may have been removed
        return os.getcwd()
    return None


def cpu() -> str | None:
    """The processor's name."""
    for line in _start_of("/proc/cpuinfo").splitlines():
        if line.lower().startswith(("model name", "cpu model", "hardware")):
            return line.partition(":")[2].strip()
    return platform.machine() or None


def _usable_cpus() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count()


def _memory_bytes() -> int | None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def gpus() -> Iterator[Json]:
    """The names of graphics cards.

    From the driver's files: asking CUDA would start it in this process, and break those who fork before they do.
    """
    folder = Path("/proc/driver/nvidia/gpus")
    with contextlib.suppress(OSError):
        for card in sorted(folder.iterdir()):
            facts = _start_of(str(card / "information")).splitlines()
            yield next((line.partition(":")[2].strip() for line in facts if line.startswith("Model")), "unknown")


def _start_of(path: str) -> str:
    """The first page only: the kernel writes these files as they are read, and with 200 cores that takes a while."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096).decode(errors="replace")
    except OSError:
        return ""
