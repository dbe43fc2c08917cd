"""Laws of files outside of the project: what a replay reads there is what the run saw, or the value says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import relive
from tests.conftest import Script

LOOP = """
import os
import sys
import time
import relive

OUT = {out!r}
{before}
w = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
with relive.checkpointing(every=1):
    for epoch in relive.loop("epoch", range(6)):
        w = w * 0.9 + 0.1 * epoch
        {inside}
        relive.log("loss", w)
{after}
"""
SAVE = "open(f'{OUT}/best.txt', 'w').write(str(w)) if epoch < 4 else None; time.sleep(0.05)"
APPEND = "open(f'{OUT}/log.txt', 'a').write('x')"
LOAD = "best = float(open(f'{OUT}/best.txt').read())"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def training(out: Path, *, before: str = "", inside: str = "pass", after: str = "") -> str:
    return LOOP.format(out=str(out), before=before, inside=inside, after=after)


def answers(script: Script, name: str = "x", *words: str) -> tuple[list[tuple[float, str]], str]:
    """Asks for a column; returns its values with the verdicts, in the order of the runs, and what was said."""
    told = script.relive("replay", name, "--yes", *words, check=False)
    frame = relive.dataframe(name, sources=True, home=script.home)
    sources = frame[f"{name}_source"].fillna("").str.rpartition(", ")[2]
    return list(zip(frame[name].tolist(), sources.tolist(), strict=True)), told.stdout + told.stderr


def test_what_a_later_run_saved_in_the_same_place_is_not_the_result_of_an_earlier_run(script: Script, out: Path):
    source = training(out, inside=SAVE, after=LOAD)
    script(source, "1.0")
    first = float((out / "best.txt").read_text())
    script(None, "5.0")
    second = float((out / "best.txt").read_text())
    script.write(source + 'relive.log("x", best)\n')

    found, _ = answers(script)

    assert found == [(first, "proven"), (second, "proven")]
    assert float((out / "best.txt").read_text()) == second  # the replay has changed nothing


def test_a_file_that_has_not_changed_since_the_checkpoint_needs_no_replay_from_the_start(script: Script, out: Path):
    source = training(out, inside=SAVE, after=LOAD)
    script(source)
    script.write(source + 'relive.log("x", best)\n')

    found, told = answers(script)

    assert found == [(float((out / "best.txt").read_text()), "proven")]
    assert "from the start" not in told


def test_a_file_that_nobody_fingerprinted_and_that_changed_after_the_run_is_not_trusted(script: Script, out: Path):
    (out / "y.txt").write_text("1.5")
    source = training(out)
    script(source)
    (out / "y.txt").write_text("2.5")
    script.write(source + "relive.log('x', float(open(f'{OUT}/y.txt').read()))\n")

    found, told = answers(script)

    assert [verdict for _, verdict in found] == ["unverified"]
    assert str(out / "y.txt") in told
    assert "the run changed" not in told


def test_a_file_that_is_read_before_the_loop_and_again_after_it(script: Script, out: Path):
    """The entry of the loop is restored as it was, and with it the doubt about the first read ends."""
    (out / "y.txt").write_text("1.5")
    source = training(out, before="k = float(open(f'{OUT}/y.txt').read())", inside="w += k")
    script(source)
    (out / "y.txt").write_text("2.5")
    script.write(source + "relive.log('x', float(open(f'{OUT}/y.txt').read()))\nrelive.log('k', k)\n")

    found, _ = answers(script, "x", "--from-start")

    assert [verdict for _, verdict in found] == ["unverified"]


def test_a_file_that_is_older_than_the_run_is_trusted(script: Script, out: Path):
    (out / "y.txt").write_text("1.5")
    source = training(out)
    script(source)
    script.write(source + "relive.log('x', float(open(f'{OUT}/y.txt').read()))\n")

    assert answers(script)[0] == [(1.5, "proven")]


def test_a_file_that_the_run_read_may_be_copied_anew(script: Script, out: Path):
    (out / "y.txt").write_text("1.5")
    source = training(out, inside="w += float(open(f'{OUT}/y.txt').read())")
    script(source)
    (out / "y.txt").unlink()
    (out / "y.txt").write_text("1.5")
    os.utime(out / "y.txt", (4e9, 4e9))  # not while the run was there
    script.write(source + "relive.log('x', float(open(f'{OUT}/y.txt').read()))\n")

    found, told = answers(script)

    assert found == [(1.5, "proven")], told


@pytest.mark.parametrize("words", [(), ("--from-start",)], ids=["resumed", "from the start"])
def test_a_file_that_the_run_appended_to(script: Script, out: Path, words: tuple[str, ...]):
    source = training(out, before="open(f'{OUT}/log.txt', 'w').write('head')", inside=APPEND)
    script(source)
    script.write(source + "relive.log('x', len(open(f'{OUT}/log.txt').read()))\n")

    assert answers(script, "x", *words)[0] == [(10, "proven")]


def test_a_file_that_was_appended_to_and_never_emptied_is_not_doubled(script: Script, out: Path):
    source = training(out, inside=APPEND)
    script(source)
    script.write(source + "relive.log('x', len(open(f'{OUT}/log.txt').read()))\n")

    [(value, verdict)], _ = answers(script, "x", "--from-start")

    assert verdict == "unverified" or value == 6


def test_a_log_file_that_is_open_over_the_loop(script: Script, out: Path):
    source = training(out, before="log = open(f'{OUT}/log.txt', 'w', buffering=1)", inside="print(epoch, file=log)")
    script(source)
    script.write(source + "relive.log('x', len(open(f'{OUT}/log.txt').read()))\n")

    [(value, verdict)], _ = answers(script)

    assert verdict == "unverified" or value == 12


def test_the_size_of_a_file_is_that_of_the_replay_or_in_doubt(script: Script, out: Path):
    source = training(out, inside=APPEND)
    script(source)
    script.write(source + "relive.log('x', os.path.getsize(f'{OUT}/log.txt'))\n")
    with (out / "log.txt").open("a") as file:
        file.write("somebody else")

    [(value, verdict)], _ = answers(script)

    assert verdict == "unverified" or value == 6


def test_a_folder_that_has_changed_since_is_listed_in_doubt(script: Script, out: Path):
    source = training(out, inside="open(f'{OUT}/ck{epoch}', 'w').write(str(w)); time.sleep(0.05)")
    script(source)
    script.write(source + "relive.log('x', len(os.listdir(OUT)))\n")
    (out / "more").write_text("of another run")

    [(_, verdict)], told = answers(script)

    assert verdict == "unverified"
    assert str(out) in told


def test_a_folder_that_has_not_changed_since_the_checkpoint_is_listed_as_it_was(script: Script, out: Path):
    source = training(out, inside="open(f'{OUT}/ck{epoch}', 'w').write(str(w)) if epoch < 4 else time.sleep(0.05)")
    script(source)
    script.write(source + "relive.log('x', len(os.listdir(OUT)))\n")

    assert answers(script)[0] == [(4, "proven")]


def test_a_relative_path_that_leads_out_of_the_project_is_found(script: Script, out: Path):
    (out / "y.txt").write_text("1.5")
    relative = os.path.relpath(out, script.home.parent)
    source = training(Path(relative), before="k = float(open(f'{OUT}/y.txt').read())", inside=SAVE, after=LOAD)
    script(source)
    script.write(source + 'relive.log("x", best + k)\n')

    assert answers(script)[0] == [(float((out / "best.txt").read_text()) + 1.5, "proven")]


def test_a_temporary_file_of_a_fixed_name(script: Script):
    source = training(
        Path("unused"), before="import tempfile; OUT = tempfile.gettempdir(); open(f'{OUT}/log.txt', 'w').close()",
        inside=APPEND,
    )  # fmt: skip
    script(source)
    script.write(source.replace("\nwith", "\nN = 0\nwith") + "relive.log('x', len(open(f'{OUT}/log.txt').read()))\n")

    [(value, verdict)], _ = answers(script)

    assert verdict == "unverified" or value == 6


# --- files that are opened in C, as libraries do, without Python's knowledge ------------------------------------------

IN_C = """
import ctypes

