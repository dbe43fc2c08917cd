"""Nothing is lost and nothing doubled on the way to a server, whatever goes wrong."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import relive
from relive.errors import NotFound, QueryError
from relive.store import Home, JournalName, list_journals
from relive.store.catalog import Index
from relive.store.gc import check_home
from relive.store.journal import Journal, line_schema, process_start_stamp
from relive.store.sync import RunShipment, ServerClient, ServerUnreachable

from .bad_network import BadNetwork

TRAIN = """
import itertools, os, sys, time, relive
count, pause = int(sys.argv[1]), float(sys.argv[2])
relive.arg("seed", int(sys.argv[3]) if len(sys.argv) > 3 else 0)
n = 0
# Without a count it goes on until it is told to stop.
epochs = range(count // 50) if count else itertools.takewhile(lambda _: not os.path.exists("stop"), itertools.count())
for epoch in relive.loop("epoch", epochs):
    for step in relive.loop("step", range(50)):
        relive.log("n", float(n)) if n % 7 else relive.log("n", {"n": n})
        n += 1
    relive.log("big", bytes([epoch % 256]) * 5000)
    time.sleep(pause)
"""


def environment(url: str) -> dict[str, str]:
    return {
        "RELIVE_SERVER": url, "RELIVE_VERSIONS": "0", "RELIVE_INPUTS": "0", "RELIVE_SHIP_SECONDS": "0.05",
        "RELIVE_SHIP_WAIT_SECONDS": "20",
    }  # fmt: skip


def assert_same(home: Path, store: Path) -> None:
    """Every journal of the home is in the store, byte for byte; and nothing else is."""
    here, there = Home(home), Home(store)
    assert sorted(here.run_ids()) == sorted(there.run_ids())
    for run in here.run_ids():
        names = [name for name, _ in list_journals(here.run_folder(run))]
        assert names
        assert [name for name, _ in list_journals(there.run_folder(run))] == names
        for name in names:
            for suffix in ("slots", "lines"):
                file = f"{name.stem}.{suffix}"
                mine, its = (place.run_folder(run).joinpath(file).read_bytes() for place in (here, there))
                assert its == mine.rstrip(b"\0") + its[len(mine.rstrip(b"\0")) :], file
                assert len(its) == len(mine) or (suffix == "slots" and not mine[len(its) :].strip(b"\0")), file
    assert [finding for finding in check_home(there, deep=True) if finding.damage] == []


def values(store: Path) -> list[int]:
    """What was logged as `n`, over all runs, in order."""
    try:
        frame = relive.dataframe("n", home=store)
    except (NotFound, QueryError):  # nothing has come yet
        return []
    return [value["n"] if isinstance(value, dict) else int(value) for value in frame.n]


def test_what_is_recorded_is_on_the_server_byte_for_byte(script, serve):
    server = serve()
    done = script(TRAIN, "1000", "0", env=environment(server.url))

    assert done.stderr == ""
    assert_same(script.home, server.store)
    assert values(server.store) == list(range(1000))
    assert outcomes(server) == ["finished"]


def kill_the_server(script, server, *, times: int, clients: int, seed: int) -> None:
    chance = random.Random(seed)
    script.write(TRAIN)
    env = {**environment(server.url), "RELIVE_SHIP_WAIT_SECONDS": "60"}
    processes = [script.start(None, "0", "0.02", str(n), env=env) for n in range(clients)]
    for _ in range(times):
        taken = stored_bytes(server.store)
        wait_until(lambda taken=taken: stored_bytes(server.store) > taken, timeout_s=60)
        time.sleep(chance.random() * 0.3)  # in the midst of whatever it does then
        server.kill()
        time.sleep(chance.random() * 0.2)
        server.start()
    (script.project / "stop").touch()
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert said == "", f"seed {seed}"

    assert_same(script.home, server.store)
    found = values(server.store)
    assert found == values(script.home)
    assert found.count(0) == clients
    assert len(found) > 50 * clients


def stored_bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in store.glob("runs/*/*.slots"))


@pytest.mark.long
def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(script, serve):
    kill_the_server(script, serve(), times=3, clients=2, seed=random.randrange(1 << 30))


@pytest.mark.slow
def test_a_server_that_is_killed_20_times_loses_and_doubles_nothing(script, serve):
    kill_the_server(script, serve(), times=20, clients=4, seed=random.randrange(1 << 30))


@pytest.mark.slow
def test_a_network_that_loses_doubles_cuts_and_delays_does_no_harm(script, serve):
    server, seed = serve(), random.randrange(1 << 30)
    chances = {"lose request": 0.1, "lose answer": 0.15, "double": 0.15, "cut request": 0.1, "delay": 0.1}
    network = BadNetwork(server.port, seed, **chances)
    try:
        process = script.start(TRAIN, "0", "0.02", env=environment(network.url))
        wait_until(lambda: all(network.happened[mishap] for mishap in chances), timeout_s=60)
        (script.project / "stop").touch()
        _, said = process.communicate(timeout=60)
    finally:
        network.close()

    script.relive("sync", env=environment(server.url))
    assert process.returncode == 0, said
    assert_same(script.home, server.store)
    found = values(server.store)
    assert found == list(range(len(found))), f"seed {seed}"
    assert found == values(script.home)


@pytest.mark.long
def test_training_goes_on_without_a_server_and_sync_sends_it_later(script, serve):
    server = serve()
    server.stop()
    done = script(TRAIN, "500", "0", env={**environment(server.url), "RELIVE_SHIP_WAIT_SECONDS": "1"})

    assert "[not-all-sent]" in done.stderr
    assert "relive sync" in done.stderr
    server.start()
    assert "1 run sent" in script.relive("sync", env=environment(server.url)).stdout
    assert "0 runs sent" in script.relive("sync", env=environment(server.url)).stdout
    assert_same(script.home, server.store)
    assert values(server.store) == list(range(500))


@pytest.mark.long
def test_a_replay_that_came_later_is_sent_and_a_damaged_run_holds_nobody_up(script, serve):
    server = serve()
    env = environment(server.url)
    script(TRAIN, "100", "0", env=env)
    (run,) = Home(script.home).run_ids()
    assert "0 runs sent" in script.relive("sync", env=env).stdout
    journal = Journal(Home(script.home).run_folder(run) / JournalName.of_replay(1).stem)
    journal.line(line_schema.ReplayStarted, wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(), parent=0, number=1)
    journal.append_float("late", 0.5, 1, 0)
    journal.close()
    damaged = Home(script.home).run_folder("0" * 12)
    damaged.mkdir()
    Journal(damaged / "0").close()  # without the line that begins it
    (damaged / "0.lines").write_text("no line\n")

    done = script.relive("sync", env=env, check=False)

    assert done.returncode == 1
    assert "1 run sent" in done.stdout
    assert "000000" in done.stderr
    shutil.rmtree(damaged)
    assert_same(script.home, server.store)


@pytest.mark.long
def test_a_killed_client_loses_nothing_that_it_logged(script, serve):
    server = serve()
    process = script.start(TRAIN, "1000000", "0.001", env=environment(server.url))
    wait_until(lambda: any(Home(server.store).run_ids()) and len(values(server.store)) > 100)

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    script.relive("sync", env=environment(server.url))

    assert_same(script.home, server.store)
    assert values(server.store) == values(script.home)
    assert values(server.store) == list(range(len(values(server.store))))


def wait_until(happened, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.long
def test_a_full_disk_on_the_server_stops_sending_only_until_there_is_space(script, serve):
    server = serve()
    limit = 40_000  # bytes in any file of the server from now on
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    process = script.start(TRAIN, "6000", "0.01", env=environment(server.url))
    wait_until(lambda: metric(server, "relive_store_failures_total") > 0)
    before = values(server.store)

    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    _, said = process.communicate(timeout=60)
    script.relive("sync", env=environment(server.url))

    assert process.returncode == 0
    assert before == list(range(len(before)))
    assert_same(script.home, server.store)
    assert values(server.store) == list(range(6000)), said


def metric(server, name: str) -> float:
    import urllib.request

    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        rows = answer.read().decode().splitlines()
    return next(float(row.split()[-1]) for row in rows if row.startswith(name + " "))


def test_a_second_server_on_the_same_store_is_refused(serve):
    server = serve()
    command = [sys.executable, "-m", "relive", "serve", "--store", str(server.store), "--port", "0", "--open"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert second.returncode == 1
    assert "another server uses" in second.stderr
    assert "stop it first" in second.stderr
    server.wait()


@pytest.mark.slow
def test_a_client_whose_clock_is_wrong_is_still_seen_to_live(script, serve):
    server = serve()
    wrong = "import os, time\nreal = time.time_ns\ntime.time_ns = lambda: real() + {} * 10**9\n"
    waiting = "import relive\nrelive.log('n', 1)\nwhile not os.path.exists({!r}): time.sleep(0.02)\n"
    for hours in (-5, 5):
        source = wrong.format(hours * 3600) + waiting.format(f"stop{hours}")
        process = script.start(source, name=f"skewed{hours}.py", env=environment(server.url))
        wait_until(lambda: "running" in outcomes(server))
        (script.project / f"stop{hours}").touch()
        assert process.wait(60) == 0
        wait_until(lambda: "running" not in outcomes(server))

    shown = [
        json.loads(row) for row in script.relive("runs", "--json", "--home", str(server.store)).stdout.splitlines()
    ]
    assert [run["outcome"] for run in shown] == ["finished", "finished"]
    apart_s = (shown[0]["started_us"] - shown[1]["started_us"]) / 1e6
    assert 9 * 3600 < apart_s < 11 * 3600


@pytest.mark.slow
def test_a_rank_that_never_starts_blocks_nothing(script, serve):
    server = serve()
    env = {**environment(server.url), "RELIVE_RANK": "0", "RELIVE_WORLD_SIZE": "2", "RELIVE_LAUNCH": "one"}
    script(TRAIN, "100", "0", env=env)

    shown = script.relive("show", "last", "--home", str(server.store)).stdout
    assert "1 of 2" in shown
    assert "finished" in shown


@pytest.mark.slow
def test_a_process_that_falls_silent_is_taken_for_dead_and_comes_to_life_again(script, serve):
    server = serve()
    process = script.start(TRAIN, "1000000", "0.01", env=environment(server.url))
    wait_until(lambda: Home(server.store).run_ids() and len(values(server.store)) > 100)
    (run,) = Home(server.store).run_ids()
    os.killpg(process.pid, signal.SIGSTOP)
    wait_until(lambda: metric(server, "relive_requests_in_flight") == 1)  # that of this question
    mark = Home(server.store).run_folder(run) / "shipped"
    os.utime(mark, (time.time() - 3600,) * 2)

    assert outcomes(server) == ["killed"]
    os.killpg(process.pid, signal.SIGCONT)
    wait_until(lambda: outcomes(server) == ["running"])
    os.killpg(process.pid, signal.SIGKILL)


def outcomes(server) -> list[str]:
    index = Index(Home(server.store))
    found = [entry.record.outcome for entry in index.runs()]
    index.close()
    return found


@pytest.mark.slow
def test_400_runs_at_once(tmp_path: Path, serve):
    server, home = serve(), Home(tmp_path / "home")
    home.create()
    failures: list[str] = []

    def record(n: int) -> None:
        run = home.new_run()
        journal = Journal(home.run_folder(run) / "0")
        journal.line(
            line_schema.RunStarted, run=run, rank=0, wall_ns=time.time_ns(), clock_ns=time.monotonic_ns(),
            pid=os.getpid(), start=process_start_stamp(os.getpid()), host="elsewhere",
        )  # fmt: skip
        remote = ServerClient(server.url)
        shipment = RunShipment(home, run, remote)
        for iteration in range(5):
            for step in range(200):
                journal.append_float("loss", float(step + iteration * 200), 1, 0)
            last = iteration == 4
            if last:
                journal.line(line_schema.RunEnded, outcome="finished", error=None, wall_ns=time.time_ns())
                journal.close()
            send(shipment, final=last)
        remote.close()
        if not shipment.is_done:
            failures.append(run)

    def send(shipment: RunShipment, *, final: bool) -> None:
        while True:
            try:
                if not shipment.step(lambda *_: final):
                    return
            except ServerUnreachable as error:
                time.sleep(error.retry_after_s or 0.2)

    threads = [threading.Thread(target=record, args=(n,)) for n in range(400)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert failures == []
    assert_same(home.path, server.store)
