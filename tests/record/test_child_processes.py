"""Laws of child processes: their values are in the run of their parent, in the iteration that it was in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index


def values(home: Path, name: str) -> list[Any]:
    return sorted(relive.sql(f"select value from logs where name = '{name}'", home=home).value.tolist())


def rows(home: Path, *names: str, **how: Any) -> list[tuple[Any, ...]]:
    """The wide table without its fixed columns, sorted, for children come in any order."""
    frame = relive.dataframe(*names, home=home, **how)
    return sorted(frame.drop(columns=["run", "tstamp"]).itertuples(index=False))


def records(home: Path) -> list[Any]:
    index = Index(Home(home))
    found = [entry.record for entry in index.runs()]
    index.close()
    return found


def journals(home: Path) -> list[str]:
    """The journals of the only run, without their process numbers."""
    (run,) = Home(home).run_ids()
    stems = [path.stem for path in Home(home).run_folder(run).glob("*.slots")]
    return sorted(stem.partition("-")[0] + ("-child" if "-" in stem else "") for stem in stems)


def test_a_forked_child_logs_in_the_iteration_of_its_parent(script) -> None:
    done = script(
        """
        import os, relive
        for epoch in relive.loop("epoch", [3, 4]):
            for step in relive.loop("step", range(2)):
                relive.log("before", epoch)
                pid = os.fork()
                if pid == 0:
                    relive.log("child", 10 * epoch + step)
                    for part in relive.loop("part", ["a", "b"]):
                        relive.log("nested", part)
                    relive.log("left", 1)
                    os._exit(0)
                os.waitpid(pid, 0)
                relive.log("parent", step)
        relive.log("after", 1)
        """
    )

    assert done.stderr == ""
    assert rows(script.home, "child") == [(3, 0, 30), (3, 1, 31), (4, 0, 40), (4, 1, 41)]
    assert rows(script.home, "nested") == [(e, s, p, p) for e in (3, 4) for s in (0, 1) for p in "ab"]
    assert rows(script.home, "left") == [(3, 0, 1), (3, 1, 1), (4, 0, 1), (4, 1, 1)]
    assert rows(script.home, "parent") == [(3, 0, 0), (3, 1, 1), (4, 0, 0), (4, 1, 1)]
    assert [r.outcome for r in records(script.home)] == ["finished"]


def test_a_forked_child_that_never_logs_leaves_no_files(script) -> None:
    script(
        """
        import os, sys, relive
        relive.log("v", 1)
        for leave in (os._exit, sys.exit):
            pid = os.fork()
            if pid == 0:
                leave(0)      # by sys.exit, what was registered with atexit is done in the child too
            os.waitpid(pid, 0)
        relive.log("v", 2)
        """
    )

    assert journals(script.home) == ["0"]
    assert values(script.home, "v") == [1, 2]
    assert [r.outcome for r in records(script.home)] == ["finished"]


def test_a_killed_child_keeps_its_values_and_the_parent_goes_on(script) -> None:
    script(
        """
        import os, signal, relive
        relive.log("v", 1)
        pid = os.fork()
        if pid == 0:
            relive.log("child", {"text": "kept"})
            relive.log("child", 2.5)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        relive.log("v", 2)
        """
    )

    assert values(script.home, "v") == [1, 2]
    assert 2.5 in values(script.home, "child")
    assert len(relive.dataframe("child", home=script.home)) == 2
    assert [r.outcome for r in records(script.home)] == ["finished"]
    assert script.relive("doctor").returncode == 0


def test_a_child_outlives_its_parent(script) -> None:
    done = script(
        """
        import os, time, relive
        relive.log("v", 1)
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)             # until the parent is gone
            relive.log("child", 2)
            print("logged", flush=True)
            os._exit(0)
        relive.log("v", 2)
        os._exit(4)
        """,
        check=False,
    )

    assert done.returncode == 4
    assert done.stdout == "logged\n"
    assert values(script.home, "v") == [1, 2]
    assert values(script.home, "child") == [2]
    assert [r.outcome for r in records(script.home)] == ["killed"]


def test_grandchildren_log_to_the_same_run(script) -> None:
    script(
        """
        import os, relive
        for epoch in relive.loop("epoch", range(5, 6)):
            relive.log("parent", 0)
            if (child := os.fork()) == 0:
                relive.log("child", 1)
                if (grandchild := os.fork()) == 0:
                    relive.log("grandchild", 2)
                    os._exit(0)
                os.waitpid(grandchild, 0)
                relive.log("child", 3)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )

    assert rows(script.home, "child") == [(5, 1), (5, 3)]
    assert rows(script.home, "grandchild") == [(5, 2)]
    assert journals(script.home) == ["0", "0-child", "0-child"]


