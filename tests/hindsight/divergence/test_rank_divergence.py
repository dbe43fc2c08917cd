"""Which of several ranks went astray: the majority decides, and what ranks may have of their own does not count."""

from __future__ import annotations

from typing import Any

import pytest

from relive.hindsight.divergence.rank_divergence import RankDivergence, compare_ranks
from relive.hindsight.divergence.run_trace import ENTRY, ITERATION, RankTrace, StateMoment
from relive.store.home import JournalName
from relive.store.journal import ROOT, Journal, line_schema, parse_journal

torch = pytest.importorskip("torch")


@pytest.fixture
def journal(tmp_path: Any) -> Any:
    """A journal without any loop: all moments are outside of loops."""
    written = Journal(tmp_path / "0")
    written.line(line_schema.RunStarted, wall_ns=1, clock_ns=1, run="a" * 12)
    written.close()
    return parse_journal(tmp_path / "0", JournalName(0))


def state(**tensors: Any) -> Any:
    from relive.checkpoint.graph import Observer, Roots

    observer = Observer()
    observer.begin(Roots(tensors, has_modules=False), elapsed_s=60.0)
    return observer.start


def parameter(number: float) -> Any:
    return torch.nn.Parameter(torch.tensor([1.0, number]))


def rank(number: int, journal: Any, *states: Any, digests: tuple[str, ...] = ()) -> RankTrace:
    moments = []
    for at, one in enumerate(states):
        place, iteration = (ENTRY, -1) if not at else (ITERATION, at - 1)
        where = "the entry" if not at else f"epoch={at - 1}"
        moments.append(StateMoment(ROOT, iteration, place, where, float(at), read=lambda one=one: one))
    for at, digest in enumerate(digests):
        moments.append(StateMoment(ROOT, at, ITERATION, f"epoch={at}", at + 0.5, digest, 1))
    return RankTrace("a" * 12, number, journal, sorted(moments, key=lambda moment: moment.order))


def compared(*ranks: RankTrace) -> RankDivergence:
    return compare_ranks(None, ranks)  # type: ignore[arg-type]


def test_the_rank_that_differs_from_most_went_astray(journal: Any) -> None:
    start, right, wrong = (state(w=parameter(number)) for number in (0.0, 1.0, 1.5))

    found = compared(*(rank(at, journal, start, wrong if at == 0 else right) for at in range(3))).parted

    assert found is not None
    assert (found.astray, found.where, found.leaf, found.last_agreed) == ((0,), "epoch=0", "w", "the entry")


def test_tensors_that_are_not_trained_may_be_each_ranks_own(journal: Any) -> None:
    def of(number: int) -> Any:
        return state(w=parameter(1.0), batch=torch.tensor([float(number)]))

    found = compared(*(rank(at, journal, of(at), of(at + 5)) for at in range(2)))

    assert found.parted is None
    assert (found.parameters, found.moments) == (1, 2)


def test_parameters_that_differ_from_the_beginning_are_left_out_and_told(journal: Any) -> None:
    found = compared(*(rank(at, journal, state(w=parameter(at)), state(w=parameter(at))) for at in range(2)))

    assert found.parted is None
    assert found.is_nothing
    assert "split between them" in found.notes[0]


def test_digests_tell_the_iteration_and_the_next_checkpoint_the_parameter(journal: Any) -> None:
    start, same, right, wrong = (state(w=parameter(number)) for number in (0.0, 1.0, 2.0, 2.5))

    found = compared(
        rank(0, journal, start, same, right, digests=("a", "b")),
        rank(1, journal, start, same, wrong, digests=("a", "c")),
    ).parted

    assert found is not None
    assert (found.where, found.leaf, found.last_agreed) == ("epoch=1", "w", "epoch=0")
    assert found.groups == ((0,), (1,))


def test_digests_that_differ_while_the_parameters_agree_are_of_buffers(journal: Any) -> None:
    start, same = state(w=parameter(0.0)), state(w=parameter(1.0))

    found = compared(*(rank(at, journal, start, same, same, digests=(f"{at}", f"{at}")) for at in range(2)))

    assert found.parted is None
    assert any("buffers of the ranks" in note for note in found.notes)
