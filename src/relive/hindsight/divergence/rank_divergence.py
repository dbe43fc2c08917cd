"""Which rank of a run went astray: the ranks' parameters, which must stay the same, compared at every moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from relive.checkpoint.graph import GraphState
from relive.errors import ReliveError
from relive.hindsight.divergence.run_differences import RunDifferences, differences_of_ranks
from relive.hindsight.divergence.run_trace import ENTRY, RankTrace, StateMoment, match_loops, read_traces, require_known
from relive.model import RunRecord
from relive.store import Home
from relive.store.catalog import Index, find_run

Parameters = Mapping[str, int]  # the hash of each, by its path


@dataclass(frozen=True, slots=True)
class RankParting:
    """The first moment at which the parameters of the ranks are not the same."""

    where: str
    leaf: str
    groups: tuple[tuple[int, ...], ...]  # ranks that agree with each other, the most first
    astray: tuple[int, ...]  # ranks that differ from most; none if there is no majority
    leaves: tuple[str, ...] = ()
    iteration: int = -1
    last_agreed: str = ""
    between: int | None = None


@dataclass(slots=True)
class RankDivergence:
    """The comparison of the ranks of one run."""

    record: RunRecord
    ranks: tuple[int, ...]
    parted: RankParting | None = None
    parameters: int = 0  # that all ranks have, and that were the same at first
    moments: int = 0
    before: dict[int, RunDifferences] = field(default_factory=dict)  # by rank, compared with the first one
    notes: list[str] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        return not self.moments

    def to_json(self) -> dict[str, Any]:
        verdict = "parted" if self.parted else "nothing to compare" if self.is_nothing else "identical"
        return {
            "verdict": verdict, "run": self.record.run, "ranks": list(self.ranks),
            "parted": asdict(self.parted) if self.parted else None,
            "compared": {"parameters": self.parameters, "moments": self.moments},
            "before": {str(rank): asdict(found) for rank, found in self.before.items()}, "notes": self.notes,
        }  # fmt: skip


def diverge_ranks(home: Home, run: str) -> RankDivergence:
    """Compares the ranks of a run with each other."""
    record = find_run(Index(home).runs(), run).record
    traces = require_known(read_traces(home, record.run), record.run)
    if len(traces) < 2:
        raise ReliveError(f"run {record.run[:8]} has one rank; name two runs to compare them with each other")
    return compare_ranks(record, list(traces.values()))


def compare_ranks(record: RunRecord, traces: Sequence[RankTrace]) -> RankDivergence:
    """Compares the parameters of all ranks, moment by moment, until they part."""
    first = traces[0]
    found = RankDivergence(record, tuple(trace.rank for trace in traces))
    found.before = {
        trace.rank: differences
        for trace in traces[1:]
        if not (differences := differences_of_ranks(first, trace)).is_none
    }
    moments = _common_moments(traces)
    shared = _shared_parameters(moments, found)
    agreed: StateMoment | None = None
    pending: RankParting | None = None  # by digests, which hold more than parameters
    for group in moments:
        groups, leaves = _groups(group, found.ranks, shared)
        if groups is None:
            continue
        found.moments += 1
        is_digest = group[0].read is None
        if len(groups) == 1:
            if pending is not None and not is_digest:
                found.notes.append(
                    f"buffers of the ranks, such as statistics of normalisation, differ from {pending.where} on;"
                    " the parameters do not"
                )
                return _without_digests(record, traces, found)
            agreed = group[0] if pending is None else agreed
            continue
        parting = _parting(group[0], groups, leaves, agreed)
        if is_digest:
            pending = pending or parting
            continue
        found.parted = _with_leaves(pending, parting) if pending is not None else parting
        return found
    found.parted = pending
    return found


def _without_digests(record: RunRecord, traces: Sequence[RankTrace], found: RankDivergence) -> RankDivergence:
    bare = [
        RankTrace(one.run, one.rank, one.journal, [moment for moment in one.moments if moment.read is not None])
        for one in traces
    ]
    again = compare_ranks(record, bare)
    again.notes = list(dict.fromkeys([*found.notes, *again.notes]))
    return again


def _with_leaves(parted: RankParting, named: RankParting) -> RankParting:
    return RankParting(
        parted.where, named.leaf, parted.groups, parted.astray, named.leaves, parted.iteration, parted.last_agreed,
        parted.between,
    )  # fmt: skip


def _parting(
    moment: StateMoment, groups: list[tuple[int, ...]], leaves: list[str], agreed: StateMoment | None
) -> RankParting:
    has_majority = len(groups[0]) > len(groups[1])
    astray = tuple(rank for group in groups[1:] for rank in group) if has_majority else ()
    iteration = moment.iteration if moment.place != ENTRY else -1
    between = None
    if agreed is not None and agreed.loop == moment.loop:
        between = max(0, iteration - (agreed.iteration if agreed.place != ENTRY else -1) - 1)
    return RankParting(
        moment.where, leaves[0] if leaves else "parameters", tuple(groups), astray, tuple(leaves), iteration,
        agreed.where if agreed is not None else "", between,
    )  # fmt: skip


def _common_moments(traces: Sequence[RankTrace]) -> list[tuple[StateMoment, ...]]:
    """The moments that all ranks have, in the order of the first."""
    sides: list[dict[Any, StateMoment]] = []
    for trace in traces[1:]:
        loops, _ = match_loops(traces[0], trace)
        sides.append({(loops[one.loop], *one.key[1:]): one for one in trace.moments if one.loop in loops})
    return [
        (moment, *(side[moment.key] for side in sides))
        for moment in traces[0].moments
        if all(moment.key in side for side in sides)
    ]


def _shared_parameters(moments: Sequence[tuple[StateMoment, ...]], found: RankDivergence) -> set[str]:
    """The parameters that are the same on all ranks at the first moment: the others are not meant to be."""
    group = next((group for group in moments if group[0].read is not None), None)
    if group is None:
        return set()
    states = [_parameters(moment) for moment in group]
    common = set.intersection(*(set(state) for state in states))
    shared = {name for name in common if len({state[name] for state in states}) == 1}
    found.parameters = len(shared)
    if common - shared:
        found.notes.append(
            f"{len(common - shared)} of {len(common)} parameters are not the same on all ranks at {group[0].where}"
            f" ({sorted(common - shared)[0]}): split between them, or never synchronised; they are left out"
        )
    return shared


def _groups(
    group: Sequence[StateMoment], ranks: Sequence[int], shared: set[str]
) -> tuple[list[tuple[int, ...]] | None, list[str]]:
    """Ranks that agree with each other, the most first, and the parameters that differ between them."""
    if group[0].read is None:
        if len({moment.leaves for moment in group}) > 1:
            return None, []
        return _grouped(ranks, [moment.digest for moment in group]), []
    if not shared:
        return None, []
    states = [_parameters(moment) for moment in group]
    prints = [tuple((name, state.get(name)) for name in sorted(shared)) for state in states]
    leaves = [name for name in states[0] if name in shared and len({state.get(name) for state in states}) > 1]
    return _grouped(ranks, prints), leaves


def _grouped(ranks: Sequence[int], prints: Sequence[Any]) -> list[tuple[int, ...]]:
    found: dict[Any, list[int]] = {}
    for rank, one in zip(ranks, prints, strict=True):
        found.setdefault(one, []).append(rank)
    return sorted((tuple(group) for group in found.values()), key=lambda group: (-len(group), group))


def _parameters(moment: StateMoment) -> Parameters:
    assert moment.read is not None
    return parameter_digests(moment.read())


def parameter_digests(state: GraphState) -> dict[str, int]:
    """Returns the hashes of all tensors that are trained, by their paths."""
    found: dict[str, int] = {}
    for way, node in state.nodes.items():
        content = node.content
        if type(content) is tuple and content and content[0] == "strided" and content[3] and content[6] is not None:
            memory = state.buffers.get(content[6][0])
            if memory is not None and memory.digest is not None:
                found[state.name(way)] = memory.digest
    return found
