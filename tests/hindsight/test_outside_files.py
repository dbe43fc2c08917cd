"""Laws of files outside of the project: what a replay reads there is what the run saw, or the value says so."""

from __future__ import annotations

import os
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