def c_read(path):
    c, text = ctypes.CDLL(None), ctypes.create_string_buffer(100)
    file = c.open(path.encode(), os.O_RDONLY)
    size = c.read(file, text, 100)
    c.close(file)
    return float(text.raw[:size].decode())

def c_write(path, value):
    c, text = ctypes.CDLL(None), str(value).encode()
    file = c.open(path.encode(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    c.write(file, text, len(text))
    c.close(file)
"""
C_RENAME = """c_write(f'{OUT}/part', w); ctypes.CDLL(None).rename(f'{OUT}/part'.encode(), f'{OUT}/best.txt'.encode())"""
C_SAVE = "c_write(f'{OUT}/best.txt', w) if epoch < 4 else None; time.sleep(0.05)"
C_LOAD = "best = c_read(f'{OUT}/best.txt')"
needs_monitor = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs seccomp, which Linux has")


@needs_monitor
def test_what_a_later_run_saved_in_c_is_not_told_as_proven_of_an_earlier_run(script: Script, out: Path):
    source = training(out, before=IN_C, inside=C_SAVE, after=C_LOAD)
    script(source, "1.0")
    first = float((out / "best.txt").read_text())
    script(None, "5.0")
    second = float((out / "best.txt").read_text())
    script.write(source + 'relive.log("x", best)\n')

    found, told = answers(script)

    assert found[0] == (first, "proven") or found[0][1] == "unverified", told
    assert found[1] == (second, "proven")
    assert float((out / "best.txt").read_text()) == second


@needs_monitor
def test_a_file_that_has_changed_since_the_run_and_is_read_in_c_is_not_trusted(script: Script, out: Path):
    (out / "y.txt").write_text("1.5")
    source = training(out, before=IN_C)
    script(source)
    (out / "y.txt").write_text("2.5")
    script.write(source + "relive.log('x', c_read(f'{OUT}/y.txt'))\n")

    found, told = answers(script)

    assert [verdict for _, verdict in found] == ["unverified"]
    assert str(out / "y.txt") in told


@needs_monitor
def test_a_file_that_is_older_than_the_run_and_is_read_in_c_is_trusted(script: Script, out: Path):
    (out / "y.txt").write_text("1.5")
    source = training(out, before=IN_C)
    script(source)
    script.write(source + "relive.log('x', c_read(f'{OUT}/y.txt'))\n")

    assert answers(script)[0] == [(1.5, "proven")]


@needs_monitor
@pytest.mark.parametrize(
    ("save", "load", "verdict"),
    [
        pytest.param(C_SAVE, C_LOAD, "proven", id="in C"),
        pytest.param(SAVE, C_LOAD, "proven", id="written in Python, read in C"),
        pytest.param(C_RENAME, C_LOAD, "proven", id="renamed in C"),
        # The run was seen reading the file and not writing it, so it counts as an input, which has changed.
        pytest.param(C_SAVE, LOAD, "unverified", id="written in C, read in Python"),
    ],
)
def test_a_replay_writes_and_reads_copies_whoever_opens_them(
    script: Script, out: Path, save: str, load: str, verdict: str
):
    source = training(out, before=IN_C, inside=save, after=load)
    script(source, "1.0")
    first = float((out / "best.txt").read_text())
    (out / "best.txt").write_text("77.0")
    script.write(source + 'relive.log("x", best)\n')

    found, told = answers(script, "x", "--from-start")

    assert found == [(first, verdict)], told
    assert (out / "best.txt").read_text() == "77.0"  # the replay has changed nothing


@needs_monitor
def test_what_a_child_process_reads_counts_as_well(script: Script, out: Path):
    (out / "y.txt").write_text("1.5")
    source = training(out, before="import subprocess")
    script(source)
    (out / "y.txt").write_text("2.5")
    asked = "relive.log('x', float(subprocess.run(['cat', f'{OUT}/y.txt'], capture_output=True).stdout))\n"
    script.write(source + asked)

    found, told = answers(script)

    assert [verdict for _, verdict in found] == ["unverified"], told


@needs_monitor
def test_a_database_outside_of_the_project_is_a_copy(script: Script, out: Path):
    source = training(
        out,
        before="import sqlite3\ndb = sqlite3.connect(f'{OUT}/e.db')\ndb.execute('create table if not exists m(v)')",
        inside="db.execute('insert into m values(?)', (w,)); db.commit()",
    )
    script(source)
    before = (out / "e.db").read_bytes()
    script.write(source + "relive.log('x', db.execute('select count(*) from m').fetchone()[0])\n")

    found, told = answers(script, "x", "--from-start")

    assert [verdict for _, verdict in found] == ["unverified"], told  # it had no rows when the run began
    assert (out / "e.db").read_bytes() == before


SHARED = """
import sqlite3, random
import relive

db = sqlite3.connect("experiments.db")
db.execute("create table if not exists metrics(run, loss)")
run = db.execute("select count(distinct run) from metrics").fetchone()[0]
random.seed(run)
w = 1.0
with relive.checkpointing(every=1):
    for epoch in relive.loop("epoch", range(4)):
        w = 0.7 * w + random.random()
        relive.log("loss", w)
        db.execute("insert into metrics values(?, ?)", (run, w)); db.commit()
"""


def test_a_database_of_the_project_that_runs_share_is_not_taken_for_what_the_run_found(script: Script):
    script(SHARED)
    script(SHARED)
    script.write(SHARED + "        relive.log('x', db.execute('select count(*) from metrics').fetchone()[0])\n")

    found, told = answers(script)

    truth = [1, 2, 3, 4, 5, 6, 7, 8]
    wrong = [pair for pair, right in zip(found, truth, strict=True) if pair[0] != right]
    assert {verdict for _, verdict in wrong} <= {"unverified", "contradicted"}, told


def test_what_a_run_finds_of_an_earlier_one_and_replaces_is_named(script: Script):
    source = """
import os
import relive

start = float(open("last.txt").read()) if os.path.exists("last.txt") else 0.0
w = start
with relive.checkpointing(every=1):
    for epoch in relive.loop("epoch", range(4)):
        w = 0.7 * w + epoch
        relive.log("loss", w)
        with open("last.txt", "r+" if os.path.exists("last.txt") else "w") as file:
            file.write(f"{w:20.15f}")
"""
    script(source)
    script(source)
    script.write(source + "        relive.log('x', start)\n")

    found, told = answers(script)

    first_end = ((0.7 + 2) * 0.7) + 3
    truth = [0.0] * 4 + [float(f"{first_end:20.15f}")] * 4
    wrong = [pair for pair, right in zip(found, truth, strict=True) if pair[0] != right]
    assert {verdict for _, verdict in wrong} <= {"unverified", "contradicted"}, told


def test_a_file_that_added_code_reads_before_the_loop_and_that_has_changed(script: Script, out: Path):
    """No recorded state has the variable, so a state that agrees says nothing about it."""
    (out / "y.txt").write_text("1.5")
    source = training(out)
    script(source)
    (out / "y.txt").write_text("2.5")
    asked = source.replace("w = float(sys", "k = float(open(f'{OUT}/y.txt').read())\nw = float(sys")
    script.write(asked.replace('relive.log("loss", w)', 'relive.log("loss", w)\n        relive.log("x", k * w)'))

    found, told = answers(script)

    assert {verdict for _, verdict in found} == {"unverified"}, told


def test_a_file_that_is_read_and_written_through_one_handle(script: Script, out: Path):
    source = training(
        out, before="open(f'{OUT}/n.txt', 'w').write('0')",
        inside="f = open(f'{OUT}/n.txt', 'r+'); n = int(f.read()) + 1; f.seek(0); f.write(str(n)); f.close()",
    )  # fmt: skip
    script(source)
    script.write(source.replace('relive.log("loss", w)', 'relive.log("loss", w)\n        relive.log("x", n)'))

    found, told = answers(script, "x", "epoch >= 3")

    right = [at + 1 for at in range(6)]
    told_wrong = [
        pair for pair, truth in zip(found, right, strict=True) if pair[0] not in (truth,) and pair[0] == pair[0]
    ]
    assert {verdict for _, verdict in told_wrong} <= {"unverified", "contradicted"}, told


@needs_monitor
def test_folders_that_processes_of_the_replay_make_are_its_own(script: Script, out: Path):
    made = "multiprocessing.get_context('fork').Process(target=lambda: os.listdir(tempfile.mkdtemp(dir=OUT)))"
    source = training(
        out, before="import multiprocessing, tempfile", after=f"one = {made}\none.start()\none.join()"
    )  # fmt: skip
    script(source)
    script.write(source + "relive.log('x', w)\n")

    found, told = answers(script)

    assert [verdict for _, verdict in found] == ["proven"], told
