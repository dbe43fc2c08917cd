"""A remembered call is computed once, and never wrongly reused: with real processes, killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relive.store import Home
from relive.store.chunks import Chunks, MemoTable
from relive.store.gc import Policy, collect_garbage

COUNTED = """
    import os, sys, time, relive
    def work(x):
        with open("executions", "a") as file:
            file.write(f"{os.getpid()}\\n")
        pause = os.environ.get("SLOWLY", "0.3")
        if pause == "first":
            pause = "60" if len(open("executions").read().split()) == 1 else "0"
        time.sleep(float(pause))
        return [x, x * 2]
    @relive.memo
    def step(x):
        return work(x)
"""


def executions(script: Any) -> int:
    path = script.project / "executions"
    return len(path.read_text().split()) if path.exists() else 0


@pytest.mark.long
@pytest.mark.parametrize(("count", "how"), [(8, "spawn"), pytest.param(50, "fork", marks=pytest.mark.slow)])
def test_many_processes_compute_once(script: Any, home: Path, count: int, how: str):
    script.write(COUNTED, "steps.py")
    done = script(
        f"""
        import multiprocessing, steps
        if __name__ == "__main__":
            with multiprocessing.get_context({how!r}).Pool({count if how == "fork" else 4}) as pool:
                print(pool.map(steps.step, [7] * {count}, chunksize=1) == [[7, 14]] * {count})
        """
    )

    assert done.stdout.strip() == "True"
    assert executions(script) == 1


def test_threads_and_processes_together_compute_once(script: Any, home: Path):
    script.write(COUNTED, "steps.py")
    text = """
        from concurrent.futures import ThreadPoolExecutor
        import steps
        with ThreadPoolExecutor(25) as pool:
            print(list(pool.map(steps.step, [7] * 25)) == [[7, 14]] * 25)
    """
    first, second = script.start(text), script.start(None)

    assert [first.communicate(timeout=60)[0], second.communicate(timeout=60)[0]] == ["True\n", "True\n"]
    assert executions(script) == 1


def test_when_the_computing_one_dies_another_takes_over(script: Any, home: Path):
    script.write(COUNTED, "steps.py")
    text = "import steps; print(steps.step(7))"
    first = script.start(text, env={"SLOWLY": "first"})  # the same in both: variables that are read are inputs
    _until(lambda: executions(script) == 1)
    second = script.start(None, env={"SLOWLY": "first"})
    time.sleep(0.3)
    assert executions(script) == 1  # it waits
    os.killpg(first.pid, signal.SIGKILL)

    assert second.communicate(timeout=60)[0] == "[7, 14]\n"
    assert executions(script) == 2


KILLED = """
    import sys, os, numpy, relive
    @relive.memo
    def step(x):
        return {"x": x, "data": numpy.full(60_000, x), "odd": {x: object}}
    print("ready", flush=True)
    for at in range(int(sys.argv[1]), int(sys.argv[1]) + 200):
        found = step(at)
        assert found["x"] == at and (found["data"] == at).all() and len(found["data"]) == 60_000, found
        print(at, flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("rounds", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_a_kill_while_storing_leaves_a_hit_or_a_miss(script: Any, home: Path, rounds: int):
    script.write(KILLED)
    returned: set[int] = set()
    for at in range(rounds):
        process = script.start(None, str(20 * at))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(random.random() * 0.15)
        process.kill()
        returned |= {int(line) for line in process.stdout.read().split("\n")[:-1] if line.strip().isdecimal()}
    done = script(None, "0")

    # What returned before is found again, and everything is right: the script itself checks that.
    remembered = {int(row.arguments.split('"x":["')[1].split('"')[2]) for row in MemoTable(home / "memo.sqlite").rows()}
    assert returned <= remembered
    assert "Warning" not in done.stderr


def test_editing_a_helper_of_a_helper_is_a_miss_and_a_comment_a_hit(script: Any, home: Path):
    base = "def deepest(x):\n    return x + 1\n\n\ndef helper(x):\n    return deepest(x)\n"
    main = """
        import relive
        from parts import helper
        @relive.memo
        def step(x):
            print("computed")
            return helper(x)
        print(step(1))
    """

    def run(parts: str) -> list[str]:
        script.write(parts, "parts.py")
        printed: list[str] = script(main).stdout.split()
        return printed

    assert run(base) == ["computed", "2"]
    assert run("# a comment\n" + base.replace("return x + 1", "return (x  # so\n            + 1)")) == ["2"]
    assert run(base.replace("x + 1", "x + 2")) == ["computed", "3"]
    assert run(base) == ["2"]  # people come back to old versions


@pytest.mark.long
def test_a_run_tells_what_it_reused_and_from_where(script: Any, home: Path):
    text = """
        import relive
        @relive.memo
        def features(path):
            return len(path)
        features("data.csv")           # before the first verb: it belongs to the run all the same
        for epoch in relive.loop("epoch", range(2)):
            relive.log("n", features("data.csv"))
    """
    script(text)
    first = script.relive("runs", "--json").stdout
    run = first.split('"run":"')[1][:8]
    own = script.relive("show", "last").stdout
    script(None)

    assert "train.features 2 reused from this run, 1 computed" in " ".join(own.split())
    assert f"train.features 3 reused from run {run}" in " ".join(script.relive("show", "last").stdout.split())


def test_workers_of_a_run_tell_it_too(script: Any, home: Path):
    script.write(COUNTED, "steps.py")
    script(
        """
        import concurrent.futures, multiprocessing, relive, steps
        if __name__ == "__main__":
            relive.log("begun", True)
            spawn = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
                pool.submit(steps.step, 1).result()
            steps.step(1)
        """,
        env={"SLOWLY": "0"},
    )

    assert "steps.step 1 reused from this run, 1 computed" in " ".join(script.relive("show", "last").stdout.split())


@pytest.mark.slow
def test_in_a_replay_a_remembered_step_is_a_hit(script: Any, home: Path):
    text = """
        import relive
        @relive.memo
        def features(n):
            return list(range(n))
        data = features(5)
        for epoch in relive.loop("epoch", range(3)):
            relive.log("seen", len(data) + epoch)
    """
    script(text)
    script.write(text.rstrip() + "\n            relive.log('total', sum(data) + epoch)\n")
    script.relive("replay", "total", "--yes")

    assert script.relive("dataframe", "total", "--csv").stdout.split()[1:] != []
    assert "12" in script.relive("dataframe", "total", "--csv").stdout
    assert len(MemoTable(home / "memo.sqlite").misses()) == 1


# --- relive gc --------------------------------------------------------------------------------------------------------


def test_what_is_remembered_is_never_collected(script: Any, home: Path):
    script(
        """
        import numpy, relive
        @relive.memo
        def step(x):
            return numpy.full(20_000, x)
        for at in range(3):
            step(at)
        """
    )
    chunks = set(Chunks(home / "chunks").names())
    collect_garbage(Home(home), Policy(), grace_s=-60)
    kept = set(Chunks(home / "chunks").names())
    memos = MemoTable(home / "memo.sqlite")
    memos.remove([memos.rows()[0].key])
    collect_garbage(Home(home), Policy(), grace_s=-60)

    assert len(chunks) == 3
    assert kept == chunks
    assert len(set(Chunks(home / "chunks").names())) == 2


@pytest.mark.long
def test_a_collection_at_work_takes_nothing_that_is_being_stored(script: Any, home: Path):
    text = """
        import sys, time, numpy, relive
        from relive.memo.home_stores import HOMES
        @relive.memo
        def step(x):
            return numpy.full(20_000, x)
        begun, at = time.time(), 0
        while time.time() - begun < float(sys.argv[1]):
            assert (step(at % 20) == at % 20).all()
            at += 1
            if at % 30 == 0:  # forgotten, so that the same chunks are orphans for a moment, and stored again
                memos = HOMES.store().memos
                memos.remove([row.key for row in memos.rows()[::2]])
    """
    writer = script.start(text, "2")
    collections = 0
    while writer.poll() is None:
        if home.exists():
            assert not collect_garbage(Home(home), Policy(), grace_s=0.5).doubts
            collections += 1
        time.sleep(0.02)
    error = writer.communicate()[1]

    assert writer.returncode == 0, error
    assert "memo-unreadable" not in error
    assert collections > 5
    named = [name for row in MemoTable(home / "memo.sqlite").rows() for name in row.chunks.split()]
    assert [name for name in named if name not in Chunks(home / "chunks")] == []


def test_in_doubt_about_what_is_remembered_nothing_is_collected(script: Any, home: Path):
    Home(home).create()
    Chunks(home / "chunks").put(b"orphan" * 1000)
    (home / "memo.sqlite").write_bytes(b"no database" * 100)
    report = collect_garbage(Home(home), Policy(), grace_s=-60)

    assert report.doubts[0].run == "memo"
    assert len(list(Chunks(home / "chunks").names())) == 1


def _until(done: Callable[[], bool], within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)
