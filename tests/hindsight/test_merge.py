"""Laws of merging: each value gets its context, once, beside what was recorded, completely or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relive.hindsight.merge import RankReplay, merge_replay, next_replay_number
from relive.record import Place
from relive.record.recorder import Recorder
from relive.store import Home, JournalName, list_journals
from relive.store.catalog.replay_overlay import replay_header
from relive.store.chunks import Chunks
from relive.store.journal import Journal, ParsedJournal, line_schema, parse_journal


class Run:
    """A recorded run of three epochs, and segments that replay it."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.home.create()
        self.run = self.home.new_run()
        self._segments = folder
        self._made = 0
        self.recorded = self._journal(self.home.run_folder(self.run), self._original)

    def segment(self, write: Callable[[Recorder], None]) -> ParsedJournal:
        self._made += 1
        folder = self._segments / str(self._made)
        folder.mkdir()
        return self._journal(folder, write, forked_from=self.recorded)

    def merge(
        self, *segments: ParsedJournal, names: tuple[str, ...] = ("x",), others: tuple[ParsedJournal, ...] = ()
    ) -> tuple[int, int]:
        """Merges segments of rank 0, and one of each other rank, which recorded the same."""
        begun = {number: row.iterations for number, row in self.recorded.loops.items()}
        ranks = [RankReplay(0, self.recorded, segments, begun)]
        ranks += [RankReplay(rank, self.recorded, [own], begun) for rank, own in enumerate(others, start=1)]
        merged = merge_replay(self.home, self.run, ranks, names=names, about={"names": names})
        return merged.number, merged.count

    def values(self, number: int = 1, rank: int = 0) -> list[tuple[tuple[str, ...], tuple[int, ...], Any]]:
        name = JournalName.of_replay(number, rank)
        journal = parse_journal(self.home.run_folder(self.run) / name.stem, name, self.recorded)
        text = journal.text if journal.text is not None else [None] * len(journal)
        return [
            (journal.paths[p], tuple(d[: len(journal.paths[p])]), t if t is not None else v)
            for p, d, v, t in zip(
                journal.path.tolist(), journal.dims.tolist(), journal.value.tolist(), text, strict=True
            )
        ]

    def _original(self, recorder: Recorder) -> None:
        loop = recorder.enter_loop("epoch", recorder.root, range(10, 13))
        for iteration in range(3):
            recorder.log("loss", iteration * 0.5, Place(recorder, loop, iteration, recorder.root))
        recorder.leave_loop(loop, 3)

    def _journal(
        self, folder: Path, write: Callable[[Recorder], None], forked_from: ParsedJournal | None = None
    ) -> ParsedJournal:
        begun = {"loops_begun": max(forked_from.loops)} if forked_from is not None else {}
        own = Journal(folder / JournalName(0).stem, **begun)
        own.line(line_schema.RunStarted, run="r", wall_ns=1_000_000_000, clock_ns=0)
        write(Recorder("run", own, Chunks(self.home.chunks)))
        own.close()
        return parse_journal(folder / JournalName(0).stem, JournalName(0), forked_from)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def logs(*values: tuple[int, Any], name: str = "x", loop: int = 2) -> Callable[[Recorder], None]:
    def write(recorder: Recorder) -> None:
        for iteration, value in values:
            recorder.log(name, value, Place(recorder, loop, iteration, recorder.root))

    return write


def test_values_of_all_segments_are_merged(run: Run) -> None:
    assert run.merge(run.segment(logs((0, 1.5), (1, 2.5))), run.segment(logs((2, 3.5)))) == (1, 3)

    assert run.values() == [(("epoch",), (10,), 1.5), (("epoch",), (11,), 2.5), (("epoch",), (12,), 3.5)]


def test_a_place_is_filled_by_one_segment_only(run: Run) -> None:
    run.merge(run.segment(logs((1, 1.5), (1, 2.5))), run.segment(logs((1, 9.0), (2, 3.5))))

    assert [value for *_, value in run.values()] == [1.5, 2.5, 3.5]


def test_only_what_is_asked_for_is_kept(run: Run) -> None:
    assert run.merge(run.segment(logs((0, 1.0), name="loss"))) == (0, 0)
    assert [name.replay for name, _ in list_journals(run.home.run_folder(run.run))] == [0]


def test_what_was_recorded_is_not_overlaid(run: Run) -> None:
    assert run.merge(run.segment(logs((0, 9.0), name="loss")), names=("loss",)) == (0, 0)


def test_iterations_that_the_run_never_began_are_left_out(run: Run) -> None:
    run.merge(run.segment(logs((2, 1.0), (3, 2.0))))

    assert [value for *_, value in run.values()] == [1.0]


