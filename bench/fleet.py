"""A sweep of 400 trials of 8 ranks, simulated: how many requests, bytes and seconds of the server it takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.measuring import clean_environment, report

RUNS, RANKS = 400, 8
STEPS, HOURS = 100_000, 6
SIMULATED_S = 60.0  # of those hours, at their real pace
SENDERS = 16  # threads that play the 3,200 processes


def main() -> None:
    """Journals grow at the pace of the sweep, and are sent by the code of training at the pace the server asks for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "relive", "serve", "--store", str(folder / "team"), "--port", "0", "--open"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment())
        try:
            assert server.stdout is not None
            url = "http" + server.stdout.readline().rsplit("http", 1)[1].strip()
            simulation = Simulation(folder / "home", url)
            before_s = _cpu_s(server.pid)
            simulation.run()
            cpu_s = _cpu_s(server.pid) - before_s
            peak_mb = _peak_mb(server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    points = simulation.points
    report(
        "fleet", {"requests_per_s": "< 350", "server_cpu_share": "< 0.5", "peak_memory_mb": "< 300"},
        points_per_s=points / SIMULATED_S, requests_per_s=simulation.requests / SIMULATED_S,
        points_per_request=points / max(simulation.requests, 1), errors=simulation.errors,
        server_cpu_share=cpu_s / SIMULATED_S, peak_memory_mb=peak_mb, latest_s=simulation.latest_s,
    )  # fmt: skip


class Simulation:
    """All ranks of all runs, in threads."""

    def __init__(self, home: Path, url: str) -> None:
        from relive.store import Home

        self._home, self._url = Home(home), url
        self._home.create()
        self.points = self.requests = self.errors = 0
        self.latest_s = 0.0  # how late the slowest range of a rank 0 was
        self._lock = threading.Lock()

    def run(self) -> None:
        begun = time.monotonic()
        runs = [self._home.new_run() for _ in range(RUNS)]
        each = [[(run, rank) for at, run in enumerate(runs) if at % SENDERS == n for rank in range(RANKS)]
                for n in range(SENDERS)]  # fmt: skip
        threads = [threading.Thread(target=self._send, args=(part, begun)) for part in each]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, members: list[tuple[str, int]], begun: float) -> None:
        from relive.errors import ReliveError
        from relive.store.journal import Journal, line_schema
        from relive.store.sync import RunShipment, ServerClient

        remote = ServerClient(self._url)
        per_s = STEPS / (HOURS * 3600)
        journals, shipments, due, logged = {}, {}, {}, dict.fromkeys(members, 0)
        for run, rank in members:
            journal = journals[run, rank] = Journal(self._home.run_folder(run) / str(rank))
            header = {"wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "pid": os.getpid()}
            journal.line(line_schema.RunStarted, run=run, rank=rank, world_size=RANKS, **header)
            shipments[run, rank] = RunShipment(self._home, run, remote, rank=rank)
            due[run, rank] = begun
        while (now := time.monotonic()) - begun < SIMULATED_S:
            for member in members:
                if due[member] > now:
                    continue
                wanted = int((time.monotonic() - begun) * per_s)
                for step in range(logged[member], wanted):
                    journals[member].append_float("loss", 1.0 / (1 + step), 1, 0)
                try:
                    shipments[member].step(lambda *_: False)
                except ReliveError:
                    self.errors += 1
                with self._lock:
                    self.points += wanted - logged[member]
                    self.requests += 1
                    self.latest_s = max(
                        self.latest_s, time.monotonic() - due[member] if not member[1] and logged[member] else 0.0
                    )
                logged[member] = wanted
                due[member] = time.monotonic() + max(0.5, shipments[member].pause_s)
            time.sleep(0.02)
        remote.close()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) / 1000 for row in rows if row.startswith("VmHWM"))


if __name__ == "__main__":
    main()
