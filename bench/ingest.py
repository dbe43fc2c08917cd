"""How many points a second a server takes for good, from 16 processes over real sockets, beside an MLflow server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measuring import clean_environment, report

GOALS = {
    "points_per_s": ">= 300000", "mlflow_ratio": ">= 50", "errors": "0", "peak_memory_mb": "< 300",
    "visible_s": "< 2",
}  # fmt: skip
CLIENTS = 16
POINTS = 250_000  # for each client of relive
LIVE_POINTS = 100_000  # for each client that logs and sends at the same time
MLFLOW_BATCHES = 2  # of 1,000 points, for each client of MLflow: it is a rate, and a slow one
MLFLOW_CLIENTS = 4  # more of them at once only wait for its database

# Each client is ready when there is something to send. It begins when it is told to, and is done when the server has
# everything; then it says what that took: seconds of processor time, for all of it and for the thread that logs.
VALUES = "[1 / (1 + n / 100) + random.gauss(0, 0.01) for n in range(4096)]"  # no two alike, as losses are
# The journal was recorded by relive.log before, so what is measured is the way to the server and not the logging.
RECORDED = f"""
import os, pathlib, random, sys, time, relive
from relive.store import Home
from relive.store.sync import RunShipment, ServerClient
values = {VALUES}
with relive.run() as run:
    for step in relive.loop("step", range({{points}})):
        relive.log("loss", values[step & 4095])
remote = ServerClient("{{url}}")
shipment = RunShipment(Home(pathlib.Path(os.environ["RELIVE_HOME"])), run, remote)
print("ready", flush=True)
sys.stdin.readline()
begun = time.process_time()
while shipment.step(lambda *_: True):
    pass
assert shipment.is_done
print(time.process_time() - begun, 0.0, flush=True)
remote.close()
"""
# Logging as fast as Python can, while a thread of the same process sends.
LIVE = f"""
import random, sys, time, relive
values = {VALUES}
with relive.run():
    relive.log("ready", 1)
    print("ready", flush=True)
    sys.stdin.readline()
    process, thread = time.process_time(), time.thread_time()
    for step in relive.loop("step", range({{points}})):
        relive.log("loss", values[step & 4095])
    thread = time.thread_time() - thread
print(time.process_time() - process, thread, flush=True)
"""
MLFLOW = """
import sys, time, mlflow
from mlflow.entities import Metric
client = mlflow.MlflowClient("{url}")
run = client.create_run("0").info.run_id
print("ready", flush=True)
sys.stdin.readline()
begun = time.process_time()
for batch in range({batches}):
    now = int(time.time() * 1000)
    client.log_batch(run, metrics=[Metric("loss", 0.1, now, batch * 1000 + step) for step in range(1000)])
