"""What a replay reports: the values that workers logged, read back and compared with the recorded ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relive.hindsight.analysis.reads import CodeFacts
from relive.hindsight.evidence import RESTORED, SegmentFacts, SegmentVerdicts, judge_segment
from relive.hindsight.plan import RankHistory, RunHistory, shown_rows
from relive.hindsight.verdict_causes import CauseFinder
from relive.hindsight.verdicts import Agreement
from relive.hindsight.verification import Mismatch, compare
from relive.hindsight.workers import RankTask, Task, WorkerReport, doubtful_reads
from relive.model import RunRecord, Verdict
from relive.record.provenance import changed_inputs, changes_since, is_same_machine
from relive.store import JournalName, list_journals
from relive.store.journal import ROOT, ParsedJournal, line_schema, parse_journal, read_lines

OTHER_HARDWARE = 1e-5  # relative tolerance for values that another machine computed
ContextSet = set[tuple[int, int]]  # loop, iteration


@dataclass(slots=True)
class RunAnswer:
    """The result of replaying one run."""

    run: str
    added: int = 0
    beyond: int = 0  # values that never happened: the run ended before
    reproduced: int = 0
    replay: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    volatile: int = 0
    missing: list[str] = field(default_factory=list)  # what could not be replayed, and why
    tracebacks: list[str] = field(default_factory=list)  # of errors that the script raised
    causes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unrestored: list[str] = field(default_factory=list)  # state that could not be put back
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)  # name → verdict → number of values
    differing: list[str] = field(default_factory=list)  # state that differed from the recorded one
    has_restore_faults: bool = False  # a checkpoint did not bring back something that the code uses
    proofs: int = 0  # recorded states and varying numbers that agree
    # Hashes of memory by path, at the end of iterations: rank, loop, iteration.
    memory: dict[tuple[int, int, int], dict[str, int]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst verdict of its values; of a replay without values, that of what was compared."""
        found = [Verdict.of(word) for counts in self.verdicts.values() for word, count in counts.items() if count]
        if found:
            return max(found).word
        if self.mismatches or self.differing:
            return Verdict.CONTRADICTED.word
        return (Verdict.REPRODUCED if self.proofs and not self.unrestored else Verdict.UNVERIFIED).word

    def is_better_than(self, other: RunAnswer) -> bool:
        """Whether more of it can be trusted: by what is missing, by what was judged, by what differed."""
        return self._badness < other._badness

    @property
    def _badness(self) -> tuple[int, int, int, int]:
        doubted = len(self.mismatches) + len(self.differing)
        return len(self.missing), int(Verdict.of(self.verdict)), doubted, -self.proofs

    @property
    def is_verified(self) -> bool:
        """Whether all its values are proven or reproduced."""
        return not Verdict.of(self.verdict).is_marked


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
        """Whether everything came that was asked for, and nothing of it is contradicted."""
        return not any(run.missing or Verdict.of(run.verdict) is Verdict.CONTRADICTED for run in self.runs)

    @property
    def is_verified(self) -> bool:
        """Whether all values are proven or reproduced."""
        return self.is_good and all(run.is_verified for run in self.runs)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many values have which verdict."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            for of_name in run.verdicts.values():
                counts.update(of_name)
        return dict(counts)