def test_a_child_logs_in_the_iteration_of_its_parent_even_if_that_logs_nothing(script) -> None:
    script(
        """
        import os, relive
        for epoch in relive.loop("epoch", range(5, 6)):
            if (child := os.fork()) == 0:
                relive.log("child", 1)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )

    assert rows(script.home, "child") == [(5, 1)]


def test_a_child_logs_in_the_current_item_of_its_parent(script) -> None:
    script(
        """
        import os, relive
        for fold in relive.loop("fold", [5, "b"]):
            relive.log("parent", 1)
            if (child := os.fork()) == 0:
                relive.log("child", 1)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )

    assert relive.dataframe("child", home=script.home).fold.tolist() == [5, "b"]


def test_grandchildren_log_in_the_loops_of_their_parent(script) -> None:
    script(
        """
        import os, relive
        relive.log("v", 1)
        if (child := os.fork()) == 0:
            for part in relive.loop("part", range(7, 9)):
                if (grandchild := os.fork()) == 0:
                    relive.log("grandchild", 10 * part)
                    os._exit(0)
                os.waitpid(grandchild, 0)
            os._exit(0)
        os.waitpid(child, 0)
        for other in relive.loop("other", range(2)):
            relive.log("v", other)
        """
    )

    assert list(relive.dataframe("grandchild", home=script.home).columns)[-2:] == ["part", "grandchild"]
    assert rows(script.home, "grandchild") == [(7, 70), (8, 80)]


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_and_pools_log_to_the_run_of_their_parent(script, method: str) -> None:
    done = script(
        """
        import multiprocessing, sys, relive
        def work(n):
            relive.log("worker", n)
            for part in relive.loop("part", range(2)):
                relive.log("part_value", 10 * n + part)
            return relive.arg("scale", 1) * n
        if __name__ == "__main__":
            relive.arg("scale", 1)
            context = multiprocessing.get_context(sys.argv[1])
            for epoch in relive.loop("epoch", range(1)):
                process = context.Process(target=work, args=(1,))
                process.start()
                process.join()
                with context.Pool(2) as pool:
                    print(pool.map(work, [2, 3]), process.exitcode)
                relive.log("main", epoch)
        """,
        method, "--kwargs", "scale=10",
    )  # fmt: skip

    assert done.stdout == "[20, 30] 0\n"
    assert done.stderr == ""
    assert len(records(script.home)) == 1
    assert values(script.home, "worker") == [1, 2, 3]
    assert values(script.home, "part_value") == [10, 11, 20, 21, 30, 31]
    assert rows(script.home, "main") == [(0, 0)]


def test_a_fork_of_a_spawned_worker_has_a_journal_of_its_own(script) -> None:
    script(
        """
        import multiprocessing, os, relive
        def work():
            relive.log("worker", 0)
            children = []
            for n in range(1, 4):
                if (pid := os.fork()) == 0:
                    for m in range(100):
                        relive.log("worker", 100 * n + m)
                    os._exit(0)
                children.append(pid)
            for m in range(100):
                relive.log("worker", 1000 + m)
            [os.waitpid(pid, 0) for pid in children]
        if __name__ == "__main__":
            relive.log("main", 1)
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
        """
    )

    assert values(script.home, "worker") == [0, *range(100, 400), *range(1000, 1100)]
    assert journals(script.home) == ["0", *["0-child"] * 4]


def test_values_of_workers_are_in_the_table_and_separated_on_demand(script) -> None:
    script(
        """
        import multiprocessing, os, relive
        def work(n):
            relive.log("worker", n)
            return os.getpid()
        if __name__ == "__main__":
            relive.log("main", 1)
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(*pool.map(work, range(4), chunksize=2))
        """
    )

    shown = relive.dataframe("worker", home=script.home)
    apart = relive.dataframe("worker", home=script.home, ranks="all")
    assert sorted(shown.worker) == [0, 1, 2, 3]
    assert "process" not in shown
    assert (apart["rank"] == 0).all()
    assert (apart.process != 0).all()


def test_a_pool_started_before_the_first_call_logs_to_the_run(script) -> None:
    done = script(
        """
        import multiprocessing, relive
        def work(n):
            relive.log("worker", n)
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(2) as pool:
                relive.log("main", 1)
                pool.map(work, range(4))
        """
    )

    assert done.stderr == ""
    assert len(records(script.home)) == 1
    assert values(script.home, "worker") == [0, 1, 2, 3]


def test_workers_of_a_process_without_a_run_open_their_own_runs(script) -> None:
    script(
        """
        import multiprocessing
        def work(n):
            import relive
            relive.log("worker", n)
            if n == 1:
                raise ValueError("of the worker")
        if __name__ == "__main__":
            processes = [multiprocessing.get_context(m).Process(target=work, args=(n,))
                         for n, m in enumerate(["fork", "fork", "spawn"])]
            [process.start() for process in processes]
            [process.join() for process in processes]
        """
    )

    found = {r.run: r.outcome for r in records(script.home)}
    frame = relive.dataframe("worker", home=script.home)
    assert sorted(zip(frame.worker, map(found.get, frame.run), strict=True)) == [
        (0, "finished"),
        (1, "failed"),
        (2, "finished"),
    ]


