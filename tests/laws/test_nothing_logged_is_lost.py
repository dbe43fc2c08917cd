"""Promise 3: after a kill at any moment, every value whose `log()` returned is there, and the store is readable."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index
from relive.store.gc import check_home

# Each trial is a process of its own, forked before any run is open. It counts the values whose `log` has returned in
# memory that it shares with its parent, which kills it at any moment: while the run is opened, between two loops,
# while the journal grows.
TRIALS = """
import json, mmap, os, random, signal, struct, sys, time
import relive
import relive.record.run_start  # loaded once, not by each child

def train(trial, returned, last):
    n = 0
    for epoch in relive.loop("epoch", range(1_000)):
        for step in relive.loop("step", range(50)):
            relive.log("n", float(n)) if n % 5 else relive.log("n", n) if n % 2 else relive.log("n", {"n": n})
            n += 1
            struct.pack_into("<qq", returned, 0, n, trial)
            if n == last:
                os._exit(7)
            sum(range(100))
        relive.log("epoch_end", epoch)

how, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
for trial in range(count):
    returned = mmap.mmap(-1, 16)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with relive.run(f"trial {trial}") if trial % 2 else relive.checkpointing():
            relive.arg("trial", trial)
            os.write(tell, b"x")
            train(trial, returned, chance.randrange(1, 3_000) if how == "exit" else None)
    if how != "exit":
        if trial % 5:
            os.read(ready, 1)      # the others are killed while they open their run
        time.sleep(chance.random() * 0.06)
        os.kill(child, signal.SIGKILL if how == "kill" else signal.SIGTERM)
    os.waitpid(child, 0)
    os.close(ready), os.close(tell)
    print(json.dumps({"trial": trial, "returned": struct.unpack_from("<q", returned)[0]}))
"""


def run_trials(script, how: str, count: int, seed: int) -> None:
    done = script(TRIALS, how, str(count), str(seed), env={"RELIVE_VERSIONS": "0"}, timeout=300)

    returned = {trial["trial"]: trial["returned"] for trial in map(json.loads, done.stdout.splitlines())}
    assert len(returned) == count, done.stderr
    assert done.stderr == ""
    assert sum(returned.values()) > 50 * count
    found = seen(script.home)
    for trial, last in returned.items():
        missing = set(range(last)) - found.get(trial, {}).keys()
        assert not missing, f"trial {trial} lost {sorted(missing)[:5]} of {last} (seed {seed})"
        wrong = [n for n, place in found.get(trial, {}).items() if place != divmod(n, 50)]
        assert not wrong, f"trial {trial}: {wrong[:5]} in the wrong place (seed {seed})"
    assert {record.outcome for record in records(script.home)} == {"killed"}
    assert [finding for finding in check_home(Home(script.home)) if finding.damage] == []


def seen(home: Path) -> dict[int, dict[int, tuple[int, int]]]:
    """For each trial, where each of its values is."""
    frame = relive.dataframe("trial", "n", home=home)
    frame = frame[frame.n.notna()]
    numbers = [value["n"] if isinstance(value, dict) else int(value) for value in frame.n]
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for trial, epoch, step, n in zip(frame.trial, frame.epoch, frame.step, numbers, strict=True):
        found.setdefault(int(trial), {})[n] = (int(epoch), int(step))
    return found


def records(home: Path) -> list[Any]:
    index = Index(Home(home))
    found = [entry.record for entry in index.runs()]
    index.close()
    return found


@pytest.mark.long
@pytest.mark.parametrize(("how", "count"), [("kill", 25), ("term", 5), ("exit", 5)])
def test_every_value_whose_log_returned_survives_the_death_of_the_process(script, how: str, count: int) -> None:
    run_trials(script, how, count, seed=random.randrange(1 << 30))


@pytest.mark.slow
def test_every_value_whose_log_returned_survives_200_kills(script) -> None:
    run_trials(script, "kill", 200, seed=random.randrange(1 << 30))


def test_threads_and_children_lose_nothing_either(script) -> None:
    shared = script.project / "returned"
    shared.write_bytes(bytes(32))
    process = script.start(
        """
        import mmap, os, struct, threading, time, relive
        returned = mmap.mmap(os.open("returned", os.O_RDWR), 32)
        def work(who):
            for n in relive.loop("n", range(10**6)):
                relive.log(f"v{who}", n)
                struct.pack_into("<q", returned, 8 * who, n + 1)
        relive.log("first", 1)
        threads = [threading.Thread(target=work, args=(who,), daemon=True) for who in range(3)]
        if os.fork() == 0:
            work(3)
        [thread.start() for thread in threads]
        time.sleep(600)
        """
    )
    # A machine that is busy with other things may take long to start three threads and a child; a hang takes longer.
    deadline = time.monotonic() + 150
    while min(counts(shared)) < 100 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    for who, count in enumerate(counts(shared)):
        kept = relive.sql(f"select value from logs where name = 'v{who}' order by seq", home=script.home).value
        assert count >= 100
        assert kept[:count].tolist() == list(range(count))
    assert [finding for finding in check_home(Home(script.home)) if finding.damage] == []


def counts(shared: Path) -> list[int]:
    return memoryview(shared.read_bytes()).cast("q").tolist()


def test_a_live_run_shows_every_value_as_soon_as_its_log_has_returned(script) -> None:
    process = script.start(
        """
        import os, time, relive
        for n in relive.loop("iteration", range(3)):
            relive.log("n", n)
            relive.log("text", {"n": n})
            print("logged", flush=True)
            while not os.path.exists(f"go on {n}"):
                time.sleep(0.005)
        """
    )
    for n in range(3):
        assert process.stdout.readline() == "logged\n"
        frame = relive.dataframe("n", "text", home=script.home)
        listed = script.relive("runs", "--json").stdout if n == 2 else ""
        (script.project / f"go on {n}").touch()

        assert frame.n.tolist() == list(range(n + 1))
        assert frame.text.tolist() == [{"n": m} for m in range(n + 1)]
    process.communicate(timeout=60)

    assert json.loads(listed)["outcome"] == "running"
    assert json.loads(listed)["last"]["n"] == 2
    assert [record.outcome for record in records(script.home)] == ["finished"]


def test_a_line_that_is_lost_at_the_end_is_left_out_and_nothing_else(script) -> None:
    script("import os, relive\nfor n in range(3):\n    relive.log('text', {'n': n})\nos._exit(0)\n")
    (lines,) = (script.home / "runs").glob("*/0.lines")
    whole = lines.read_bytes()
    last_line = whole[whole[:-1].rfind(b"\n") + 1 :]

    for left in range(0, len(last_line), 20):
        lines.write_bytes(whole[: len(whole) - len(last_line) + left])
        shutil.rmtree(script.home / "index", ignore_errors=True)
        findings = list(check_home(Home(script.home)))

        assert any("1 lines are missing" in finding.text for finding in findings if finding.damage)
        assert any("torn" in finding.text for finding in findings) == (left > 0)
        assert relive.dataframe("text", home=script.home).text.tolist() == [{"n": 0}, {"n": 1}]
