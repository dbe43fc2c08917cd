"""Laws of starting workers: libraries are loaded once and ahead, unless that could change the script's behaviour."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.hindsight import Answer
from relive.hindsight.analysis.heavy_imports import heavy_imports
from relive.hindsight.workers import worker_start
from relive.hindsight.workers.wire import WorkerStart
from relive.hindsight.workers.worker_start import ForkserverClient, WorkerStarter

SCRIPT = """
import os
import numpy as np
import relive
from relive.hindsight import Answer
with open(os.environ["DID"], "a") as file:
    file.write(f"{os.getppid()} {os.environ.get('TMPDIR', '')} {os.getcwd()} {__name__}\\n")
w = np.ones(3)
with relive.checkpointing(w=w, every=1):
    for epoch in relive.loop("epoch", range(3)):
        w *= 0.5
        relive.log("loss", float(w.sum()))
relive.log("end", float(w.sum()))
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.py": "import numpy as np\nfrom torch.nn import functional\n"}, ("numpy", "torch", "torch._dynamo")),
        ({"train.py": "import json\n"}, ()),
        ({"train.py": "import torch\n", "torch.py": ""}, ()),
        ({"train.py": "import torch\n", "torch/__init__.py": ""}, ()),
        ({"train.py": "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n"}, ()),
        ({"train.py": "import torch\n", "env.py": "os.putenv('CUDA_VISIBLE_DEVICES', '')"}, ()),
        ({"train.py": "import os, torch\nos.environ['HF_HOME'] = 'x'\n"}, ("torch", "torch._dynamo")),
    ],
)
def test_only_what_changes_nothing_is_loaded_ahead(files: dict[str, str], expected: tuple[str, ...]):
    assert heavy_imports(files) == expected


def test_the_greeting_of_a_fork_server_is_awaited_once(monkeypatch: pytest.MonkeyPatch):
    ours, theirs = socket.socketpair()
    forkserver = ForkserverClient(ours)
    theirs.sendall(b'{"loaded_s":1.5}\n')
    first = forkserver.loaded_s(10.0)
    monkeypatch.setattr(select, "select", lambda *_: pytest.fail("it waits once more"))

    assert (first, forkserver.loaded_s(10.0)) == (1.5, 1.5)
    forkserver.close()
    theirs.close()


def test_a_fork_server_that_died_before_it_read_a_request_is_gone():
    ours, theirs = socket.socketpair()
    forkserver = ForkserverClient(ours)
    worker = forkserver.start(WorkerStart("job", "/", {}, "out", "err"))
    theirs.close()  # with the request unread: the connection is reset, not just closed

    assert worker.poll() == -signal.SIGKILL
    assert forkserver.is_gone
    forkserver.close()


def test_the_connection_to_a_dead_fork_server_is_closed(monkeypatch: pytest.MonkeyPatch):
    (first, theirs), (second, others) = socket.socketpair(), socket.socketpair()
    lines = iter([first, second])
    monkeypatch.setattr(worker_start, "_connect", lambda _name: next(lines))
    with WorkerStarter() as starter:
        gone = starter._forkserver("python", {}, ("numpy",))
        theirs.close()
        gone.loaded_s(1.0)

        assert starter._forkserver("python", {}, ("numpy",)) is not gone
        assert first.fileno() == -1
    others.close()


class Watched:
    def __init__(self, script: Any, did: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._script, self._did = script, did
        monkeypatch.setenv("DID", str(did))
        script(SCRIPT)
        did.unlink()

    def ask(self, name: str) -> Answer:
        self._script.write(SCRIPT + f'relive.log("{name}", float(w[0]))\n')
        return relive.replay(name, home=self._script.home, workers=1)

    def parents(self) -> list[int]:
        return [int(line.split()[0]) for line in self._did.read_text().splitlines()]


@pytest.fixture
def watched(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    (tmp_path / "beside").mkdir()
    # Libraries might read it when they are loaded: so no process is shared with tests that run at the same time.
    monkeypatch.setenv("TORCH_TESTED_IN", str(tmp_path))
    return Watched(script, tmp_path / "beside" / "did.lock", monkeypatch)


@pytest.mark.long
def test_libraries_stay_loaded_for_the_next_question(watched: Watched, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RELIVE_WARM_SECONDS", "60")
    first, second = watched.ask("a"), watched.ask("b")
    parent, again = watched.parents()
    os.kill(parent, signal.SIGKILL)

    assert parent == again != os.getpid()
    assert (first.added, first.is_good, second.added, second.is_good) == (1, True, 1, True)


@pytest.mark.long
def test_no_fork_server_stays_when_none_is_to_be_kept_warm(watched: Watched):
    watched.ask("a")
    (parent,) = watched.parents()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{parent}").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{parent}/stat").read_text().split()[2] == "Z":
            break
        time.sleep(0.05)

    assert time.monotonic() < deadline


@pytest.mark.long
def test_a_worker_whose_process_was_killed_is_tried_once_more(watched: Watched, script: Any):
    script.write(
        SCRIPT
        + "relive.log('a', 1.0)\n"
        + "import signal\n"
        + "if not os.path.exists(os.environ['DID'] + '2'):\n"
        + "    open(os.environ['DID'] + '2', 'w').close()\n"
        + "    os.kill(os.getppid(), signal.SIGKILL)\n"
        + "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    found = relive.replay("a", home=script.home, workers=1)

    assert (found.added, found.runs[0].missing) == (1, [])
