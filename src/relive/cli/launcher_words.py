"""The command lines of launchers: where the script is in them, and how each process is started hands-free instead."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from relive.errors import NotFound

_PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
_START_RELIVE = ["-m", "relive", "run"]
# Launchers of Python scripts, by the words that start them, and their option for a module in place of a script.
_SCRIPT_LAUNCHERS = {("torchrun",): "-m", ("accelerate", "launch"): "-m", ("deepspeed",): "--module"}
# Launchers of programs: Python is one of their words.
_PROGRAM_LAUNCHERS = frozenset({"mpirun", "mpiexec", "srun", "env", "nice", "taskset", "numactl", "uv", "poetry"})
KNOWN = "torchrun, accelerate launch, deepspeed, mpirun, srun or python"


def is_launcher(words: Sequence[str]) -> bool:
    """Whether a command line starts a script by way of a launcher."""
    name = os.path.basename(words[0])
    return bool(_PYTHON.match(name)) or name in _PROGRAM_LAUNCHERS or _launcher_of(words) is not None


def hands_free_words(words: Sequence[str], is_file: Callable[[str], bool] = os.path.isfile) -> list[str]:
    """Returns the command line of a launcher with `relive run` put before the script or module that it starts."""
    launcher = _launcher_of(words)
    if launcher is not None:
        return _start_by_module(words, len(launcher), _SCRIPT_LAUNCHERS[launcher], is_file)
    for at, word in enumerate(words):
        if _PYTHON.match(os.path.basename(word)):
            return _start_by_module(words, at + 1, "-m", is_file)
        if at and _launcher_of(words[at:]) is not None:  # `srun torchrun …`
            return [*words[:at], *hands_free_words(words[at:], is_file)]
    raise _no_script(words)


def _launcher_of(words: Sequence[str]) -> tuple[str, ...] | None:
    given = (os.path.basename(words[0]), *words[1:2])
    return next((name for name in _SCRIPT_LAUNCHERS if given[: len(name)] == name), None)


def _start_by_module(words: Sequence[str], start: int, flag: str, is_file: Callable[[str], bool]) -> list[str]:
    """Puts `-m relive run` before the first script after a position, or in place of its own `-m`."""
    for at in range(start, len(words)):
        if words[at] in ("-m", "--module") and at + 1 < len(words):
            return [*words[:at], flag, *_START_RELIVE[1:], "-m", *words[at + 1 :]]
        if words[at].endswith(".py") and is_file(words[at]):
            return [*words[:at], flag, *_START_RELIVE[1:], *words[at:]]
    raise _no_script(words)


def _no_script(words: Sequence[str]) -> NotFound:
    command = " ".join(words[:2])
    return NotFound(
        f"`{command} …` names no script that is here; as in: relive run torchrun --nproc-per-node 2 train.py"
    )
