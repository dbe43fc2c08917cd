"""What a replay reports: the values that workers logged, read back and compared with the recorded ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relive.hindsight.plan import RankHistory, RunHistory
from relive.hindsight.verification import Mismatch, compare
from relive.hindsight.workers import RankTask, Task
from relive.model import RunRecord
from relive.record.provenance import changes_since, is_same_machine
from relive.store import JournalName, list_journals
from relive.store.journal import ROOT, ParsedJournal, line_schema, parse_journal, read_lines

OTHER_HARDWARE = 1e-5  # relative tolerance for values that another machine computed
ContextSet = set[tuple[int, int]]  # loop, iteration


@dataclass(slots=True)
class RunAnswer:
    """The result of replaying one run."""

    run: str
    added: int = 0
    reproduced: int = 0
    replay: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    volatile: int = 0
    missing: list[str] = field(default_factory=list)  # what could not be replayed, and why
    tracebacks: list[str] = field(default_factory=list)  # of errors that the script raised
    causes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unrestored: list[str] = field(default_factory=list)  # state that could not be put back
    # Hashes of memory by path, at the end of iterations: rank, loop, iteration.
    memory: dict[tuple[int, int, int], dict[str, int]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.mismatches or self.unrestored:
            return "unverified"
        return "exact" if self.reproduced else "nothing to compare"


@dataclass(slots=True)
class Answer:
    """The result of a replay."""

    runs: list[RunAnswer] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)
    took_s: float = 0.0
    is_stopped: bool = False

    @property
    def added(self) -> int:
        return sum(run.added for run in self.runs)

    @property
    def reproduced(self) -> int:
        return sum(run.reproduced for run in self.runs)

    @property
    def is_good(self) -> bool:
        return not any(run.mismatches or run.missing for run in self.runs)


class ResultReader:
    """Reads what the workers of one run logged, rank by rank, and compares it with the record."""

    def __init__(self, record: RunRecord, history: RunHistory, names: Sequence[str]) -> None:
        self._record = record
        self._history = history
        self._names = names
        self.answer = RunAnswer(record.run)
        self.journals: dict[int, list[ParsedJournal]] = {rank.number: [] for rank in history.ranks}

    def read(self, tasks: Iterable[Task]) -> None:
        answer = self.answer
        for task in tasks:
            if not task.is_ok and task.attempts:
                answer.missing.append(_describe_missing(task))
                _add_new(answer.tracebacks, [task.traceback] if task.traceback else [])
            for rank, parsed in self._read_task(task):
                self.journals[rank.number].append(parsed)
        if answer.mismatches:
            answer.causes = _likely_causes(self._record)
        answer.causes += [f"{name} was not there yet when its state was to be restored" for name in answer.unrestored]

    def _read_task(self, task: Task) -> list[tuple[RankHistory, ParsedJournal]]:
        """Returns the journal of each rank; of a failed task, only the iterations that every rank completed."""
        pairs = zip(self._history.ranks, task.ranks, strict=False)  # a task that never began has none
        read = [(rank, self._read_rank(rank, done)) for rank, done in pairs]
        found = [(rank, parsed) for rank, parsed in read if parsed is not None]
        if task.is_ok or not found:
            return found
        names = {rank.number: {**rank.main_loops(self._history.profile), ROOT: ROOT} for rank, _ in found}
        ends = {rank.number: _completed_iterations(parsed) for rank, parsed in found}
        common = set.intersection(
            *({(names[number].get(loop), iteration) for loop, iteration in done} for number, done in ends.items())
        )
        return [
            (rank, _restrict(parsed, {(loop, iteration) for loop, iteration in ends[rank.number]
                                      if (names[rank.number].get(loop), iteration) in common}))
            for rank, parsed in found
        ]  # fmt: skip

    def _read_rank(self, rank: RankHistory, done: RankTask) -> ParsedJournal | None:
        """Returns the journal of one rank, after adding its report and its comparison to the answer."""
        answer = self.answer
        if done.report is not None:
            _add_new(answer.notes, done.report.notes)
            _add_new(answer.unrestored, done.report.unrestored)
            answer.memory |= {(rank.number, loop, at): hashes for loop, at, hashes in done.report.memory}
        _add_new(answer.notes, _notes_on_child_processes(done.folder, self._names))
        parsed = _read_journal(done.folder, rank.recorded)
        if parsed is not None:
            tolerance = 0.0 if is_same_machine(self._record) else OTHER_HARDWARE
            found = compare(
                rank.recorded, parsed, leave_out=self._names, tolerance=tolerance, is_whole=rank.is_finished
            )  # fmt: skip
            answer.reproduced += found.reproduced
            answer.mismatches += [wrong if not rank.number else _name_rank(wrong, rank) for wrong in found.mismatches]
            answer.volatile += found.volatile
        return parsed


def _name_rank(wrong: Mismatch, rank: RankHistory) -> Mismatch:
    return replace(wrong, where=f"{wrong.where} of rank {rank.number}")


def _add_new(texts: list[str], more: Iterable[str]) -> None:
    texts += [text for text in more if text not in texts]


def _read_journal(folder: Path, recorded: ParsedJournal) -> ParsedJournal | None:
    path = dict(list_journals(folder)).get(JournalName(0))
    return parse_journal(path, JournalName(0), recorded) if path is not None else None


def _completed_iterations(parsed: ParsedJournal) -> ContextSet:
    """The iterations that a worker ran to their end."""
    replayed = line_schema.lines_of(line_schema.IterationReplayed, parsed.lines)
    return {(line.loop, line.i) for line in replayed}


def _restrict(parsed: ParsedJournal, iterations: ContextSet) -> ParsedJournal:
    """Returns the journal with only the values logged inside these iterations."""
    rows = [
        _is_inside(parsed, loop, iteration, iterations)
        for loop, iteration in zip(parsed.loop.tolist(), parsed.iteration.tolist(), strict=True)
    ]
    return parsed.only(rows)


def _is_inside(parsed: ParsedJournal, loop: int, iteration: int, iterations: ContextSet) -> bool:
    while (loop, iteration) not in iterations:
        row = parsed.loops.get(loop)
        if row is None:
            return False
        loop, iteration = row.parent, row.parent_iteration
    return True


def _notes_on_child_processes(folder: Path, names: Sequence[str]) -> list[str]:
    """Notes the names that child processes of the script log too: their journals have no context in the run."""
    others = [path for name, path in list_journals(folder) if name != JournalName(0)]
    defined = (line_schema.lines_of(line_schema.NameDefined, read_lines(path).lines) for path in others)
    logged = {line.name for lines in defined for line in lines}
    return [f"{name} is also logged by processes that the script starts; those values are left out"
            for name in names if name in logged]  # fmt: skip


def _describe_missing(task: Task) -> str:
    why = task.failures[-1] if task.failures else "it was stopped"
    if not task.ranks:
        return why
    visits = task.ranks[0].job.visits
    left = [visit.iteration for visit in visits if visit.counts][task.done_iterations() :]
    return f"{why} (missing: iterations {_format_ranges(left)})" if left else why


def _format_ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first}–{last}" if first != last else str(first) for first, last in parts)


def _likely_causes(record: RunRecord) -> list[str]:
    """What may have changed the values."""
    unnamed = "an object that changes while training is not in the checkpoints: name it in checkpointing(…)"
    return changes_since(record) or [unnamed]
