"""Laws of verification: every value logged both then and now is compared; differences are reported with context."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relive.hindsight.verification import Comparison, compare
from relive.record import Place
from relive.record.recorder import Recorder
from relive.store import JournalName
from relive.store.chunks import Chunks
from relive.store.journal import Journal, ParsedJournal, line_schema, parse_journal

Write = Callable[[Recorder], None]


@pytest.fixture
def journal(tmp_path: Path) -> Callable[..., ParsedJournal]:
    """Writes a journal with a real recorder, and reads it back."""
    made = iter(range(9))

    def make(write: Write, *, iterations: list[tuple[int, int]] | None = None) -> ParsedJournal:
        folder = tmp_path / str(next(made))
        folder.mkdir()
        own = Journal(folder / JournalName(0).stem)
        own.line(line_schema.RunStarted, run="r", wall_ns=1_000_000_000, clock_ns=0)
        recorder = Recorder("run", own, Chunks(tmp_path / "chunks"))
        write(recorder)
        for loop, iteration in iterations or []:
            own.line(line_schema.IterationReplayed, loop, iteration)
        own.close()
        return parse_journal(folder / JournalName(0).stem, JournalName(0))

    return make


def in_loop(*values: Any, name: str = "loss") -> Write:
    """A loop, and in each iteration a value, or several in a tuple."""

    def write(recorder: Recorder) -> None:
        loop = recorder.enter_loop("epoch", recorder.root, range(len(values)))
        for iteration, value in enumerate(values):
            for one in value if isinstance(value, tuple) else (value,):
                recorder.log(name, one, Place(recorder, loop, iteration, recorder.root))
        recorder.leave_loop(loop, len(values))

    return write


def compared(then: ParsedJournal, now: ParsedJournal, **how: Any) -> Comparison:
    return compare(then, now, **{"leave_out": ["x"], "tolerance": 0.0, "is_whole": True, **how})


def test_equal_values_are_reproduced(journal: Callable[..., ParsedJournal]) -> None:
    values = (0.5, math.nan, math.inf, -0.0, 3, True, None, "text", [1, 2.5])

    found = compared(journal(in_loop(*values)), journal(in_loop(*values)))

    assert (found.reproduced, found.mismatches) == (9, ())


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (0.5, 0.5000000000000001), (0.0, -0.0), (math.nan, 1.0), (1, 1.0), (1, True), ("a", "b"), (1, None),
        ([1, 2], [1, 3]), (2**70, 2**70 + 1),
    ],
)  # fmt: skip
def test_a_value_that_differs_is_reported_with_its_context(
    journal: Callable[..., ParsedJournal], then: Any, now: Any
) -> None:
    found = compared(journal(in_loop(7, then)), journal(in_loop(7, now)))

    (wrong,) = found.mismatches
    assert (wrong.name, wrong.where, found.reproduced) == ("loss", "epoch 1", 1)


def test_on_other_hardware_close_is_enough(journal: Callable[..., ParsedJournal]) -> None:
    then, now = journal(in_loop(1.0, math.nan, 5)), journal(in_loop(1.000001, math.nan, 5))

    assert compared(then, now, tolerance=1e-5).is_exact
    assert not compared(then, now, tolerance=1e-7).is_exact


def test_a_missing_value_is_reported(journal: Callable[..., ParsedJournal]) -> None:
    found = compared(journal(in_loop((1, 2), 3)), journal(in_loop((1,), 3)))

    assert [(one.then, one.now) for one in found.mismatches] == [(2, "nothing")]


def test_an_additional_value_is_reported_unless_the_run_was_cut_short(journal: Callable[..., ParsedJournal]) -> None:
    then, now = journal(in_loop((1,))), journal(in_loop((1, 2)))

    assert [(one.then, one.now) for one in compared(then, now).mismatches] == [("nothing", 2)]
    assert compared(then, now, is_whole=False).is_exact


def test_iterations_that_were_not_visited_are_not_missing(journal: Callable[..., ParsedJournal]) -> None:
    then = journal(in_loop(1, 2, 3))

    def second(recorder: Recorder) -> None:
        loop = recorder.enter_loop("epoch", recorder.root, range(3))
        recorder.log("loss", 2, Place(recorder, loop, 1, recorder.root))

    found = compared(then, journal(second, iterations=[(2, 1)]))

    assert (found.reproduced, found.mismatches) == (1, ())


def test_what_is_asked_for_is_not_compared(journal: Callable[..., ParsedJournal]) -> None:
    found = compared(journal(in_loop(1)), journal(in_loop(2, name="x")))

    assert found.reproduced == 0
    assert [one.name for one in found.mismatches] == ["loss"]


@pytest.mark.parametrize("name", ["time", "epoch_time", "elapsed_s", "samples_per_sec", "gpu/memory", "tokens_per_s"])
def test_differing_clocks_are_no_mismatch(journal: Callable[..., ParsedJournal], name: str) -> None:
    found = compared(journal(in_loop(1.5, name=name)), journal(in_loop(2.5, name=name)))

    assert (found.mismatches, found.volatile) == ((), 1)


@pytest.mark.parametrize("name", ["loss", "sentiment", "val/acc", "estimate", "timely"])
def test_other_names_are_no_clocks(journal: Callable[..., ParsedJournal], name: str) -> None:
    found = compared(journal(in_loop(1.5, name=name)), journal(in_loop(2.5, name=name)))

    assert len(found.mismatches) == 1


def test_values_of_one_name_in_one_context_are_compared_in_order(journal: Callable[..., ParsedJournal]) -> None:
    found = compared(journal(in_loop((1, 2, 3))), journal(in_loop((1, 3, 2))))

    assert found.reproduced == 1
    assert [(one.then, one.now) for one in found.mismatches] == [(2, 3), (3, 2)]


def test_nothing_against_nothing_is_exact(journal: Callable[..., ParsedJournal]) -> None:
    found = compared(journal(lambda _: None), journal(lambda _: None))

    assert (found.reproduced, found.is_exact) == (0, True)


@pytest.mark.parametrize(
    ("values", "proves"),
    [
        ((0.5, 0.25, 0.125), True), ((3, 1, 4), True), ((True, False, True), True),
        ((0.5, 0.5, 0.5), False),  # a constant
        ((0, 1, 2), False), ((10.0, 20.0, 30.0), False),  # counters
        (("a", "b", "c"), False), ((None, None, None), False),
        ((0.001,), False), ((2.350194847,), True),  # logged once: a setting, and a result
    ],
)  # fmt: skip
def test_only_numbers_that_vary_prove_something(
    journal: Callable[..., ParsedJournal], values: tuple[Any, ...], proves: bool
) -> None:
    found = compared(journal(in_loop(*values)), journal(in_loop(*values)))

    assert (found.reproduced, len(found.proofs)) == (len(values), len(values) if proves else 0)


def test_what_differs_is_located(journal: Callable[..., ParsedJournal]) -> None:
    found = compared(
        journal(in_loop(0.5, 0.25, 0.75, 1.5)), journal(in_loop(0.5, 0.3, (), 1.5), iterations=[(2, 0), (2, 1), (2, 2)])
    )

    assert (found.proofs.tolist(), found.differing.tolist(), found.lost) == ([0, 2], [1], ((2, 2),))


@pytest.mark.parametrize(
    ("then", "now", "is_same"),
    [
        ("epoch 3: loss 0.25, 3.1 s", "epoch 3: loss 0.25, 4 s", True),
        ("<Net at 0x7f00>", "<Net at 0x7f88>", True),
        ("saved to /tmp/a1/model.pt at 12:30:01", "saved to /tmp/b2/model.pt at 12:31:44", True),
        ("epoch 3: loss 0.25, 3.1 s", "epoch 3: loss 0.26, 3.1 s", False),
    ],
)
def test_times_and_addresses_in_texts_may_differ(
    journal: Callable[..., ParsedJournal], then: str, now: str, is_same: bool
) -> None:
    assert compared(journal(in_loop(then)), journal(in_loop(now))).is_exact is is_same


def test_a_name_that_is_known_to_be_volatile_may_differ(journal: Callable[..., ParsedJournal]) -> None:
    found = compared(journal(in_loop(0.5, 0.25)), journal(in_loop(0.5, 0.3)), is_volatile=lambda name: name == "loss")

    assert (found.is_exact, found.volatile, len(found.proofs)) == (True, 1, 0)
