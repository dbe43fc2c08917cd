"""Notebooks that are executed by a real kernel, as JupyterLab does it: by messages, with the ids of the cells."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

REPLY_S = 120.0


@dataclass
class CellReply:
    """How a cell ended, and what it printed and displayed."""

    status: str
    error: str = ""
    stdout: str = ""
    stderr: str = ""
    displayed: list[dict[str, Any]] = field(default_factory=list)


class Kernel:
    """A notebook file and its kernel; `kernel.run(name)` executes one of its cells."""

    def __init__(self, folder: Path, cells: Mapping[str, str], *, name: str = "look.ipynb", is_named: bool = True):
        self.path = folder / name
        self.cells: dict[str, str] = {}
        self.save(cells)
        self._manager = KernelManager(kernel_name="python3")
        named = {"JPY_SESSION_NAME": str(self.path)} if is_named else {}
        self._manager.start_kernel(cwd=str(folder), env={**os.environ, **named})
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=REPLY_S)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return int(self._manager.provisioner.pid)

    def save(self, cells: Mapping[str, str]) -> None:
        """Writes the notebook with these cells, by their ids."""
        self.cells = {cell: textwrap.dedent(text).strip("\n") for cell, text in cells.items()}
        rows = [
            {"cell_type": "code", "id": cell, "metadata": {}, "outputs": [], "execution_count": None,
             "source": text.splitlines(keepends=True)}
            for cell, text in self.cells.items()
        ]  # fmt: skip
        rows.insert(0, {"cell_type": "markdown", "id": "title", "metadata": {}, "source": ["# A look"]})
        self.path.write_text(json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))

    def run_all(self) -> None:
        for cell in self.cells:
            assert (reply := self.run(cell)).status == "ok", reply

    def run(self, cell: str, *, interrupt_after: str = "") -> CellReply:
        """Executes a cell; `interrupt_after` sends Ctrl-C once this text is printed."""
        content = {"code": self.cells[cell], "silent": False, "store_history": True, "user_expressions": {},
                   "allow_stdin": False, "stop_on_error": True}  # fmt: skip
        message = self._client.session.msg("execute_request", content, metadata={"cellId": cell})
        self._client.shell_channel.send(message)
        return self._read(message["header"]["msg_id"], interrupt_after)

    def _read(self, asked: str, interrupt_after: str) -> CellReply:
        reply, deadline = CellReply("ok"), time.monotonic() + REPLY_S
        while time.monotonic() < deadline:
            message = self._client.get_iopub_msg(timeout=REPLY_S)
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return reply
            if kind == "stream":
                setattr(reply, content["name"], getattr(reply, content["name"]) + content["text"])
                if interrupt_after and interrupt_after in reply.stdout:
                    interrupt_after = ""
                    os.kill(self.pid, signal.SIGINT)
            elif kind == "error":
                reply.status, reply.error = "error", f"{content['ename']}: {content['evalue']}"
            elif kind in ("display_data", "execute_result"):
                reply.displayed.append(content["data"])
        raise TimeoutError(f"no answer from the kernel in {REPLY_S} s")

    def close(self) -> None:
        """Ends the kernel as Jupyter does: exit handlers run."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=False)

    def kill(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
