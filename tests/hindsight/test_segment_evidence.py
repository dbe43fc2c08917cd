"""Laws of evidence: what was compared before a value, in its iteration and after it decides; each segment by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from relive.hindsight.evidence import SegmentFacts, SegmentVerdicts, judge_segment
from relive.hindsight.verification import compare
from relive.hindsight.workers import StateCheck
from relive.model import Verdict
from relive.record import Place
from relive.record.recorder import Recorder
from relive.store import JournalName
from relive.store.chunks import Chunks
from relive.store.journal import Journal, ParsedJournal, line_schema, parse_journal

LOOP = 2


class Code:
    """Code that uses everything, except paths that begin with `unused`, and reads what it is told."""

    def __init__(
        self, *, clock: str | None = None, reads: Sequence[str] = (), is_seeded: bool = True, reads_files: bool = False
    ) -> None:
        self._clock, self._reads, self.is_seeded, self._reads_files = clock, reads, is_seeded, reads_files
        self.may_draw = True

    def volatile_source(self, name: str) -> str | None:
        return self._clock

    def reads_directly(self, name: str, path: str) -> bool:
        return path.partition(":")[0] in self._reads

    def reads_by_flow(self, name: str, path: str) -> bool:
        return False

    def reads_files(self, name: str) -> bool:
        return self._reads_files

    has_own_seeds = False

    def is_volatile_path(self, path: str) -> bool:
        return path.startswith("timer")

    def is_used(self, path: str) -> bool:
        return not path.startswith("unused")

    def reads_added(self, name: str) -> bool:
        return False

    def is_changed_by_statement(self, path: str) -> bool:
        return path.startswith("cache")


class Judged:
    """A run of five epochs that logs a loss, and its replay, which logs `x` besides."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self.then = [0.5, 0.25, 0.75, 0.125, 0.875]
        self.asked: float | str = 1.0

    def __call__(self, now: Sequence[float | None] | None = None, *checks: StateCheck, **facts: Any) -> SegmentVerdicts:
        recorded = self._journal([("loss", at, value) for at, value in enumerate(self.then)])
        values = self.then if now is None else now
        rows = [
            (name, at, value) for at, loss in enumerate(values) for name, value in (("x", self.asked), ("loss", loss))
        ]
        replayed = self._journal([row for row in rows if row[2] is not None])
        found = compare(recorded, replayed, leave_out=["x"], tolerance=0.0, is_whole=True)
        return judge_segment(
            SegmentFacts(replayed, found, **{"code": Code(), "checks": checks, **facts}), ["x"]
        )  # fmt: skip

    def _journal(self, rows: Sequence[tuple[str, int, Any]]) -> ParsedJournal:
        self._made += 1
        folder = self._folder / str(self._made)
        folder.mkdir()
        own = Journal(folder / JournalName(0).stem)
        own.line(line_schema.RunStarted, run="r", wall_ns=1_000_000_000, clock_ns=0)
        recorder = Recorder("run", own, Chunks(self._folder / "chunks"))
        loop = recorder.enter_loop("epoch", recorder.root, range(5))
        assert loop == LOOP
        for at in range(5):
            for name, _, value in (row for row in rows if row[1] == at):
                recorder.log(name, value, Place(recorder, loop, at, recorder.root))
            own.line(line_schema.IterationReplayed, loop, at)
        own.close()
        return parse_journal(folder / JournalName(0).stem, JournalName(0))


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    return Judged(tmp_path)


def short(found: SegmentVerdicts) -> str:
    """`PRUC`: the first letter of each verdict."""
    return "".join(Verdict(one).name[0] for one in found.verdicts.tolist())


def causes(found: SegmentVerdicts) -> list[str]:
    return [one.cause for one in found.judgements]


def check(place: str, iteration: int, *differences: str, agreed: int = 3) -> StateCheck:
    return StateCheck(LOOP, iteration, place, agreed, list(differences), len(differences))


SILENT = [None] * 5  # the run logged the loss, the replay did not come to it
WEIGHT = "net.weight: other content"


def test_recorded_values_that_agree_reproduce(judged: Judged) -> None:
    assert short(judged()) == "RRRRR"


def test_a_restored_state_says_nothing_about_the_values_before_it(judged: Judged) -> None:
    judged.then = [1.0] * 5  # a constant proves nothing

    assert short(judged(None, check("restored", 2))) == "UUUPP"
    assert short(judged(None, check("restored", 2), check("iteration", 4))) == "UUUPP"
    assert short(judged(None, check("iteration", 1), check("restored", 2))) == "PPPPP"


def test_a_state_at_the_entry_that_differs_is_made_up_for_by_restoring_it(judged: Judged) -> None:
    judged.then = [1.0] * 5

    assert short(judged(None, check("entry", -1, WEIGHT))) == "CCCCC"
    assert short(judged(None, check("entry", -1, WEIGHT), check("restored", -1))) == "PPPPP"


def test_what_differs_contradicts_its_iteration_and_all_later_ones(judged: Judged) -> None:
    assert short(judged([0.5, 0.25, 9.0, 0.125, 0.875])) == "RRCCC"


def test_what_only_the_added_statement_changes_makes_values_unverified(judged: Judged) -> None:
    found = judged(None, check("iteration", 1, "cache.n: other content"))

    assert short(found) == "UUUUU"
    assert causes(found) == ["an added statement itself changes cache.n"]


