"""Laws of verdicts in tables: the best replay counts, doubtful values are marked, contradicted ones are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import relive
from relive.cli.main import main
from relive.hindsight.evidence import SegmentVerdicts
from relive.hindsight.merge import RankReplay, merge_replay
from relive.model import Verdict
from relive.query import HomeRuns
from relive.record import Place
from relive.record.recorder import Recorder
from relive.store import Home, JournalName
from relive.store.catalog import Index, list_replays
from relive.store.chunks import Chunks
from relive.store.journal import Journal, ParsedJournal, line_schema, parse_journal

P, R, U, C = Verdict.PROVEN, Verdict.REPRODUCED, Verdict.UNVERIFIED, Verdict.CONTRADICTED


class Replayed:
    """A recorded run of three epochs, and replays of it that log `x` (and `y`) with given verdicts."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.home.create()
        self.run = self.home.new_run()
        self._folder, self._made = folder, 0
        self._recorded = self._journal(self.home.run_folder(self.run), {"loss": [0.5, 0.25, 0.125]})

    def replay(self, *values: float, verdicts: Sequence[Verdict], name: str = "x", **about: object) -> None:
        self._made += 1
        folder = self._folder / str(self._made)
        folder.mkdir()
        segment = self._journal(folder, {name: values}, self._recorded)
        judged = SegmentVerdicts(segment.seq.astype(np.int64), np.asarray(verdicts, np.uint8))
        rank = RankReplay(0, self._recorded, [segment], {2: 3}, [judged])
        merge_replay(
            self.home, self.run, [rank], names=[name], about={"names": [name], **about},
            causes={(name, U): ["reads the clock (time.time)"]},
        )  # fmt: skip

    def table(self, *names: str, **how: object) -> list[list[object]]:
        frame = relive.dataframe(*(names or ("x",)), home=self.home.path, **how)
        return frame.drop(columns=["run", "tstamp"]).to_numpy().tolist()

    def _journal(
        self, folder: Path, values: Mapping[str, Sequence[float]], forked_from: ParsedJournal | None = None
    ) -> ParsedJournal:
        own = Journal(folder / JournalName(0).stem)
        own.line(line_schema.RunStarted, run="r", wall_ns=1_000_000_000, clock_ns=0)
        recorder = Recorder("run", own, Chunks(self.home.chunks))
        loop = recorder.enter_loop("epoch", recorder.root, range(3))
        for name, logged in values.items():
            for at, value in enumerate(logged):
                recorder.log(name, value, Place(recorder, loop, at, recorder.root))
        recorder.leave_loop(loop, 3)
        own.line(line_schema.RunEnded, outcome="finished")
        own.close()
        return parse_journal(folder / JournalName(0).stem, JournalName(0), forked_from)


@pytest.fixture
def run(tmp_path: Path) -> Replayed:
    return Replayed(tmp_path)


def test_a_worse_verdict_never_replaces_a_better_one(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[P, R, U])
    run.replay(10.0, 20.0, 30.0, verdicts=[C, U, R])

    assert run.table() == [[0, 1.0], [1, 2.0], [2, 30.0]]


def test_of_two_equal_verdicts_the_newer_counts(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[P, R, R])
    run.replay(10.0, 20.0, 30.0, verdicts=[P, R, P])

    assert run.table() == [[0, 10.0], [1, 20.0], [2, 30.0]]


def test_contradicted_values_are_left_out_unless_asked_for(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[R, C, C])

    frame = relive.dataframe("x", home=run.home.path)

    assert (frame["x"].tolist(), list(frame.columns)[-1]) == ([1.0], "x")
    assert frame.attrs == {"verdicts": {"x": {"reproduced": 1}}, "contradicted": {"x": 2}}
    assert run.table(contradicted=True) == [[0, 1.0, "reproduced"], [1, 2.0, "contradicted"], [2, 3.0, "contradicted"]]
    assert run.table(replays="all") == [[0, 1.0]]


def test_doubtful_values_have_a_column_of_verdicts_and_keep_their_type(run: Replayed) -> None:
    run.replay(1.0, 2.0, verdicts=[P, U])

    frame = relive.dataframe("x", "loss", home=run.home.path)

    assert frame["x"].dtype == frame["loss"].dtype == np.float64
    assert frame["x_verdict"].fillna("").tolist() == ["proven", "unverified", ""]
    assert frame.attrs["verdicts"] == {"x": {"proven": 1, "unverified": 1}}


def test_trusted_values_have_no_further_column(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[P, R, R])

    assert run.table(sources=True) == [
        [0, 1.0, "replay 1, proven"], [1, 2.0, "replay 1, reproduced"], [2, 3.0, "replay 1, reproduced"]
    ]  # fmt: skip
    assert run.table("loss", sources=True)[0] == [0, 0.5, "recorded"]


