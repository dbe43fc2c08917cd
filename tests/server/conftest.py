"""Real servers in processes of their own, on stores of their own, that can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the server is not installed; pip install 'relive[server]'")
pytest.importorskip("uvicorn", reason="the server is not installed; pip install 'relive[server]'")


class Server:
    """`relive serve` on a store. It keeps its port when it is started again."""

    def __init__(self, store: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.store = store
        self.port = 0
        self._options = options
        self._env = {**os.environ, **(env or {})}
        self._env.pop("PYTHONWARNINGS", None)
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Server:
        command = [sys.executable, "-m", "relive", "serve", "--store", str(self.store), "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._env,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        told = self.process.stdout.readline()
        if not told:
            pytest.fail(f"the server did not start: {self.process.communicate()[1]}")
        self.port = int(told.rsplit(":", 1)[1])
        self.wait()
        return self

    def wait(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                time.sleep(0.02)
        pytest.fail("the server does not answer")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> tuple[int, str]:
        """Ask it to stop; gives its exit code and what it said."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> tuple[int, str]:
        if self.process is None:
            return 0, ""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=30)
        code, self.process = self.process.returncode, None
        return code, said


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server: `serve("--open")`, `serve(store=…)`."""
    started: list[Server] = []

    def start(*options: str, store: Path | None = None, **how: dict[str, str]) -> Server:
        server = Server(store or tmp_path / "team", *(options or ("--open",)), **how)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One open server, shared by the tests of a module that do not damage it."""
    server = Server(tmp_path_factory.mktemp("shared") / "team", "--open").start()
    yield server
    server.kill()
