"""How git is run so that nobody notices: no hooks, prompts, locks or inherited settings, and never for long."""

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
    "core.fsync": "committed",  # a power cut must not leave a branch in the user's repository with half an object on it
    "core.fsyncMethod": "batch",
    "core.hooksPath": os.devnull,
    "core.logAllRefUpdates": "false",
    "core.packedRefsTimeout": "5000",
    "core.safecrlf": "false",
    "core.sparseCheckout": "false",  # else our index would skip what the user's skips
    "core.splitIndex": "false",  # else our index would leave a shared half in the user's git folder
    "gc.auto": "0",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
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
# A script started from a git hook inherits the hook's repository and index. Only these may pass: where the user's
# settings are, and how far git may search.
_INHERITED = ("GIT_CONFIG_", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_EXEC_PATH")


class GitFailed(VersionError):
    """A git command that ended badly; keeps what it said, because some of it can be answered."""

    def __init__(self, verb: str, cwd: Path, said: bytes) -> None:
        self.said = said.strip()
        reason = text(self.said).rpartition("fatal: ")[2] or "no reason given"
        super().__init__(f"git {verb} failed in {cwd}: {reason}; see what `git status` and `git fsck` say there")


class Git(NamedTuple):
    """Where git commands run: a folder, and the variables that name repository, work tree and index."""

    cwd: Path
    variables: Mapping[str, str] = MappingProxyType({})

    def using(self, *, repository: Path | None = None, work_tree: Path | None = None, index: Path | None = None) -> Git:
        """The same, with what is given named rather than found."""
        named = {"GIT_DIR": repository, "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
        given = {name: str(path.resolve()) for name, path in named.items() if path is not None}
        return self._replace(variables={**self.variables, **given})

    def run(self, verb: str, *args: str, data: bytes | None = None) -> bytes:
        """What the command wrote; `data` is its standard input."""
        return self.ask(verb, *args, data=data).answer()

    def ask(self, verb: str, *args: str, data: bytes | None = None) -> GitAnswer:
        """Start the command, to be answered later."""
        return GitAnswer(self._start(["git", *_OPTIONS, verb, *args], data), verb, self.cwd, data)

    def start(self, verb: str, *args: str) -> subprocess.Popen[bytes]:
        """A command that is talked to; whoever starts it ends it."""
        return self._start(["git", *_OPTIONS, verb, *args], b"")

    def line(self, verb: str, *args: str, data: bytes | None = None) -> str:
        return text(self.run(verb, *args, data=data)).removesuffix("\n")

    def _start(self, command: list[str], data: bytes | None) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        stdin = subprocess.DEVNULL if data is None else pipe
        env = {**_inherited(), **_VARIABLES, **self.variables}
        try:
            # A session of its own: Ctrl-C in the terminal is for the training, not for a half-written object.
            return subprocess.Popen(
                command, cwd=self.cwd, env=env, stdin=stdin, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise VersionError(f"git can't be run in {self.cwd} ({error}); install git and put it on PATH") from error


class GitAnswer:
    """A git command at work."""

    def __init__(self, process: subprocess.Popen[bytes], verb: str, cwd: Path, data: bytes | None) -> None:
        self._process = process
        self._verb = verb
        self._cwd = cwd
        self._data = data

    def answer(self) -> bytes:
        """Wait for what the command writes."""
        with self._process as process:
            try:
                out, said = process.communicate(self._data, timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._kill()
                remedy = "list large folders in .gitignore, or start from a smaller project folder"
                raise VersionError(f"git {self._verb} took more than {TIMEOUT_S} s in {self._cwd}; {remedy}") from None
        if process.returncode:
            raise GitFailed(self._verb, self._cwd, said)
        return out

    def drop(self) -> None:
        """Nobody wants the answer any more, or it was given."""
        if self._process.returncode is None:
            self._kill()
            with self._process:
                self._process.communicate()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # the whole group: a filter that git started may be what hangs


def text(raw: bytes) -> str:
    """Bytes from git as text that gives the same bytes back."""
    return raw.decode("utf-8", "surrogateescape")


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _may_pass(name)}


def _may_pass(name: str) -> bool:
    if name == "GIT_CONFIG_PARAMETERS":  # the `-c` options of the git command whose hook we may be in
        return False
    return not name.startswith("GIT_") or name.startswith(_INHERITED)
