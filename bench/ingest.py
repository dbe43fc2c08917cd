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
from pathlib import Path
from typing import Any

from bench.measuring import clean_environment, report

GOALS = {
    "points_per_s": ">= 300000", "mlflow_ratio": ">= 50", "errors": "0", "peak_memory_mb": "< 300",
    "visible_s": "< 2",
}  # fmt: skip
CLIENTS = 16
POINTS = 250_000  # for each client of relive
MLFLOW_BATCHES = 4  # of 1,000 points, for each client of MLflow
MLFLOW_CLIENTS = 4  # more of them at once only wait for its database

# Each client is ready when its run is open. It begins when it is told to, and is done when the server has everything.
RELIVE = """
import sys, time, relive
relive.log("ready", 1)
print("ready", flush=True)
sys.stdin.readline()
begun = time.thread_time()
for step in relive.loop("step", range({points})):
    relive.log("loss", 0.1)
print((time.thread_time() - begun) / {points} * 1e9, flush=True)
"""
MLFLOW = """
import sys, time, mlflow
from mlflow.entities import Metric
client = mlflow.MlflowClient("{url}")
run = client.create_run("0").info.run_id
print("ready", flush=True)
sys.stdin.readline()
for batch in range({batches}):
    now = int(time.time() * 1000)
    client.log_batch(run, metrics=[Metric("loss", 0.1, now, batch * 1000 + step) for step in range(1000)])
print(0.0, flush=True)
"""


def main() -> None:
    """Side by side in the same minutes; the ratio is what counts on a machine that others use."""
    relive = _relive()
    mlflow_per_s = _mlflow()
    local_ns = _local_cost_ns()
    report(
        "ingest",
        GOALS,
        **relive,
        mlflow_points_per_s=mlflow_per_s,
        mlflow_ratio=relive["points_per_s"] / mlflow_per_s,
        log_ns_without_server=local_ns,
    )  # fmt: skip


def _relive() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _serving(folder / "team") as (url, pid):
            env = {
                **clean_environment(), "RELIVE_SERVER": url, "RELIVE_SHIP_WAIT_SECONDS": "120", "RELIVE_VERSIONS": "0",
                "RELIVE_INPUTS": "0",
            }  # fmt: skip
            took_s, costs, errors = _all_at_once(folder, RELIVE.format(points=POINTS), CLIENTS, env)
            peak_mb, server_cpu_s = _peak_mb(pid), _cpu_s(pid)
            visible_s = _visible_s(folder, url, env)
        stored = _stored_points(folder / "team")
        assert stored >= CLIENTS * POINTS, f"{stored} of {CLIENTS * POINTS} points are there"
    return {
        "points_per_s": CLIENTS * POINTS / took_s, "took_s": took_s, "errors": errors, "peak_memory_mb": peak_mb,
        "server_cpu_us_per_point": server_cpu_s / (CLIENTS * POINTS) * 1e6,
        "visible_s": visible_s, "log_ns_while_sending": sorted(costs)[len(costs) // 2],
    }  # fmt: skip


def _all_at_once(folder: Path, source: str, count: int, env: dict[str, str]) -> tuple[float, list[float], int]:
    """Let clients begin together, and wait until all are done: the time, what each said, how many failed."""
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
    said = [client.communicate(timeout=600) for client in clients]
    took_s = time.perf_counter() - begun
    errors = sum(1 for client, (_, err) in zip(clients, said, strict=True) if client.returncode or err)
    for _, err in said:
        if err:
            print(err[-2000:], file=sys.stderr)
    return took_s, [float(out) for out, _ in said], errors


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


VISIBLE = """
import json, os, time, urllib.request, relive
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
print(max(taken))
"""


def _visible_s(folder: Path, url: str, env: dict[str, str]) -> float:
    """From a call of log to the value in an answer of the server, the slowest of five."""
    return _all_at_once(folder, VISIBLE, 1, env)[1][0]


def _stored_points(store: Path) -> int:
    from relive.store import Home, parse_run

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
            took_s, _, errors = _all_at_once(folder, source, MLFLOW_CLIENTS, env)
            assert not errors
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)
    return MLFLOW_CLIENTS * MLFLOW_BATCHES * 1000 / took_s


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _local_cost_ns() -> float:
    """What a call of log costs the training thread without a server, with as many processes at once."""
    with tempfile.TemporaryDirectory() as name:
        env = {**clean_environment(), "RELIVE_VERSIONS": "0", "RELIVE_INPUTS": "0"}
        costs = _all_at_once(Path(name), RELIVE.format(points=POINTS), CLIENTS, env)[1]
    return sorted(costs)[len(costs) // 2]


if __name__ == "__main__":
    main()
