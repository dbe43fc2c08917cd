"""`relive ui` in a process of its own, and a browser of a few lines that talks to it."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest


class Ui:
    """A browser and the process that it talks to."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "relive", "ui", "--no-browser", "--port", "0", *options], cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONWARNINGS": ""},
        )  # fmt: skip
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            pytest.fail(f"it did not start: {self.process.communicate()[1]}")
        self.port = int(self.address.split(":")[2].split("/")[0])
        self.cookie = ""

    def get(
        self, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        cookie = {"Cookie": self.cookie} if self.cookie else {}
        content = None if body is None else msgspec.json.encode(body)
        connection.request(
            method, path, content, headers={**cookie, **{k.replace("_", "-"): v for k, v in headers.items()}}
        )
        answer = connection.getresponse()
        body = answer.read()
        found = {key.lower(): value for key, value in answer.getheaders()}
        connection.close()
        return answer.status, found, body

    def enter(self) -> dict[str, str]:
        status, headers, _ = self.get(self.ticket_path)
        assert status == 303
        self.cookie = headers["set-cookie"].split(";")[0]
        return headers

    @property
    def ticket_path(self) -> str:
        return "/" + self.address.split("/", 3)[3]

    def json(self, path: str) -> Any:
        status, _, body = self.get(path)
        assert status == 200, body
        return msgspec.json.decode(body)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=20)
        return self.process.returncode, said
