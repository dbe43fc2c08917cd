"""Runs git without side effects on the user: no hooks, prompts, index locks or inherited settings, and a timeout."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from relive.errors import VersionError

EMAIL = "relive@localhost"
TIMEOUT_S = 60

_CONFIG = {
    "commit.gpgSign": "false",
    "core.filesRefLockTimeout": "5000",
    "core.fsmonitor": "false",
    "core.fsync": "committed",  # after a power cut no branch in the user's repository may point to a torn object
    "core.fsyncMethod": "batch",
    "core.hooksPath": os.devnull,
    "core.logAllRefUpdates": "false",
    "core.packedRefsTimeout": "5000",
    "core.safecrlf": "false",
    "core.sparseCheckout": "false",  # otherwise our index would skip the files that the user's skips
    "core.splitIndex": "false",  # otherwise our index would leave a shared index file in the user's git folder
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "index.skipHash": "false",  # its checksum is verified before an index is used again
    "index.sparse": "false",
    "init.defaultBranch": "main",
    "maintenance.auto": "false",
}
_OPTIONS = [part for pair in _CONFIG.items() for part in ("-c", "=".join(pair))]
_VARIABLES = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",  # `status` must not refresh the user's index
    "GIT_TERMINAL_PROMPT": "0",
    **{f"GIT_{who}_NAME": "relive" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": EMAIL for who in ("AUTHOR", "COMMITTER")},
}
# A script started from a git hook inherits the hook's repository and index. Only the variables that say where the
# user's settings are, and how far git may search, are passed on.
_INHERITED_PREFIXES = ("GIT_CONFIG_", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_EXEC_PATH")


class GitFailed(VersionError):
    """A git command failed. `stderr` is kept, because callers handle some of its messages."""

    def __init__(self, verb: str, cwd: Path, stderr: bytes) -> None:
        self.stderr = stderr.strip()
        reason = text(self.stderr).rpartition("fatal: ")[2] or "no reason given"
        super().__init__(f"git {verb} failed in {cwd}: {reason}; see what `git status` and `git fsck` say there")


class Git(NamedTuple):
    """Runs git commands in a folder, with the environment variables that name repository, work tree and index."""

    cwd: Path
    variables: Mapping[str, str] = MappingProxyType({})

    def with_paths(
        self, *, repository: Path | None = None, work_tree: Path | None = None, index: Path | None = None
    ) -> Git:
        """Returns a copy that uses the given repository, work tree or index instead of searching for them."""
        paths = {"GIT_DIR": repository, "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
        named = {name: str(path.resolve()) for name, path in paths.items() if path is not None}
        return self._replace(variables={**self.variables, **named})

    def run(self, verb: str, *args: str, data: bytes | None = None) -> bytes:
        """Runs a command and returns its output; `data` is its standard input."""
        return self.start(verb, *args, data=data).output()

    def start(self, verb: str, *args: str, data: bytes | None = None) -> GitProcess:
        """Starts a command, to be waited for later."""
        return GitProcess(self._popen(["git", *_OPTIONS, verb, *args], data), verb, self.cwd, data)

    def open_pipe(self, verb: str, *args: str) -> subprocess.Popen[bytes]:
        """Starts a command with open pipes; the caller has to end it."""
        return self._popen(["git", *_OPTIONS, verb, *args], b"")

    def run_line(self, verb: str, *args: str, data: bytes | None = None) -> str:
        """Runs a command that writes one line, and returns the line."""
        return text(self.run(verb, *args, data=data)).removesuffix("\n")

    def _popen(self, command: list[str], data: bytes | None) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        stdin = subprocess.DEVNULL if data is None else pipe
        env = {**_inherited_environment(), **_VARIABLES, **self.variables}
        try:
            # A session of its own: Ctrl-C in the terminal must not interrupt git while it writes an object.
            return subprocess.Popen(
                command, cwd=self.cwd, env=env, stdin=stdin, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise VersionError(f"git can't be run in {self.cwd} ({error}); install git and put it on PATH") from error


class GitProcess:
    """A running git command."""

    def __init__(self, process: subprocess.Popen[bytes], verb: str, cwd: Path, data: bytes | None) -> None:
        self._process = process
        self._verb = verb
        self._cwd = cwd
        self._data = data

    def output(self) -> bytes:
        """Waits for the command and returns its output."""
        with self._process as process:
            try:
                out, stderr = process.communicate(self._data, timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._kill()
                remedy = "list large folders in .gitignore, or start from a smaller project folder"
                raise VersionError(f"git {self._verb} took more than {TIMEOUT_S} s in {self._cwd}; {remedy}") from None
        if process.returncode:
            raise GitFailed(self._verb, self._cwd, stderr)
        return out

    def cancel(self) -> None:
        """Kills the command if it still runs."""
        if self._process.returncode is None:
            self._kill()
            with self._process:
                self._process.communicate()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # the process group: a filter that git started may be what hangs


def text(raw: bytes) -> str:
    """Decodes bytes from git, so that encoding the text gives the same bytes."""
    return raw.decode("utf-8", "surrogateescape")


def _inherited_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _is_inherited(name)}


def _is_inherited(name: str) -> bool:
    if name == "GIT_CONFIG_PARAMETERS":  # the `-c` options of the git command whose hook we may be in
        return False
    return not name.startswith("GIT_") or name.startswith(_INHERITED_PREFIXES)
