"""A server under attack from all sides, beside honest clients: who is still served, how fast, and what it costs.

All traffic stays on 127.0.0.1, and each attack is bounded in count and in time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.measuring import clean_environment, report

GOALS = {
    "ingest_failures": "0", "lost_values": "0", "read_failures": "0", "read_p95_ms": "< 500", "peak_memory_mb": "< 400"
}  # fmt: skip
READ_EVERY_S = 1.0
KILL_EVERY_S = 5.0  # one process that answers questions
SAMPLE_S = 0.25


def main() -> None:
    """Starts a server, attackers in a process of their own, and honest clients in threads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--attacks", default="all", help="names of attacks, separated by commas; `none` for comparison")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = _make_tokens(folder / "team")
        server = _start(folder / "team")
        try:
            assert server.stdout is not None
            url = "http" + server.stdout.readline().rsplit("http", 1)[1].strip()
            numbers = _soak(folder, url, words, server.pid, given)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    report("adversary", GOALS, seconds=given.seconds, clients=given.clients, **numbers)


def _make_tokens(store: Path) -> dict[str, str]:
    from relive.server import Tokens

    names = ("ada", "bob", "cleo", "dan", "eve", "mallory")
    return {name: Tokens(store).create(name, ["write", "read"])[0] for name in names}


def _start(store: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "relive", "serve", "--store", str(store), "--port", "0", "--host", "127.0.0.1"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment())