class ResultReader:
    """Reads what the workers of one run logged, rank by rank, and compares it with the record."""

    def __init__(self, record: RunRecord, history: RunHistory, names: Sequence[str], code: CodeFacts) -> None:
        self._record = record
        self._history = history
        self._names = names
        self._code = code
        self._causes = CauseFinder()
        self._changed: list[str] | None = None
        self.answer = RunAnswer(record.run)
        self.verdicts: dict[int, list[SegmentVerdicts]] = {rank.number: [] for rank in history.ranks}
        self.journals: dict[int, list[ParsedJournal]] = {rank.number: [] for rank in history.ranks}
        self.is_cut = False  # the replay ended where the run had ended, or values beyond that were left out
        self.beyond: dict[int, list[ParsedJournal]] = {rank.number: [] for rank in history.ranks}  # never happened

    def read(self, tasks: Iterable[Task]) -> None:
        answer = self.answer
        for task in tasks:
            if not task.is_ok and task.attempts:
                answer.missing.append(_describe_missing(task))
                _add_new(answer.tracebacks, [task.traceback] if task.traceback else [])
            elif left := self._unreached(task):
                answer.missing.append(f"the replay ended earlier than the run did (missing: iterations {left})")
            reports = {rank.number: done.report for rank, done in zip(self._history.ranks, task.ranks, strict=False)}
            for rank, parsed in self._read_task(task):
                self._add(rank, parsed, reports[rank.number])
        answer.causes = self._causes.found(changes_since(self._record) if answer.mismatches else [])

    def _unreached(self, task: Task) -> str:
        """Returns the iterations that a worker was to run and never came to, although the run completed them."""
        if not task.is_ok or not task.ranks or self._history.ranks[0].horizon is not None:
            return ""  # a run that ended early is replayed as far as its record goes
        parsed = _read_journal(task.ranks[0].folder, self._history.ranks[0].recorded)
        done = _completed_iterations(parsed) if parsed is not None else set()
        wanted = [visit for visit in task.ranks[0].job.visits if visit.counts]
        left = [visit.iteration for visit in wanted if (visit.loop, visit.iteration) not in done]
        # The last iteration of a loop may end by a break, and is then not completed in the run either.
        return _format_ranges(left) if len(left) > 1 or (left and left[0] != wanted[-1].iteration) else ""

    def reasons(self) -> dict[tuple[str, Verdict], list[str]]:
        """Why values of a name have a verdict."""
        found: dict[tuple[str, Verdict], list[str]] = {}
        for segments in self.verdicts.values():
            for one in (judgement for segment in segments for judgement in segment.judgements):
                _add_new(found.setdefault((one.name, one.rule.verdict), []), [one.cause])
        return found

    def _add(self, rank: RankHistory, parsed: ParsedJournal, report: WorkerReport | None) -> None:
        """Keeps the values that the record shows to have happened apart from the others."""
        horizon = rank.horizon
        if horizon is None:
            self.journals[rank.number].append(parsed)
            return
        if report is None:  # a worker that was ended: how far it came in the last iterations is not known
            last = set(horizon.last.items())
            shown = [not _is_inside(parsed, *place, last) and place[0] != ROOT for place in _contexts(parsed)]
        else:
            self.is_cut |= report.left_record or bool(report.unshown)
            shown = shown_rows(parsed, report.unshown)
            self.beyond[rank.number].append(_with_needed_loops(parsed.only([not one for one in shown])))
        self.journals[rank.number].append(_with_needed_loops(parsed.only(shown)))

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
                rank.recorded, parsed, leave_out=self._names, tolerance=tolerance, is_whole=rank.is_finished,
                is_volatile=self._code.is_volatile,
            )  # fmt: skip
            self._judge(rank, done, SegmentFacts(parsed, found, self._code, is_same_machine=not tolerance))
            answer.reproduced += found.reproduced
            answer.mismatches += [wrong if not rank.number else _name_rank(wrong, rank) for wrong in found.mismatches]
            answer.volatile += found.volatile
        return parsed

    def _changed_inputs(self, tree: Path) -> list[str]:
        if self._changed is None:
            self._changed = changed_inputs(self._record, tree)
        return self._changed

    def _judge(self, rank: RankHistory, done: RankTask, facts: SegmentFacts) -> None:
        """Gives the values of a segment their verdicts; a worker that was killed has made no checks."""
        report, job, answer = done.report, done.job, self.answer
        restores = bool(job.skips or job.ends or any(visit.restore for visit in job.visits))
        facts = replace(
            facts, is_from_start=not restores, checks=report.checks if report else (),
            unknown=report.unknown if report else (), unrestored=report.unrestored if report else (),
            changed=self._changed_inputs(Path(job.tree)),
            outside=doubtful_reads(self._record, report.outside) if report else (),
        )  # fmt: skip
        verdicts = judge_segment(facts, self._names)
        self.verdicts[rank.number].append(verdicts)
        self._causes.add(facts, verdicts)
        _add_new(answer.differing, (path for state in verdicts.states for path in state.used))
        answer.has_restore_faults |= any(one.check.place == RESTORED and one.used for one in verdicts.states)
        agreeing = sum(state.agreement is Agreement.AGREES for state in verdicts.states)
        answer.proofs += len(facts.comparison.proofs) + agreeing


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
    return parsed.only([_is_inside(parsed, *place, iterations) for place in _contexts(parsed)])


def _contexts(parsed: ParsedJournal) -> Iterable[tuple[int, int]]:
    return zip(parsed.loop.tolist(), parsed.iteration.tolist(), strict=True)


def _with_needed_loops(parsed: ParsedJournal) -> ParsedJournal:
    """Returns the journal with only the loops that its values were logged in."""
    needed: set[int] = set()
    for number in set(parsed.loop.tolist()):
        loop = number
        while loop in parsed.loops and loop not in needed:
            needed.add(loop)
            loop = parsed.loops[loop].parent
    return replace(parsed, loops={number: row for number, row in parsed.loops.items() if number in needed})


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
