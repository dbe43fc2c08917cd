"""The history of a run, read from its journals: that of each rank, and the profile common to all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from relive.errors import NotFound
from relive.hindsight.analysis import ImportRecord
from relive.hindsight.plan.horizon import Horizon, describe_position, read_horizon
from relive.hindsight.plan.rank_alignment import RankMapping, align_ranks
from relive.hindsight.plan.run_profile import RunProfile, read_profile
from relive.hindsight.plan.segments import Segment
from relive.model import FAILED, FINISHED, INTERRUPTED, KILLED, PRUNED, RUNNING, RunRecord
from relive.record.process import launches_rank
from relive.store import Home
from relive.store.chunks import list_kept_checkpoints
from relive.store.journal import ParsedJournal, line_schema, parse_run, recorded_variables


@dataclass(frozen=True, slots=True, eq=False)
class RankHistory:
    """One rank of a run. Without a mapping, the plan is in its own loop numbers."""

    number: int
    recorded: ParsedJournal
    profile: RunProfile
    mapping: RankMapping | None = None
    horizon: Horizon | None = None  # what of it is not shown to be complete; None: nothing

    def translate(self, segment: Segment) -> Segment:
        return self.mapping.translate(segment) if self.mapping is not None else segment

    def main_loops(self, common: RunProfile) -> dict[int, int]:
        """Maps its numbers of the main loops to those of the common profile."""
        canonical = [loop.number for loop in common.mains]
        return {self.mapping.loops[number] if self.mapping is not None else number: number for number in canonical}

    @property
    def argv(self) -> list[str]:
        return list((self._start.argv if self._start else None) or [""])

    @property
    def variables(self) -> dict[str, str]:
        """The recorded environment variables."""
        return recorded_variables(self._start, self.recorded.lines)

    @property
    def variable_names(self) -> frozenset[str] | None:
        """The names of all environment variables that were set; None if they were not recorded."""
        names = ((self._start.environment if self._start else None) or {}).get("variable_names")
        return frozenset(map(str, names)) if names else None

    @property
    def args(self) -> dict[str, Any]:
        return {line.name: line.value for line in line_schema.lines_of(line_schema.Arg, self.recorded.lines)}

    @property
    def is_finished(self) -> bool:
        return self._end is not None and self._end.outcome in (FINISHED, PRUNED)

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, rather than being killed."""
        return self._end is not None

    @property
    def error(self) -> dict[str, Any] | None:
        """The error that ended it."""
        return msgspec.to_builtins(self._end.error) if self._end is not None else None

    @property
    def nth(self) -> int:
        """Which `with relive.run()` block of its process recorded it, counted from 1; 0 for none."""
        return int((self._start.nth if self._start else 0) or 0)

    @property
    def _start(self) -> line_schema.RunStarted | None:
        header = self.recorded.header
        return header if isinstance(header, line_schema.RunStarted) else None

    @property
    def _end(self) -> line_schema.RunEnded | None:
        return next(reversed(line_schema.lines_of(line_schema.RunEnded, self.recorded.lines)), None)


@dataclass(frozen=True, slots=True, eq=False)
class RunHistory:
    """The ranks of a run, the canonical one first, and the profile that a plan is made from."""

    ranks: Sequence[RankHistory]
    journals: Sequence[ParsedJournal]  # of all ranks: recorded, of child processes, and of replays
    profile: RunProfile

    @property
    def recorded(self) -> ParsedJournal:
        """The journal of the canonical rank."""
        return self.ranks[0].recorded

    @property
    def width(self) -> int:
        """The number of ranks, each replayed by a process of its own."""
        return len(self.ranks)

    @property
    def is_cut_short(self) -> bool:
        """Whether a rank ended before its end."""
        return any(rank.horizon is not None and not rank.horizon.is_whole for rank in self.ranks)

    @property
    def endless_loops(self) -> frozenset[tuple[str, ...]]:
        """The outermost loops in which a run ended, by their path, if the run entered none of them a second time."""
        rank = self.ranks[0]
        if rank.horizon is None or rank.horizon.is_whole:
            return frozenset()
        loops = rank.recorded.loops
        outermost = [loops[number] for number in rank.horizon.last if loops[number].parent not in loops]
        entries = Counter(row.path for row in loops.values())
        return frozenset(row.path for row in outermost if entries[row.path] == 1)

    @property
    def threads(self) -> int | None:
        """How many threads the numeric library of the run used, when it was last recorded."""
        begun = line_schema.lines_of(line_schema.CheckpointingBegun, self.recorded.lines)
        return next((line.threads for line in reversed(begun) if line.threads), None)

    @property
    def imports(self) -> ImportRecord | None:
        """The files of the project that its ranks imported; None if one of them did not record it."""
        lines = [line_schema.lines_of(line_schema.ModulesImported, rank.recorded.lines) for rank in self.ranks]
        if not all(lines):
            return None
        files = frozenset(file for one in lines for line in one for file in line.files)
        return ImportRecord(files, is_complete=all(rank.has_ended for rank in self.ranks))

    @property
    def notes(self) -> list[str]:
        """Remarks for the user about a plan for several ranks."""
        mapping = self.ranks[0].mapping
        if mapping is None:
            return []
        notes = [f"its {self.width} ranks are replayed together, by as many workers"]
        own, common = self.ranks[0].profile.checkpoints, len(mapping.manifests)
        if common < own:
            notes.append(f"{own - common} of its {own} checkpoints are not used, since not all ranks have them")
        return notes