def _soak(folder: Path, url: str, words: dict[str, str], pid: int, options: argparse.Namespace) -> dict[str, object]:
    end = time.monotonic() + options.seconds
    people = ("ada", "bob", "cleo", "dan")
    honest = [HonestClient(folder / "home", url, words[people[n % len(people)]], end) for n in range(options.clients)]
    for one in honest:
        one.start()
    time.sleep(2)  # so that there are runs to attack
    given = {"url": url, "eve": words["eve"], "mallory": words["mallory"], "runs": [one.run_id for one in honest]}
    # At the lowest priority: who attacks from elsewhere does not use the processors of the server either.
    attack = subprocess.Popen(
        [sys.executable, "-m", "bench.attacks", str(options.seconds - 2), options.attacks],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
    assert attack.stdin is not None
    attack.stdin.write(json.dumps(given) + "\n")
    attack.stdin.flush()
    watch = Watch(pid, end)
    watch.start()
    for one in honest:
        one.join()
    counts = json.loads(attack.communicate(timeout=120)[0])
    watch.join()
    stored = _stored_values(folder / "team", [one.run_id for one in honest])
    reads = sorted(took for one in honest for took in one.reads_s)
    minutes: dict[int, list[float]] = {}
    for at, took in (pair for one in honest for pair in zip(one.asked_at, one.reads_s, strict=True)):
        minutes.setdefault(int(at - end + options.seconds) // 60, []).append(took)
    by_minute = [round(sorted(took)[int(len(took) * 0.95)] * 1000) for _, took in sorted(minutes.items())]
    return {
        "attacks": counts, "readers_killed": watch.killed,
        "ingest_failures": sum(one.refused for one in honest), "ingest_retries": sum(one.retries for one in honest),
        "sent_values": sum(one.logged for one in honest), "lost_values": sum(one.logged for one in honest) - stored,
        "reads": len(reads), "read_failures": sum(one.read_failures for one in honest),
        "read_p50_ms": reads[len(reads) // 2] * 1000, "read_p95_ms": reads[int(len(reads) * 0.95)] * 1000,
        "read_max_ms": reads[-1] * 1000, "read_p95_ms_by_minute": by_minute, "peak_server_mb": watch.server_mb,
        "peak_memory_mb": watch.all_mb, "peak_memory_mb_by_minute": [round(mb) for mb in watch.by_minute],
    }  # fmt: skip


class HonestClient(threading.Thread):
    """Trains, sends what it logs, and looks at tables."""

    def __init__(self, home: Path, url: str, token: str, end: float) -> None:
        super().__init__(daemon=True)
        from relive.store import Home

        self._home, self._url, self._token, self._end = Home(home), url, token, end
        self._home.create()
        self.run_id = self._home.new_run()
        self.logged = self.refused = self.retries = self.read_failures = 0
        self.reads_s: list[float] = []
        self.asked_at: list[float] = []

    def run(self) -> None:
        from relive.store.journal import Journal, line_schema
        from relive.store.sync import RunShipment, ServerClient

        remote, asking = ServerClient(self._url, self._token), ServerClient(self._url, self._token)
        journal = Journal(self._home.run_folder(self.run_id) / "0")
        clocks = {"wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "pid": os.getpid()}
        journal.line(line_schema.RunStarted, run=self.run_id, **clocks)
        shipment = RunShipment(self._home, self.run_id, remote)
        read_at = time.monotonic() + READ_EVERY_S * (1 + int(self.run_id, 16) % 100 / 100)
        while time.monotonic() < self._end:
            for _ in range(100):
                journal.append_float("loss", 1.0 / (1 + self.logged), 1, 0)
                self.logged += 1
            self._send(shipment)
            if time.monotonic() >= read_at:
                read_at = time.monotonic() + READ_EVERY_S
                self._read(asking)
            time.sleep(0.5)
        journal.line(line_schema.RunEnded, outcome="finished")
        journal.close()
        while not shipment.is_done and time.monotonic() < self._end + 30:
            self._send(shipment, final=True)
        remote.close()
        asking.close()

    def _send(self, shipment: object, *, final: bool = False) -> None:
        from relive.errors import ReliveError
        from relive.store.sync import ServerUnreachable

        try:
            while shipment.step(lambda *_: final):  # type: ignore[attr-defined]
                pass
        except ServerUnreachable:  # sent again, as the thread of a training does
            self.retries += 1
            time.sleep(0.2)
        except ReliveError:
            self.refused += 1

    def _read(self, remote: object) -> None:
        from relive.errors import ReliveError

        run = self.run_id
        paths = ("/api/runs?limit=20", f"/api/runs/{run}", f"/api/runs/{run}/series?name=loss&points=200",
                 "/api/leaderboard?metric=loss&where=run > ''")  # fmt: skip
        path = paths[len(self.reads_s) % len(paths)]
        self.asked_at.append(time.monotonic())
        begun = time.perf_counter()
        try:
            remote.get(path)  # type: ignore[attr-defined]
        except ReliveError as error:
            self.read_failures += 1
            print(f"{path}: {error}", file=sys.stderr)
        self.reads_s.append(time.perf_counter() - begun)


class Watch(threading.Thread):
    """Measures the memory of the server and its processes, and kills one that answers questions now and then."""

    def __init__(self, pid: int, end: float) -> None:
        super().__init__(daemon=True)
        self._pid, self._end = pid, end
        self.server_mb = self.all_mb = 0.0
        self.by_minute: list[float] = []
        self.killed = 0

    def run(self) -> None:
        begun = time.monotonic()
        kill_at = begun + KILL_EVERY_S
        while time.monotonic() < self._end:
            below = _descendants(self._pid)
            self.server_mb = max(self.server_mb, _pss_mb(self._pid))
            now_mb = sum(_pss_mb(pid) for pid in (self._pid, *below))
            self.all_mb = max(self.all_mb, now_mb)
            self.by_minute += [0.0] * (int(time.monotonic() - begun) // 60 + 1 - len(self.by_minute))
            self.by_minute[-1] = max(self.by_minute[-1], now_mb)
            leaves = [pid for pid in below if not _descendants(pid) and _is_reader(pid)]
            if time.monotonic() >= kill_at and leaves:
                kill_at = time.monotonic() + KILL_EVERY_S
                with contextlib.suppress(ProcessLookupError):
                    os.kill(leaves[self.killed % len(leaves)], signal.SIGKILL)
                    self.killed += 1
            time.sleep(SAMPLE_S)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for word in (task / "children").read_text().split():
                found += [int(word), *_descendants(int(word))]
    return found


def _is_reader(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _pss_mb(pid: int) -> float:
    """The memory of a process; what it shares with others counts in part."""
    with contextlib.suppress(OSError):
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next((int(row.split()[1]) / 1000 for row in rows if row.startswith("Pss:")), 0.0)
    return 0.0


def _stored_values(store: Path, runs: list[str]) -> int:
    from relive.store import Home
    from relive.store.journal import parse_run

    return sum(len(journal) for run in runs for journal in parse_run(Home(store), run))


if __name__ == "__main__":
    main()