def test_if_something_else_differs_too_it_contradicts(judged: Judged) -> None:
    assert short(judged(None, check("iteration", 1, "cache.n: other content", WEIGHT))) == "RCCCC"


def test_a_state_that_was_restored_was_changed_by_no_statement(judged: Judged) -> None:
    assert short(judged(None, check("restored", 1, "cache.n: other content"))) == "RRCCC"


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([check("iteration", 2)], "PPPPP"),  # before or after
        ([check("entry", -1)], "PPPPP"),
        ([check("iteration", 2, WEIGHT)], "UUCCC"),  # nothing in iterations 0 and 1 says that they were right
        ([check("iteration", 0), check("iteration", 2, WEIGHT)], "PUCCC"),
        ([check("iteration", 1, WEIGHT), check("restored", 2), check("iteration", 4)], "UCCPP"),
        ([check("restored", 1, WEIGHT), check("restored", 2)], "UUCPP"),
        ([check("iteration", 2, "unused.cache: other content")], "RRRRR"),
        ([check("iteration", 2, "timer.total: other content")], "PPPPP"),
        ([check("iteration", 2, agreed=0)], "UUUUU"),
    ],
)
def test_states_prove_and_contradict(tmp_path: Path, checks: list[StateCheck], expected: str) -> None:
    judged = Judged(tmp_path)
    judged.then = [1.0] * 5  # a constant proves nothing

    assert short(judged(None, *checks)) == expected


def test_a_recorded_value_between_tells_which_side_of_it_went_wrong(judged: Judged) -> None:
    assert short(judged(None, check("iteration", 3, WEIGHT))) == "RRRCC"


def test_the_exact_position_of_a_check_counts(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    judged.then = [1.0] * 5
    late = StateCheck(LOOP, -1, "restored", 3, [WEIGHT], 1, position=1 << 30)

    assert short(judged(None, check("entry", -1), late)) == "PPPPP"


@pytest.mark.parametrize(
    ("facts", "expected", "cause"),
    [
        ({"code": Code(clock="reads the clock (time.time)")}, "UUUUU", "reads the clock (time.time)"),
        ({"unknown": ["tok.t: lib.Tok is opaque"]}, "RRRRR",
         "an object of type lib.Tok is not in the checkpoints (tok.t)"),
        ({"unknown": ["tok.t: lib.Tok is opaque"], "code": Code(reads=["tok.t"]), "is_from_start": False}, "UUUUU",
         "an object of type lib.Tok is not in the checkpoints (tok.t)"),
        ({"unknown": ["tok.t: lib.Tok is opaque"], "code": Code(reads=["tok.t"]), "is_from_start": True}, "RRRRR",
         "an object of type lib.Tok is not in the checkpoints (tok.t)"),
        ({"unknown": ["unused.t: too large"]}, "PPPPP",
         "the recorded state before or after it agrees, and it depends on nothing else"),
        ({"unrestored": ["ema"]}, "UUUUU",
         "ema was not there yet when its state was to be restored; ask again with --from-start"),
        ({"is_same_machine": False}, "RRRRR", "recorded values agree, but no recorded state was compared"),
    ],
)  # fmt: skip
def test_what_is_not_known_limits_the_verdict(judged: Judged, facts: dict[str, Any], expected: str, cause: str) -> None:
    found = judged(None, check("iteration", 4), **facts)

    assert (short(found), causes(found)) == (expected, [cause])


@pytest.mark.parametrize(
    ("at", "is_seeded", "cause"),
    [
        ("entry", False, "the random generators were not seeded before relive began: net.weight: other content at the"
         " entry of the loop"),
        ("entry", True, "the script was not deterministic before its loop: net.weight: other content at the entry of"
         " the loop"),
        ("restored", False, "the checkpoint did not bring back the recorded state: net.weight: other content"),
    ],
)  # fmt: skip
def test_the_cause_is_the_one_that_was_seen(judged: Judged, at: str, is_seeded: bool, cause: str) -> None:
    found = judged(None, check(at, -1, WEIGHT), code=Code(is_seeded=is_seeded))

    assert (short(found), causes(found)) == ("CCCCC", [cause])


def test_a_value_that_reads_a_time_in_the_state_says_so(judged: Judged) -> None:
    found = judged(None, check("iteration", 1, "timer.total: other content"), code=Code(reads=["timer.total"]))

    assert (short(found), causes(found)) == ("UUUUU", ["reads timer.total, which holds times"])


@pytest.mark.parametrize(("text", "expected"), [("<Net object at 0x7f12ab34cd56>", "UUUUU"), ("Net(0xff)", "RRRRR")])
def test_a_text_with_an_address_in_it_is_of_its_process_alone(judged: Judged, text: str, expected: str) -> None:
    judged.asked = text

    assert short(judged()) == expected


def test_more_differences_than_are_listed_count(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    judged.then = [1.0] * 5

    assert short(judged(None, StateCheck(LOOP, 1, "iteration", 3, ["timer.a: other content"], 40))) == "UCCCC"


def test_values_that_were_not_judged_are_unverified(judged: Judged) -> None:
    found = judged()

    assert found.of(found.positions[:1] + 10_000).tolist() == [Verdict.UNVERIFIED]
    assert SegmentVerdicts().of(found.positions[:1]).tolist() == [Verdict.UNVERIFIED]
