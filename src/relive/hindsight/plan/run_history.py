"""The journals of a run as a replay needs them: the course of each rank, and that of all ranks together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relive.errors import NotFound
from relive.hindsight.plan.rank_alignment import RankTerms, line_up
from relive.hindsight.plan.run_profile import Profile, read_profile
from relive.hindsight.plan.segments import Segment
from relive.model import FINISHED, RunRecord
from relive.record.process import makes_rank
from relive.store import Home
from relive.store.chunks import kept_checkpoints
from relive.store.journal import ParsedJournal, parse_run


@dataclass(frozen=True, slots=True, eq=False)
class RankHistory:
    """One rank of a run, and what it calls the parts of a plan; without terms of its own the plan is in its words."""

    number: int
    recorded: ParsedJournal
    profile: Profile
    terms: RankTerms | None = None

    def own(self, segment: Segment) -> Segment:
        return self.terms.own(segment) if self.terms is not None else segment

    def mains(self, together: Profile) -> dict[int, int]:
        """Its numbers of main loops, with those that the plan has for them."""
        canonical = [loop.number for loop in together.mains]
        return {self.terms.loops[number] if self.terms is not None else number: number for number in canonical}

    @property
    def argv(self) -> list[str]:
        return list(self.recorded.header.get("argv") or [""])

    @property
    def variables(self) -> dict[str, str]:
        """Those of its environment that were recorded."""
        return dict((self.recorded.header.get("environment") or {}).get("variables") or {})

    @property
    def args(self) -> dict[str, Any]:
        return {line["name"]: line["value"] for line in self.recorded.lines if line.get("k") == "arg"}

    @property
    def is_finished(self) -> bool:
        return self._end.get("outcome") == FINISHED

    @property
    def error(self) -> dict[str, Any] | None:
        """What ended it."""
        return self._end.get("error")

    @property
    def _end(self) -> Mapping[str, Any]:
        return next((line for line in reversed(self.recorded.lines) if line.get("k") == "end"), {})


@dataclass(frozen=True, slots=True, eq=False)
class RunHistory:
    """How a run went: its ranks, the canonical one first, and what a plan is made from."""

    ranks: Sequence[RankHistory]
    journals: Sequence[ParsedJournal]  # of all ranks: recorded, of child processes, and of replays
    profile: Profile

    @property
    def recorded(self) -> ParsedJournal:
        """By the canonical rank."""
        return self.ranks[0].recorded

    @property
    def width(self) -> int:
        """How many processes replay it together."""
        return len(self.ranks)

    @property
    def threads(self) -> int | None:
        """How many threads the numeric library of the run used, when it was last recorded."""
        lines = [line for line in self.recorded.lines if line.get("k") == "checkpointing" and line.get("threads")]
        return int(lines[-1]["threads"]) if lines else None

    @property
    def notes(self) -> list[str]:
        """What several ranks mean for a plan."""
        terms = self.ranks[0].terms
        if terms is None:
            return []
        told = [f"its {self.width} ranks are replayed together, by as many workers"]
        own, common = self.ranks[0].profile.checkpoints, len(terms.manifests)
        if common < own:
            told.append(f"{own - common} of its {own} checkpoints are not used, since not all ranks have them")
        return told


def read_history(home: Home, record: RunRecord, *, without: Collection[str] = ()) -> RunHistory:
    """The course of a run. Checkpoints whose manifest is in `without` are taken as if they had never been."""
    journals = parse_run(home, record.run)
    own = {journal.journal.rank: journal for journal in journals if not journal.journal.process}
    _refuse_missing(record, own)
    ranks = []
    for number in range(record.world_size):
        rows = [
            row for row in kept_checkpoints(home.run_folder(record.run), [own[number]]) if row.manifest not in without
        ]
        start_up_s = float(own[number].header.get("since_start_s") or 1.0)
        ranks.append(
            RankHistory(number, own[number], read_profile(record.run, own[number], rows, start_up_s=start_up_s))
        )
    if len(ranks) == 1:
        return RunHistory(ranks, journals, ranks[0].profile)
    for rank in ranks:
        _refuse_unlaunched(rank, record.world_size)
    together, terms = line_up([rank.profile for rank in ranks])
    ranks = [RankHistory(rank.number, rank.recorded, rank.profile, own) for rank, own in zip(ranks, terms, strict=True)]
    return RunHistory(ranks, journals, together)


def _refuse_missing(record: RunRecord, own: Mapping[int, ParsedJournal]) -> None:
    missing = [str(number) for number in range(record.world_size) if number not in own]
    if missing:
        which = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {', '.join(missing)} are"
        raise NotFound(
            f"it was recorded by {record.world_size} ranks, and the journal of {which} not in this home; copy what the"
            " other machines recorded into the run's folder, and record with a home that all machines share; ranks"
            " that never call relive need one call, such as relive.loop"
        )


def _refuse_unlaunched(rank: RankHistory, world_size: int) -> None:
    """Ranks are started again as their launcher did it, by variables; those that a script starts have none."""
    if not makes_rank(rank.variables, rank.number, world_size):
        raise NotFound(
            f"its {world_size} ranks were started by the script itself, or by a launcher whose variables were not"
            " recorded; record with torchrun, srun or mpirun to replay"
        )