print(time.process_time() - begun, 0.0, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """What some clients took together, from the moment they were told to begin until the last one was done."""

    took_s: float
    cpu_s: float  # of all clients
    thread_s: float  # of the thread that logs, in the middle one of them
    errors: int


def main() -> None:
    """Side by side in the same minutes; the ratio is what counts on a machine that others use."""
    found = _relive()
    mlflow_per_s = _mlflow()
    ratio = found["points_per_s"] / mlflow_per_s
    report("ingest", GOALS, **found, mlflow_points_per_s=mlflow_per_s, mlflow_ratio=ratio)


def _relive() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = {**clean_environment(), "RELIVE_VERSIONS": "0", "RELIVE_INPUTS": "0", "RELIVE_HOME": str(folder / "h")}
        with _serving(folder / "team") as (url, pid):
            before_s = _cpu_s(pid)
            source = RECORDED.format(points=POINTS, url=url)
            recorded = _all_at_once(folder, source, CLIENTS, plain)
            server_s = _cpu_s(pid) - before_s
            env = {**plain, "RELIVE_SERVER": url, "RELIVE_SHIP_WAIT_SECONDS": "120"}
            live = _all_at_once(folder, LIVE.format(points=LIVE_POINTS), CLIENTS, env)
            visible = _all_at_once(folder, VISIBLE, 1, env)
            peak_mb = _peak_mb(pid)
        stored, wanted = _stored_points(folder / "team"), CLIENTS * (POINTS + LIVE_POINTS)
        assert stored >= wanted, f"{stored} of {wanted} points are there"
        local = _all_at_once(folder, LIVE.format(points=LIVE_POINTS), CLIENTS, plain)
    return {
        "points_per_s": CLIENTS * POINTS / recorded.took_s,
        "client_cpu_us_per_point": recorded.cpu_s / (CLIENTS * POINTS) * 1e6,
        "server_cpu_us_per_point": server_s / (CLIENTS * POINTS) * 1e6,
        "points_per_s_while_logging": CLIENTS * LIVE_POINTS / live.took_s,
        "log_ns_while_sending": live.thread_s / LIVE_POINTS * 1e9,
        "log_ns_without_server": local.thread_s / LIVE_POINTS * 1e9,
        "errors": recorded.errors + live.errors + visible.errors, "visible_s": visible.thread_s,
        "peak_memory_mb": peak_mb,
    }  # fmt: skip


def _all_at_once(folder: Path, source: str, count: int, env: dict[str, str]) -> Reading:
    """Let clients begin together, and wait until the last one is done."""
    script = folder / "client.py"
    script.write_text(source)
    clients = [
        subprocess.Popen(
            [sys.executable, str(script)], cwd=folder, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(count)
    ]  # fmt: skip
    for client in clients:
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise SystemExit(f"a client failed\n{client.communicate()[1]}")
    begun = time.perf_counter()
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    told = [_told(client) for client in clients]
    took_s = time.perf_counter() - begun
    said = [client.communicate(timeout=60)[1] for client in clients]
    errors = sum(1 for client, err in zip(clients, said, strict=True) if client.returncode or err)
    for err in filter(None, said):
        print(err[-2000:], file=sys.stderr)
    return Reading(took_s, sum(cpu for cpu, _ in told), sorted(thread for _, thread in told)[count // 2], errors)


def _told(client: subprocess.Popen[str]) -> tuple[float, float]:
    assert client.stdout is not None
    row = client.stdout.readline()
    if not row:
        raise SystemExit(f"a client failed\n{client.communicate()[1]}")
    cpu, thread = row.split()
    return float(cpu), float(thread)


@contextlib.contextmanager
def _serving(store: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "relive", "serve", "--store", str(store), "--port", "0", "--open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment())
    try:
        assert server.stdout is not None
        url = "http" + server.stdout.readline().rsplit("http", 1)[1].strip()
        _wait_for(f"{url}/health")
        yield url, server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def _peak_mb(pid: int) -> float:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) / 1000 for row in rows if row.startswith("VmHWM"))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# From a call of log to the value in an answer of the server, the slowest of five.
VISIBLE = """
import json, os, time, urllib.request, relive
with relive.run():
    relive.log("first", 1.0)
    time.sleep(2)
    taken = []
    for n in range(5):
        begun = time.perf_counter()
        relive.log("seen", float(n))
        while True:
            with urllib.request.urlopen(os.environ["RELIVE_SERVER"] + "/api/runs?limit=1", timeout=10) as answer:
                runs = json.load(answer)["runs"]
            if runs and runs[0]["last"].get("seen") == float(n):
                break
            time.sleep(0.02)
        taken.append(time.perf_counter() - begun)
print("ready", flush=True)
input()
print(0.0, max(taken), flush=True)
"""


def _stored_points(store: Path) -> int:
    from relive.store import Home
    from relive.store.journal import parse_run

    home = Home(store)
    return sum(len(journal) for run in home.run_ids() for journal in parse_run(home, run))


def _mlflow() -> float:
    """Points a second of MLflow's own client and server, by the batches that it recommends."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), _free_port()
        command = [
            sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
            "--artifacts-destination", str(folder / "artifacts"), "--port", str(port), "--workers", "1",
        ]  # fmt: skip
        env = {**clean_environment(), "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}
        server = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(f"{url}/health")
            source = MLFLOW.format(url=url, batches=MLFLOW_BATCHES)
            found = _all_at_once(folder, source, MLFLOW_CLIENTS, env)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)
    return MLFLOW_CLIENTS * MLFLOW_BATCHES * 1000 / found.took_s


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
