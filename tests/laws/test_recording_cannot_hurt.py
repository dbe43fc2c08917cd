"""Promise 2: recording can't hurt. Whatever fails inside relive, the script does what it would have done without."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index
from relive.store.gc import check_home

WITHOUT = '''
"""What the verbs are without relive."""
import contextlib
def log(name, value): return value
def arg(name, default): return default
def loop(name, items): return items
def data(name, source, *, etag=None): return source
def artifact(source, *, name=None): return source
@contextlib.contextmanager
def run(name="", *, tags=None): yield
@contextlib.contextmanager
def checkpointing(**objects): yield
'''


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """Variables under which `import relive` gets verbs that do nothing."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "relive.py").write_text(WITHOUT)
    return {"PYTHONPATH": str(tmp_path / "without")}


def tree(project: Path) -> dict[str, str]:
    """Every file of the project but relive's own, by content."""
    files = (path for path in sorted(project.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(project)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if ".relive" not in path.parts and "__pycache__" not in path.parts
    }


def outside(done: Any) -> tuple[int, str, str, dict[str, str]]:
    """All that a run shows to the world."""
    return done.returncode, done.stdout, done.stderr, tree(done.project)


def values(home: Path, name: str) -> list[Any]:
    return relive.sql(f"select value from logs where name = '{name}' order by seq", home=home).value.tolist()


def assert_readable(home: Path) -> list[Any]:
    """No finding is damage, and every run can be listed; gives their records."""
    damage = [finding for finding in check_home(Home(home), deep=True) if finding.damage]
    index = Index(Home(home))
    found = [entry.record for entry in index.runs()]
    index.close()
    assert damage == []
    return found


# The same to the outside


TRAIN = """
import os, random, sys, warnings
import relive
random.seed(0)
lr = relive.arg("lr", 0.1)
with open("made.txt", "w") as file:
    file.write("made by the script")
with relive.checkpointing():
    for epoch in relive.loop("epoch", range(3)):
        for step in relive.loop("step", range(2)):
            relive.log("loss", lr * step)
        print("epoch", epoch, random.random())
relive.data("made", "made.txt")
relive.artifact("made.txt")
print("to stderr", file=sys.stderr)
{ending}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "ending",
    [
        "", "sys.exit(3)", "sys.exit('said at the end')", "raise ValueError('of the user')", "os._exit(4)",
        "raise KeyboardInterrupt", "raise SystemExit(5)", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 2)",
        "sys.stdout.close()", "print('no newline', end='')",
    ],
)  # fmt: skip
def test_a_script_shows_the_same_with_and_without(script, without: dict[str, str], ending: str) -> None:
    source = TRAIN.format(ending=ending)

    plain = outside(script(source, check=False, env=without))
    recorded = outside(script(source, check=False))

    assert recorded == plain
    assert len(assert_readable(script.home)) == 1


@pytest.mark.parametrize("fault", ["none", "no home"])
def test_warnings_as_errors_stay_the_users(script, without: dict[str, str], fault: str) -> None:
    source = TRAIN.format(ending="warnings.warn('of the user')")
    broken = {"RELIVE_HOME": "/proc/nowhere"} if fault == "no home" else {}

    plain = script(source, check=False, env=without | {"PYTHONWARNINGS": "error"})
    recorded = script(source, check=False, env={"PYTHONWARNINGS": "error"} | broken)

    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert recorded.stderr.splitlines()[-1] == "UserWarning: of the user"
    assert recorded.stderr.count("relive: [recording-off]") == (fault == "no home")


@pytest.mark.long
def test_random_numbers_are_the_same_with_and_without(script, without: dict[str, str]) -> None:
    source = """
        import random
        import numpy as np, torch
        import relive
        random.seed(1), np.random.seed(2), torch.manual_seed(3)
        generator = np.random.default_rng(4)
        def draw():
            print(random.random(), np.random.rand(), generator.random(), torch.rand(1).item(), torch.randperm(5))
        draw()
        net = torch.nn.Linear(2, 2)
        relive.arg("lr", 0.1), draw()
        relive.data("x", np.arange(1000)), draw()
        with relive.checkpointing(net=net):
            for epoch in relive.loop("epoch", range(3)):
                for batch in relive.loop("step", torch.utils.data.DataLoader(torch.arange(6.0), shuffle=True)):
                    relive.log("loss", net.weight.sum() * batch.sum()), relive.log("weights", net.weight)
                draw()
        relive.artifact(net.state_dict(), name="net"), draw()
        with relive.run("inside"):
            relive.log("x", {"a": 1}), draw()
        """

    plain, recorded = script(source, env=without), script(source)

    assert recorded.stdout == plain.stdout


def test_the_users_git_is_the_same_before_and_after(script) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=u", "-c", "user.email=u@x"]
        return subprocess.run(
            ["git", *who, *words], cwd=script.project, capture_output=True, text=True, check=True
        ).stdout

    def state() -> dict[str, Any]:
        folder = script.project / ".git"
        refs = [line for line in git("for-each-ref").splitlines() if "refs/heads/relive/" not in line]
        kept = ("HEAD", "index", "config", "ORIG_HEAD", "packed-refs", "logs/HEAD")
        return {
            "files": {name: (folder / name).read_bytes() for name in kept if (folder / name).exists()},
            "refs": refs, "stash": git("stash", "list"), "branch": git("branch", "--show-current"),
            "staged": git("diff", "--cached"), "unstaged": git("diff"), "tree": tree(script.project / "src"),
            "locks": sorted(folder.rglob("*.lock")), "mtime": (folder / "index").stat().st_mtime_ns,
        }  # fmt: skip

    git("init", "-q", "-b", "main")
    script.write("a = 1\n", "src/a.py"), script.write("b = 1\n", "src/b.py"), script.write("c = 1\n", "src/c.py")
    git("add", "."), git("commit", "-qm", "one"), git("tag", "v1")
    script.write("a = 2\n", "src/a.py"), git("stash", "-q")
    script.write("b = 2\n", "src/b.py"), git("add", "src/b.py"), script.write("b = 3\n", "src/b.py")
    script.write("new = 1\n", "src/new.py"), (script.project / "src" / "c.py").unlink()
    script.write(TRAIN.format(ending=""))
    status = git("status", "--porcelain")
    before = state()

    script(None)

    assert state() == before
    assert git("status", "--porcelain").replace("?? made.txt\n", "") == status
    (record,) = assert_readable(script.home)
    assert record.code["dirty"]


# Faults around it


@pytest.mark.parametrize("home", ["{tmp}/file/home", "/proc/nowhere", "/dev/null/home", "{tmp}/file"])
def test_a_home_that_cannot_be_made_costs_one_warning(script, tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("a regular file")
    source = """
        import relive
        for epoch in relive.loop("epoch", range(2)):
            print(relive.log("loss", epoch), relive.arg("lr", 0.1), relive.data("d", "train.py"), relive.artifact("x"))
        with relive.run("inside") as run:
            print(run, relive.log("loss", 2))
        """

    done = script(source, env={"RELIVE_HOME": home.format(tmp=tmp_path)})

    assert done.stdout == "0 0.1 train.py x\n1 0.1 train.py x\nNone 2\n"
    assert done.stderr.count("ReliveWarning: [recording-off]") == 1
    assert tree(script.project).keys() == {"train.py"}


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "relive-test", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


FILL = """
import relive
for step in relive.loop("step", range(30_000)):
    relive.log("loss", step)
    if step % 100 == 0:
        relive.log("text", {"step": step})
print("done")
"""


def test_a_full_disk_costs_one_warning_and_what_was_written_stays_readable(script, tiny_disk: Path) -> None:
    done = script(FILL, env={"RELIVE_HOME": str(tiny_disk / "home")})

    assert done.stdout == "done\n"
    assert done.stderr.count("ReliveWarning: [recording-stopped]") == 1
    shutil.copytree(tiny_disk / "home", script.project / "copy", symlinks=True)
    (record,) = assert_readable(script.project / "copy")
    kept = values(script.project / "copy", "loss")
    assert 1_000 < len(kept) < 30_000
    assert kept == list(range(len(kept)))
    assert record.outcome == "finished"


def test_a_limit_on_file_sizes_costs_one_warning(script) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"

    done = script(limit + FILL)

    assert done.stdout == "done\n"
    assert done.stderr.count("ReliveWarning: [recording-stopped]") == 1
    assert assert_readable(script.home)[0].outcome == "finished"
    kept = values(script.home, "loss")
    assert len(kept) > 1_000
    assert kept == list(range(len(kept)))


def test_an_array_too_big_for_the_disk_costs_only_itself(script, tiny_disk: Path) -> None:
    done = script(
        """
        import os, relive
        relive.log("loss", 1)
        relive.log("big", os.urandom(2_000_000))
        relive.artifact(os.urandom(2_000_000), name="big")
        relive.log("loss", 2)
        print("done")
        """,
        env={"RELIVE_HOME": str(tiny_disk / "home")},
    )

    assert done.stdout == "done\n"
    assert "[log-lost]" in done.stderr
    assert "[artifact-lost]" in done.stderr
    shutil.copytree(tiny_disk / "home", script.project / "copy")
    (record,) = assert_readable(script.project / "copy")
    assert values(script.project / "copy", "loss") == [1, 2]
    assert record.outcome == "finished"
    assert record.artifacts == ()


def test_an_array_that_could_not_be_kept_is_told_of(script, tiny_disk: Path) -> None:
    done = script(
        """
        import numpy as np, relive
        relive.log("array", np.random.rand(250_000))
        """,
        env={"RELIVE_HOME": str(tiny_disk / "home")},
    )

    assert "[log-lost]" in done.stderr


def test_what_a_full_disk_costs_is_counted_by_name(script, tiny_disk: Path) -> None:
    done = script(FILL, env={"RELIVE_HOME": str(tiny_disk / "home")})

    copy = script.project / "copy"
    shutil.copytree(tiny_disk / "home", copy, symlinks=True)
    (record,) = assert_readable(copy)
    lost = f"{30_000 - len(values(copy, 'loss'))} values of loss lost"
    assert any(text.startswith(f"{lost}, the disk is full at") for text in record.incomplete)
    assert (done.returncode, record.outcome) == (0, "finished")
    assert f"incomplete: {lost}" in script.relive("doctor", "--home", str(copy), check=False).stdout
    assert "incomplete" in script.relive("show", "last", "--home", str(copy)).stdout


def test_recording_begins_again_when_there_is_room_again(script, tiny_disk: Path) -> None:
    script(
        """
        import os, time, relive
        filler = os.path.join(os.environ["RELIVE_HOME"], "..", "filler")
        relive.log("first", 1.0)
        full = os.open(filler, os.O_CREAT | os.O_WRONLY)
        try:
            while os.write(full, bytes(1000)):
                pass
        except OSError:
            os.close(full)
        for epoch in relive.loop("epoch", range(3)):
            for step in relive.loop("step", range(4000)):
                relive.log("loss", float(step))
            if epoch == 1:
                os.remove(filler)
                time.sleep(2.5)
        relive.log("last", 2.0)
        """,
        env={"RELIVE_HOME": str(tiny_disk / "home")},
    )

    copy = script.project / "copy"
    shutil.copytree(tiny_disk / "home", copy, symlinks=True)
    (record,) = assert_readable(copy)
    table = relive.dataframe("loss", home=copy)
    assert values(copy, "last") == [2.0]
    assert table[table.epoch == 2].loss.tolist() == [float(step) for step in range(4000)]
    assert table.loss.tolist() == table.step.tolist()
    lost = [text for text in record.incomplete if "values of loss" in text]
    assert [text.partition(" at ")[0] for text in lost] == [
        f"{12_000 - len(table)} values of loss lost, the disk is full"
    ]


def test_a_home_that_is_removed_is_told_of_at_once_and_at_the_end(script) -> None:
    done = script(
        """
        import os, shutil, sys, time, relive
        relive.log("v", 1)
        shutil.rmtree(os.environ.get("RELIVE_HOME") or ".relive")
        time.sleep(1.8)
        print("after", file=sys.stderr)
        """
    )

    before, _, after = done.stderr.partition("after")
    assert "[home-removed]" in before
    assert "this run is lost" in after


@pytest.mark.long
@pytest.mark.parametrize("what", [".relive", ".relive/runs", "journal", "chunks"])
def test_a_home_that_is_removed_while_it_is_written_costs_nothing_but_itself(script, what: str) -> None:
    done = script(
        f"""
        import glob, os, shutil, relive
        relive.log("loss", 1)
        what = {what!r}
        if what == "journal":
            [os.remove(path) for path in glob.glob(".relive/runs/*/*")]
        elif what == "chunks":
            relive.log("text", "x" * 10_000)
            shutil.rmtree(".relive/chunks")
        else:
            shutil.rmtree(what)
        for step in relive.loop("step", range(20_000)):
            relive.log("loss", step)
        relive.log("text", "y" * 10_000)
        relive.artifact(b"z", name="z")
        with relive.run():
            relive.log("again", 1)
        print("done")
        """
    )

    assert done.stdout == "done\n"
    assert values(script.home, "again") == [1]
    if what != "chunks":
        assert_readable(script.home)


@pytest.mark.long
@pytest.mark.parametrize(
    "git", [None, "exit 128", "kill -9 $$", "echo nonsense", "echo fatal: broken >&2; exit 1", "exec sleep 0.01"]
)
def test_git_missing_or_broken_costs_one_warning(script, tmp_path: Path, git: str | None) -> None:
    (tmp_path / "bin").mkdir()
    if git is not None:
        (tmp_path / "bin" / "git").write_text(f"#!/bin/sh\n{git}\n")
        (tmp_path / "bin" / "git").chmod(0o755)
        (tmp_path / "bin" / "sleep").symlink_to(shutil.which("sleep") or "")
    (script.project / ".git").mkdir()

    done = script("import relive\nrelive.log('loss', 1)\nprint('done')\n", env={"PATH": str(tmp_path / "bin")})

    assert done.stdout == "done\n"
    assert done.stderr.count("ReliveWarning") == done.stderr.count("[no-version]") == 1
    assert values(script.home, "loss") == [1]
    (record,) = assert_readable(script.home)
    assert record.outcome == "finished"
    assert list((script.project / ".git").iterdir()) == []


def test_few_file_descriptors_cost_at_most_warnings(script) -> None:
    done = script(
        """
        import os, resource, relive
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        relive.log("loss", 0)
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        relive.log("text", "x" * 10_000)
        relive.log("loss", 1)
        relive.artifact("train.py")
        [os.close(fd) for fd in held]
        relive.log("text", "y" * 10_000)
        relive.log("loss", 2)
        print("done")
        """
    )

    assert done.stdout == "done\n"
    assert values(script.home, "loss") == [0, 1, 2]
    assert "recording-stopped" not in done.stderr
    (record,) = assert_readable(script.home)
    assert record.outcome == "finished"


def test_no_file_descriptor_at_all_costs_one_warning(script) -> None:
    done = script(
        """
        import os, relive, relive.record.run_start, warnings
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        print(relive.log("loss", 1), flush=True)
        os._exit(0)
        """,
        check=False,
    )

    assert done.stdout == "1\n"
    assert done.returncode == 0
    assert not (script.home / "runs").exists() or assert_readable(script.home) is not None


# Faults inside: values and names


def test_values_that_misbehave_cost_at_most_themselves(script) -> None:
    done = script(
        """
        import collections.abc, relive
        class NoRepr:
            def __repr__(self): raise RuntimeError
        class NoClass:
            @property
            def __class__(self): raise RuntimeError
        class NoItems(dict):
            def items(self): raise OSError("of the value")
        class NoHash(str):
            def __hash__(self): raise RuntimeError
        class Liar(list):
            def __iter__(self): raise MemoryError
        class Exits:
            def __repr__(self): raise SystemError
        own = []
        own.append(own)
        deep = []
        for _ in range(100_000):
            deep = [deep]
        names = ["norepr", "noclass", "noitems", "liar", "exits", "own", "deep", "générateur", "type", "lambda"]
        things = [NoRepr(), NoClass(), NoItems(a=1), Liar([1]), Exits(), own, deep, (n for n in range(3)), int, len]
        for name, thing in zip(names, things, strict=True):
            assert relive.log(name, thing) is thing
            assert relive.log("é" + name, thing) is thing
            assert relive.log("inside", [thing, {"a": thing}])[0] is thing
            relive.artifact(thing, name=name)
        relive.log("loss", 1)
        print("done")
        """
    )

    assert done.stdout == "done\n"
    assert "recording-stopped" not in done.stderr
    assert values(script.home, "loss") == [1]
    (record,) = assert_readable(script.home)
    assert record.outcome == "finished"


def test_a_tree_that_knows_its_parents_is_no_endless_work(script) -> None:
    done = script(
        """
        import resource, relive
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        node = {"name": "root"}
        node["children"] = [{"parent": node, "n": n} for n in range(20)]
        relive.log("tree", node)
        print("done")
        """,
        timeout=60,
    )

    assert done.stdout == "done\n"


def test_a_string_of_100_megabytes_is_a_value_like_any_other(script) -> None:
    script("import relive\ntext = 'x' * 100_000_000\nassert relive.log('text', text) is text\n")

    (record,) = assert_readable(script.home)
    assert len(relive.dataframe("text", home=script.home).text[0]) == 100_000_000
    assert sum(path.stat().st_size for path in script.home.rglob("*") if path.is_file()) < 1_000_000
    assert record.outcome == "finished"


def test_names_may_be_anything(script) -> None:
    done = script(
        """
        import relive
        class NoStr:
            def __str__(self): raise RuntimeError
        names = ["ascii", "naïve ☃", "", " ", "new\\nline", "nul\\0", "\\ud800", "x" * 100_000, 5, 2.5, None,
                 ("a", 1), [1], {"a": 1}, b"bytes", object, NoStr(), "select", "a'b\\"c", "$int", "run", "epoch"]
        for name in names:
            for iteration in relive.loop(name, range(1)):
                assert relive.log(name, 1.5) == 1.5
                relive.log(name, "text")
        with relive.run("\\ud800", tags={"\\ud800": "\\ud800"}):
            relive.log("inside", 1)
        relive.log("loss", 1)
        print("done")
        """
    )

    assert done.stdout == "done\n"
    assert values(script.home, "loss") == [1]
    assert values(script.home, "inside") == [1]
    assert len(assert_readable(script.home)) == 2
    frame = relive.dataframe("naïve ☃", "(empty)", "5", "None", "[1]", "epoch", home=script.home)
    assert len(frame) == 12


def _many_names(script, count: int) -> None:
    done = script(
        f"""
        import relive
        for n in range({count}):
            relive.log(f"weight.{{n}}", n)
        relive.log("loss", 1)
        print("done")
        """
    )

    assert (done.stdout, done.stderr) == ("done\n", "")
    assert values(script.home, "loss") == [1]
    assert relive.sql("select count(distinct name) n, sum(value) s from logs", home=script.home).values.tolist() == [
        [count + 1, count * (count - 1) / 2 + 1]
    ]
    assert len(assert_readable(script.home)) == 1


@pytest.mark.slow
def test_very_many_names_are_names_like_any_other(script) -> None:
    _many_names(script, 20_000)


@pytest.mark.slow
def test_a_million_names_are_names_like_any_other(script) -> None:
    _many_names(script, 1_000_000)


# Faults inside: what the script does to Python


def test_a_script_that_replaces_what_python_offers_is_left_alone(script) -> None:
    done = script(
        """
        import builtins, io, os, sys, threading, time, warnings
        import relive
        class NoThread:
            def __init__(self, *args, **kwargs): raise RuntimeError("no more threads")
        threading.Thread = NoThread
        real, sys.stdout = sys.stdout, io.StringIO()
        sys.excepthook = lambda *error: real.write("hook\\n")
        relive.log("loss", 1)
        time.time_ns = lambda: -5
        time.monotonic_ns = lambda: -5
        os.environ.clear()
        os.chdir("/")
        relive.log("loss", 2), relive.log("text", {"a": 1}), relive.artifact(b"x", name="x")
        sys.stderr = None
        relive.artifact("/proc/self/mem")
        builtins.print = None
        real.write("done " + repr(sys.stdout.getvalue()) + "\\n")
        raise ValueError
        """,
        check=False,
    )

    assert done.returncode == 1
    assert done.stdout == "done ''\nhook\n"
    assert values(script.home, "loss") == [1, 2]
    (record,) = assert_readable(script.home)
    assert (record.outcome, record.error["type"]) == ("failed", "ValueError")


def test_logging_goes_on_to_the_very_edge_of_a_recursion(script) -> None:
    done = script(
        """
        import sys, relive
        def deep(n):
            relive.log("deep", float(n))
            relive.log(f"name {n}", {"n": [n]})
            return deep(n + 1)
        def fits(n, last):
            if n > last - 8:
                relive.log(f"edge {n}", {"n": [n]}), relive.log("edge", n)
            return n if n == last else fits(n + 1, last)
        relive.log("loss", 1)
        try:
            deep(0)
        except RecursionError:
            print("caught")
        print(fits(0, sys.getrecursionlimit() - 4))
        relive.log("loss", 2)
        """
    )

    assert done.stdout == "caught\n996\n"
    assert done.stderr.count("[log-lost]") == 1
    assert values(script.home, "loss") == [1, 2]
    assert len(values(script.home, "deep")) > 900
    assert_readable(script.home)


def test_what_is_logged_while_python_ends_is_kept_or_told_of_and_opens_no_run(script) -> None:
    done = script(
        """
        import atexit, sys
        atexit.register(lambda: relive.log("first", 1))     # before relive is there: done after it has ended
        import relive
        class Late:
            def __del__(self): relive.log("del", 1)
        atexit.register(lambda: relive.log("before", 1))
        relive.log("loss", 1)
        atexit.register(lambda: relive.log("after", 1))
        kept_for_the_end, loop = Late(), iter(relive.loop("step", range(3)))
        next(loop)
        sys.modules["somewhere"] = Late()
        print("done")
        """
    )

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert [values(script.home, name) for name in ("loss", "before", "after")] == [[1], [1], [1]]
    assert done.stderr.count("ReliveWarning: [log-lost] 'first' was logged to a run that has ended") == 1
    assert "Exception ignored" not in done.stderr
    (record,) = assert_readable(script.home)
    assert record.outcome == "finished"


@pytest.mark.long
def test_many_runs_in_one_process_leave_nothing_behind(script) -> None:
    done = script(
        """
        import gc, os, sys, threading, relive
        gc.disable()       # as trainings do that want no pauses
        def state():
            return len(os.listdir("/proc/self/fd")), threading.active_count(), sys.exit, dict(os.environ)
        def sweep(barrier):
            for n in range(5):
                with relive.run(f"trial {n}"):
                    for step in relive.loop("step", range(3)):
                        relive.log("loss", step)
                    barrier.wait()
        with relive.run("warm up"):
            relive.log("loss", 0)
        before, barrier = state(), threading.Barrier(4)
        threads = [threading.Thread(target=sweep, args=(barrier,)) for _ in range(4)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        print(state() == before)
        """
    )

    assert (done.stdout, done.stderr) == ("True\n", "")
    found = assert_readable(script.home)
    assert {record.outcome for record in found} == {"finished"}
    assert len(found) == 21
    assert [record.parent for record in found] == [None] * 21


def test_a_clock_that_jumps_back_changes_nothing(script) -> None:
    done = script(
        """
        import time, relive
        relive.log("loss", 1)
        now = time.time_ns()
        time.time_ns = lambda: now - 10**15
        time.time = lambda: (now - 10**15) / 1e9
        with relive.run("in the past"):
            relive.log("loss", 2)
        relive.log("loss", 3)
        """
    )

    assert done.stderr == ""
    assert sorted(values(script.home, "loss")) == [1, 2, 3]
    assert {r.outcome for r in assert_readable(script.home)} == {"finished"}


def test_a_setting_that_is_wrong_costs_one_warning(script) -> None:
    (script.project / "relive.toml").write_text("no_such_setting = 1\n")

    done = script("import relive\nprint(relive.log('loss', 1))\n")

    assert done.stdout == "1\n"
    assert done.stderr.count("ReliveWarning: [recording-off]") == 1
    assert "unknown setting 'no_such_setting'" in done.stderr
    assert not script.home.exists()


def test_arguments_and_files_whose_names_are_no_text_are_no_trouble(script) -> None:
    name = os.fsdecode(b"data\xff.csv")
    (script.project / name).write_text("1")
    script.write(
        """
        import sys, relive
        relive.log("loss", 1)
        relive.data("train", sys.argv[1]), relive.artifact(sys.argv[1])
        print(len(open(sys.argv[1]).read()))
        """
    )

    done = subprocess.run(
        [sys.executable, "train.py", os.fsencode(name)], cwd=script.project, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "1\n")
    assert values(script.home, "loss") == [1]
    assert assert_readable(script.home)[0].outcome == "finished"


def test_a_home_whose_path_is_no_text_can_be_asked(script, tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"h\xffme")
    script("import relive\nfor step in relive.loop('step', range(3)):\n    relive.log('loss', step)\n",
           env={"RELIVE_HOME": str(home)})  # fmt: skip

    assert values(home, "loss") == [0, 1, 2]
    assert relive.sql("select sum(value) from logs", home=home).iloc[0, 0] == 3
    assert relive.sql("select max(loss) from frame('loss')", home=home).iloc[0, 0] == 2


def test_files_whose_names_are_no_text_are_recorded(script) -> None:
    (script.project / os.fsdecode(b"data\xff.csv")).write_text("1")

    done = script("import os, relive\nrelive.artifact(os.fsdecode(b'data\\xff.csv'))\n")

    assert done.stderr == ""
    assert len(assert_readable(script.home)[0].artifacts) == 1


@pytest.mark.long
def test_the_command_line_works_after_all_that(script) -> None:
    script("import relive\nrelive.log('loss', 1)\nraise ValueError\n", check=False)
    script("import os, relive\nrelive.log('loss', 1)\nos.kill(os.getpid(), 9)\n", check=False)
    (script.home / "runs" / "0123456789ab").mkdir()  # a run that died before its first line

    assert "finished" not in script.relive("runs").stdout
    assert script.relive("doctor").returncode == 0


@pytest.mark.parametrize("at_exit", ["", 'session.at_exit.append(lambda: exec("pass"))'])
def test_ctrl_c_ends_a_script_by_its_signal_whatever_is_loaded_while_the_run_is_closed(script, at_exit: str) -> None:
    source = (
        f'import os, relive\nfrom relive.record import session\nrelive.log("x", 1)\n{at_exit}\nos.kill(os.getpid(), 2)'
    )

    assert script(source, check=False).returncode == -2


NOTICED = {
    "swapped tensors": """
        torch.utils.swap_tensors(net.bias, torch.nn.Parameter(torch.ones(1) * epoch))
        x = net.bias.item()""",
    "weak references": """
        x = weakref.getweakrefcount(net.weight)""",
    "loops without iterations": """
        x = epoch
        for inner in relive.loop("none", []):
            pass""",
}


@pytest.mark.long
@pytest.mark.parametrize("what", NOTICED)
def test_objects_of_the_script_do_not_notice_that_they_are_looked_at(script: Any, without: dict[str, str], what: str):
    source = f"""
import weakref
import numpy as np
import torch
import relive
torch.manual_seed(0)
net, array = torch.nn.Linear(3, 1), np.zeros(3)
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(5)):
{NOTICED[what]}
        print(x)
        relive.log("x", x)
"""
    expected = script(source, env=without)
    found = script(source)

    assert (found.stdout, found.stderr) == (expected.stdout, "")


def test_a_loop_without_iterations_has_its_checkpoint(script: Any):
    done = script("""
        import relive
        with relive.checkpointing(every=1):
            for x in relive.loop("x", []):
                pass
    """)

    assert done.stderr == ""
    assert "incomplete" not in script.relive("runs").stdout