def test_a_condition_may_be_about_verdicts(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[P, U, R])

    assert run.table(where="x_verdict = 'unverified'") == [[1, 2.0, "unverified"]]
    assert run.table(where="x > 2.5") == [[2, 3.0]]
    assert run.table("loss", where="x < 2.5") == [[0, 0.5], [1, 0.25]]


def test_older_journals_have_one_verdict_for_all_values(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[P, P, P])
    stem = run.home.run_folder(run.run) / f"{JournalName.of_replay(1).stem}.lines"
    for word, expected in (("exact", "reproduced"), ("nothing to compare", "unverified")):
        lines = stem.read_bytes().splitlines(keepends=True)
        old = [json.loads(line) for line in lines if b'"k":"verdict"' not in line and b'"k":"seal"' not in line]
        for line in old:
            line |= {"v": 1} | ({"verdict": word} if "verdict" in line else {})
            del line["sum"]
        stem.write_text("".join(json.dumps(line) + "\n" for line in old))
        index = Index(run.home)
        index.rebuild()
        index.close()

        assert {row[2] for row in run.table(sources=True)} == {f"replay 1, {expected}"}
        stem.write_bytes(b"".join(lines))


def test_values_of_a_replay_whose_first_line_is_damaged_are_unverified(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[P, P, P])
    stem = run.home.run_folder(run.run) / f"{JournalName.of_replay(1).stem}.lines"
    stem.write_bytes(stem.read_bytes().replace(b'"verdict":"proven"', b'"verdict":"proved"', 1))
    Index(run.home).rebuild()

    assert {row[2] for row in run.table(sources=True)} == {"replay 1, unverified"}


def test_the_summary_of_a_name_is_of_its_best_replay_without_contradicted_values(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[P, P, C])
    run.replay(10.0, 20.0, 30.0, verdicts=[P, U, U])
    run.replay(7.0, verdicts=[C], name="z")

    found = {one.name: one for one in HomeRuns(Index(run.home)).get_run(run.run).metrics}

    assert (found["x"].count, found["x"].highest, found["x"].verdict) == (2, 2.0, P)
    assert (found["loss"].verdict, "z" in found) == (Verdict.RECORDED, False)


def test_replays_are_listed_with_their_verdicts_and_causes(run: Replayed) -> None:
    run.replay(1.0, 2.0, verdicts=[P, U], causes=["x reads the clock (time.time)"])

    assert list_replays(run.home, run.run) == [
        {
            "replay": 1, "names": ["x"], "verdict": "unverified", "verdicts": {"x": {"proven": 1, "unverified": 1}},
            "causes": ["x reads the clock (time.time)"], "resume": "",
        }
    ]  # fmt: skip


def test_the_journal_says_which_values_have_which_verdict_and_why(run: Replayed) -> None:
    run.replay(1.0, 2.0, 3.0, verdicts=[U, P, U])
    name = JournalName.of_replay(1)
    parsed = parse_journal(run.home.run_folder(run.run) / name.stem, name, None)
    lines = line_schema.lines_of(line_schema.VerdictGiven, parsed.lines)

    first, second, third = parsed.seq.tolist()
    assert [(line.verdict, line.slots, line.why or []) for line in lines] == [
        ("proven", [(second, second)], []),
        ("unverified", [(first, first), (third, third)], ["reads the clock (time.time)"]),
    ]


def test_sql_knows_the_verdict_of_each_value(run: Replayed) -> None:
    run.replay(1.0, 2.0, verdicts=[P, C])

    found = relive.sql("select name, verdict from logs order by name, seq", home=run.home.path)

    assert found.fillna("").to_numpy().tolist() == [["loss", ""]] * 3 + [["x", "proven"], ["x", "contradicted"]]


def test_the_command_line_marks_doubtful_values_and_explains_the_mark(run: Replayed) -> None:
    run.replay(1.5, 2.5, 3.5, verdicts=[P, U, C])

    def shown(*words: str) -> tuple[list[str], str]:
        result = CliRunner().invoke(main, [*words, "--home", str(run.home.path)], catch_exceptions=False)
        return result.stdout.splitlines(), result.stderr

    rows, told = shown("dataframe", "x")
    assert [row.split()[-2:] for row in rows[1:]] == [["0", "1.5"], ["2.5", "?"]]
    assert "? unverified: replayed, and nothing shows" in told
    assert "x: 1 contradicted values are left out; --contradicted shows them" in told
    rows, told = shown("dataframe", "x", "--contradicted")
    assert [row.split()[-2:] for row in rows[1:]] == [["0", "1.5"], ["2.5", "?"], ["3.5", "✗"]]
    assert "✗ contradicted: replayed, and the record differs" in told
    rows, told = shown("dataframe", "loss")
    assert "?" not in "".join(rows) + told
    rows, _ = shown("show", run.run)
    assert any(row.split()[:3] == ["x", "2.5", "?"] for row in rows)
    assert any("x: 1 proven, 1 unverified, 1 contradicted" in row for row in rows)
    rows, _ = shown("leaderboard", "x")
    assert any("2.5 ?" in row for row in rows)