@pytest.mark.parametrize("value", [True, 2**62, -(2**63), "text", [1, {"a": None}], 2**80])
def test_values_of_every_kind_come_back(run: Run, value: Any) -> None:
    run.merge(run.segment(logs((0, value))))

    name = JournalName.of_replay(1)
    journal = parse_journal(run.home.run_folder(run.run) / name.stem, name, run.recorded)
    replayed = parse_journal(run._segments / "1" / JournalName(0).stem, JournalName(0), run.recorded)
    assert journal.kind.tolist() == replayed.kind.tolist()
    assert journal.exact.tolist() == replayed.exact.tolist()
    assert (journal.text is None) == (replayed.text is None)
    assert journal.text is None or list(journal.text) == list(replayed.text)  # type: ignore[arg-type]


def test_new_loops_of_each_segment_are_loops_of_their_own(run: Run) -> None:
    def nested(iteration: int) -> Callable[[Recorder], None]:
        def write(recorder: Recorder) -> None:
            place = Place(recorder, 2, iteration, recorder.root)
            loop = recorder.enter_loop("probe", place, range(5, 7))
            for inner in range(2):
                recorder.log("x", iteration + inner / 2, Place(recorder, loop, inner, place))
            recorder.leave_loop(loop, 2)

        return write

    run.merge(run.segment(nested(0)), run.segment(nested(2)))

    assert run.values() == [
        (("epoch", "probe"), (10, 5), 0.0), (("epoch", "probe"), (10, 6), 0.5),
        (("epoch", "probe"), (12, 5), 2.0), (("epoch", "probe"), (12, 6), 2.5),
    ]  # fmt: skip


def test_a_new_loop_that_every_segment_runs_counts_once(run: Run) -> None:
    def prefix(recorder: Recorder) -> None:
        for _ in range(2):
            loop = recorder.enter_loop("layer", recorder.root, range(2))
            for iteration in range(2):
                recorder.log("x", iteration, Place(recorder, loop, iteration, recorder.root))
            recorder.leave_loop(loop, 2)

    assert run.merge(run.segment(prefix), run.segment(prefix)) == (1, 4)


def test_items_of_new_loops_come_along(run: Run) -> None:
    def write(recorder: Recorder) -> None:
        loop = recorder.enter_loop("layer", recorder.root, ["a", "b"])
        recorder.note_item(loop, 0, "conv")
        recorder.log("x", 1.0, Place(recorder, loop, 0, recorder.root))

    run.merge(run.segment(write))

    name = JournalName.of_replay(1)
    journal = parse_journal(run.home.run_folder(run.run) / name.stem, name, run.recorded)
    assert journal.items is not None
    assert "conv" in str(journal.items[0])


def test_each_replay_has_a_number_of_its_own(run: Run) -> None:
    segment = run.segment(logs((0, 1.0)))

    assert [run.merge(segment)[0], run.merge(segment)[0]] == [1, 2]
    assert next_replay_number(run.home.run_folder(run.run)) == 3


def test_a_number_that_another_took_meanwhile_is_passed_over(run: Run) -> None:
    folder = run.home.run_folder(run.run)
    (folder / f"{JournalName.of_replay(1).stem}.lines").write_bytes(b"")  # it died before its slots were written

    number, added = run.merge(run.segment(logs((0, 1.0))))

    assert (number, added) == (2, 1)


def test_each_rank_has_its_values_under_one_number(run: Run) -> None:
    first, second = run.segment(logs((0, 1.0))), run.segment(logs((0, 2.0), (1, 3.0)))

    assert run.merge(first, others=(second,)) == (1, 3)
    assert [value for *_, value in run.values(rank=0)] == [1.0]
    assert [value for *_, value in run.values(rank=1)] == [2.0, 3.0]


def test_a_replay_in_which_only_another_rank_logged_has_a_journal_of_rank_0(run: Run) -> None:
    silent, second = run.segment(logs()), run.segment(logs((0, 2.0)))

    assert run.merge(silent, others=(second, silent)) == (1, 1)
    assert run.values(rank=0) == []
    assert [value for *_, value in run.values(rank=1)] == [2.0]
    assert replay_header(run.home, run.run, 1).names == ["x"]
    assert [name.rank for name, _ in list_journals(run.home.run_folder(run.run)) if name.replay] == [0, 1]


def test_a_number_of_which_any_rank_is_taken_is_passed_over(run: Run) -> None:
    folder = run.home.run_folder(run.run)
    (folder / f"{JournalName.of_replay(1, rank=1).stem}.lines").write_bytes(b"")

    assert run.merge(run.segment(logs((0, 1.0))), others=(run.segment(logs((0, 2.0))),)) == (2, 2)
    assert [value for *_, value in run.values(2, rank=1)] == [2.0]