def test_a_worker_may_open_runs_of_its_own(script) -> None:
    script(
        """
        import multiprocessing, relive
        def trial(n):
            with relive.run(f"trial {n}"):
                relive.log("loss", n)
            relive.log("done", n)
        if __name__ == "__main__":
            with relive.run("sweep"):
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    pool.map(trial, range(4))
        """
    )

    found = {r.name: r for r in records(script.home)}
    assert sorted(found) == ["sweep", "trial 0", "trial 1", "trial 2", "trial 3"]
    assert {r.outcome for r in found.values()} == {"finished"}
    assert {r.parent for name, r in found.items() if name != "sweep"} == {found["sweep"].run}
    frame = relive.dataframe("done", home=script.home)
    assert sorted(frame.done) == [0, 1, 2, 3]
    assert set(frame.run) == {found["sweep"].run}


@pytest.mark.long
def test_a_script_started_by_a_run_is_a_run_of_its_own_with_a_parent(script) -> None:
    script.write(
        """
        import relive
        relive.log("inner", relive.arg("lr", 1))
        """,
        "inner.py",
    )
    script(
        """
        import subprocess, sys, relive
        relive.log("outer", relive.arg("lr", 1))
        subprocess.run([sys.executable, "inner.py"], check=True)
        with relive.run("second"):
            subprocess.run([sys.executable, "inner.py"], check=True)
        subprocess.run([sys.executable, "inner.py"], check=True)
        """,
        "--kwargs", "lr=2",
    )  # fmt: skip

    found = records(script.home)
    outer, inner, second, inside, last = found
    assert [r.filename for r in found] == ["train.py", "inner.py", "train.py", "inner.py", "inner.py"]
    assert [r.parent for r in found] == [None, outer.run, outer.run, second.run, outer.run]
    assert values(script.home, "inner") == [1, 1, 1]  # the --kwargs were not passed to it
    assert {r.outcome for r in (inner, inside, last)} == {"finished"}


FORK_WHILE_LOADING = """
import os, signal, time
import numpy as np
import relive
relive.log("v", 1)
net, children = {"weights": np.zeros(100_000)}, []
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(3)):    # while the packages are listed and checkpoints written beside
        net["weights"] += 1
        for n in range(8):
            if (pid := os.fork()) == 0:
                import MODULES
                os._exit(0)
            children.append(pid)
            time.sleep(0.001)
deadline, hung = time.monotonic() + 60, children
while hung and time.monotonic() < deadline:
    hung = [pid for pid in hung if os.waitpid(pid, os.WNOHANG)[0] == 0]
    time.sleep(0.01)
for pid in hung:
    os.kill(pid, signal.SIGKILL)
print("hung:", len(hung))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "modules",
    [
        "csv, email.message, email.parser, importlib.metadata, zipfile, blake3",
        pytest.param(
            "xxhash, zstandard",
        ),
    ],
    ids=["packages", "checkpoints"],
)
def test_children_never_hang_on_imports_of_their_parent(script, modules: str) -> None:
    done = script(FORK_WHILE_LOADING.replace("MODULES", modules))

    assert done.stdout == "hung: 0\n"


@pytest.mark.long
def test_the_workers_of_a_data_loader_are_part_of_the_run(script) -> None:
    for n in range(4):
        (script.project / f"{n}.txt").write_text(str(n))
    done = script(
        """
        import os, torch, relive
        from torch.utils.data import DataLoader, Dataset
        class Files(Dataset):
            def __len__(self): return 4
            def __getitem__(self, n):
                relive.log("item", n)
                with open(f"{n}.txt") as file:
                    return torch.tensor(float(file.read()))
        relive.arg("seed", torch.manual_seed(0).initial_seed())
        loader = DataLoader(Files(), batch_size=2, num_workers=2, shuffle=True)
        for epoch in relive.loop("epoch", range(2)):
            for batch in relive.loop("step", loader):
                relive.log("sum", batch.sum())
        """
    )

    (record,) = records(script.home)
    read = {Path(found["path"]).name for found in record.data["read"]}
    assert done.stderr == ""
    assert record.outcome == "finished"
    assert read == {"0.txt", "1.txt", "2.txt", "3.txt"}
    assert record.data_version is not None
    assert values(script.home, "item") == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sum(values(script.home, "sum")) == 12
    assert [row[:2] for row in rows(script.home, "sum")] == [(0, 0), (0, 1), (1, 0), (1, 1)]