def describe_ending(record: RunRecord, history: RunHistory) -> str:
    """Says how and where a run ended before its end, or where an error left a loop: "was killed in epoch 15"."""
    rank = history.ranks[0]
    if rank.horizon is None:
        return "finished"
    where = describe_position(rank.recorded, rank.horizon)
    place = f"in {where}" if where else "outside of loops"
    error = (record.error or {}).get("type")
    if record.outcome in (FINISHED, PRUNED):
        return f"met an error {place}"
    ways = {KILLED: "was killed", RUNNING: "is running", INTERRUPTED: "was interrupted"}
    failed = f"failed ({error})" if error else FAILED
    # Earlier releases recorded an interrupted run as failed.
    return f"{'was interrupted' if error == 'KeyboardInterrupt' else ways.get(record.outcome, failed)} {place}"


def read_history(home: Home, record: RunRecord, *, without: Collection[str] = ()) -> RunHistory:
    """Reads the history of a run. Checkpoints whose manifest is in `without` are ignored."""
    journals = parse_run(home, record.run)
    recorded = {journal.journal.rank: journal for journal in journals if not journal.journal.process}
    _refuse_missing(record, recorded)
    ranks = [
        _with_horizon(
            RankHistory(number, recorded[number], _read_rank_profile(home, record.run, recorded[number], without))
        )
        for number in range(record.world_size)
    ]
    if len(ranks) == 1:
        return RunHistory(ranks, journals, ranks[0].profile)
    for rank in ranks:
        _refuse_unlaunched(rank, record.world_size)
    common, mappings = align_ranks([rank.profile for rank in ranks])
    ranks = [replace(rank, mapping=mapping) for rank, mapping in zip(ranks, mappings, strict=True)]
    return RunHistory(ranks, journals, common)


def _with_horizon(rank: RankHistory) -> RankHistory:
    return replace(rank, horizon=read_horizon(rank.recorded, is_finished=rank.is_finished))


def _read_rank_profile(home: Home, run: str, journal: ParsedJournal, without: Collection[str]) -> RunProfile:
    rows = [row for row in list_kept_checkpoints(home.run_folder(run), [journal]) if row.manifest not in without]
    return read_profile(run, journal, rows, start_up_s=_start_up_s(journal))


def _refuse_missing(record: RunRecord, recorded: Mapping[int, ParsedJournal]) -> None:
    missing = [str(number) for number in range(record.world_size) if number not in recorded]
    if missing:
        which = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {', '.join(missing)} are"
        raise NotFound(
            f"it was recorded by {record.world_size} ranks, and the journal of {which} not in this home; copy what the"
            " other machines recorded into the run's folder, and record with a home that all machines share; ranks"
            " that never call relive need one call, such as relive.loop"
        )


def _refuse_unlaunched(rank: RankHistory, world_size: int) -> None:
    """Ranks are launched through the variables of their launcher; ranks that a script starts itself have none."""
    if not launches_rank(rank.variables, rank.number, world_size):
        raise NotFound(
            f"its {world_size} ranks were started by the script itself, or by a launcher whose variables were not"
            " recorded; record with torchrun, srun or mpirun to replay"
        )


def _start_up_s(journal: ParsedJournal) -> float:
    """How long the process ran before its first verb; a second if that is unknown."""
    header = journal.header
    if isinstance(header, line_schema.RunStarted) and header.entry is not None and header.entry.kind == "notebook":
        return 1.0  # a kernel waits for its user most of the time
    return float((header.since_start_s if isinstance(header, line_schema.RunStarted) else None) or 1.0)
