"""Which environment variables the code of a project names: only these can matter to it, so only these are recorded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from relive.record.provenance.secret_filter import SecretFilter, is_ordinary, is_secret

_QUOTED_NAME = re.compile(r"""["']([A-Za-z_][A-Za-z0-9_]*)["']""")
_TOOL_PREFIXES = ("RELIVE_", "_")
# They say where a process runs, not what it should compute; a replay has those of today.
OF_THE_PLACE = frozenset(
    "CONDA_DEFAULT_ENV CONDA_PREFIX DISPLAY HOME LD_LIBRARY_PATH LOGNAME OLDPWD PATH PWD PYTHONPATH SHELL SHLVL "
    "SSH_AUTH_SOCK TEMP TERM TMP TMPDIR USER USERNAME VIRTUAL_ENV XDG_CACHE_HOME XDG_CONFIG_HOME "
    "XDG_RUNTIME_DIR".split()
)


def is_of_the_place(name: str) -> bool:
    """Whether a variable says where a process runs, or belongs to relive or to a tool (`_CE_CONDA`)."""
    return name in OF_THE_PLACE or name.startswith(_TOOL_PREFIXES)


def initial_environment() -> dict[str, str]:
    """Returns the variables that the process was started with, before the script changed any."""
    try:
        data = Path("/proc/self/environ").read_bytes()
    except OSError:  # not Linux
        return dict(os.environ)
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def named_in(text: str) -> set[str]:
    """Returns all texts in a source that may be names of variables."""
    return set(_QUOTED_NAME.findall(text))


class NamedVariables:
    """The variables that a run's files name, each reported once."""

    def __init__(self, root: str, environ: Mapping[str, str], secrets: SecretFilter) -> None:
        self._root = root
        self._secrets = secrets
        self._left = {
            name: value
            for name, value in environ.items()
            if not is_of_the_place(name) and not is_secret(name) and is_ordinary(value)
        }

    def new(self, files: Iterable[str]) -> dict[str, str]:
        """Returns the variables that these files name, and none before them did."""
        named: set[str] = set()
        for file in files:
            try:
                text = Path(self._root, file).read_text("utf-8", "replace")
            except OSError:  # it was removed since it was imported
                continue
            named |= named_in(text)
        found = sorted(name for name in named if name in self._left)
        return {name: self._secrets.word(self._left.pop(name)) for name in found}
