"""Compares every value that both the run and its replay logged."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.checkpoint.analysis import has_volatile_name
from relive.store.journal import ParsedJournal, line_schema, slot_kinds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# Parts of texts that differ each time: times, dates, speeds, addresses, and paths of temporary files.
_VOLATILE_TEXT = re.compile(
    r"0x[0-9a-f]+|\d{4}-\d\d-\d\d|\d+:\d\d(:\d\d)?(\.\d+)?|/tmp/\S+|\d+(\.\d+)?(e-?\d+)? ?"
    r"(ns|us|µs|ms|s|sec|secs|seconds?|min|h|it/s|s/it|[kMG]i?B(/s)?)\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}", re.IGNORECASE)  # what objects without a text of their own look like
_PROVING_DIGITS = 8  # a number that was logged once proves something if it has as many: settings have fewer


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A recorded value that was not reproduced."""

    name: str
    where: str
    then: Any
    now: Any


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """How many recorded values were reproduced, and which were not.

    Rows are those of the replayed journal. Texts, constants and counters that agree prove nothing about a training;
    `proofs` are the others.
    """

    reproduced: int
    mismatches: tuple[Mismatch, ...]
    volatile: int = 0  # values of clocks and the like that differ, as expected
    proofs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # rows that agree
    differing: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # rows that differ, or that the run lacks
    lost: tuple[tuple[int, int], ...] = ()  # contexts, by loop and iteration, in which a recorded value is missing

    @property
    def is_exact(self) -> bool:
        return not self.mismatches


def compare(
    recorded: ParsedJournal, replayed: ParsedJournal, *, leave_out: Collection[str], tolerance: float, is_whole: bool,
    is_volatile: Callable[[str], bool] = has_volatile_name,
) -> Comparison:  # fmt: skip
    """Compares a segment with its run, value by value, in all contexts that the segment ran.

    `leave_out` are the names asked for. `is_whole`: the run finished. A run that was cut short may lack values of its
    last contexts, which the replay has. `is_volatile`: whether values of a name differ each time.
    """
    names = _NameCodes(recorded, replayed)
    then, now = _Values(recorded, names), _Values(replayed, names)
    complete = _completed_contexts(replayed)
    visited = np.union1d(complete, now.context)
    then = then.take(np.isin(then.context, visited) & ~np.isin(then.name, names.codes(leave_out)))
    now = now.take(~np.isin(now.name, names.codes(leave_out)))
    pairs, lost, extra = _match(then, now)
    lost = lost[np.isin(then.context[lost], complete)]
    if not is_whole:
        extra = extra[:0]
    same = _equal(then, now, pairs, tolerance)
    compared = np.unique(np.concatenate([then.name[pairs[0]], then.name[lost], now.name[extra]])).tolist()
    volatile = np.isin(np.arange(len(names.listed) + 1), [code for code in compared if is_volatile(names.listed[code])])
    proving = np.isin(np.arange(len(names.listed) + 1), _proving_names(recorded, names))
    differ, lost, extra = pairs[:, ~same], lost[~volatile[then.name[lost]]], extra[~volatile[now.name[extra]]]
    is_expected = volatile[then.name[differ[0]]]
    agree = pairs[:, same & proving[then.name[pairs[0]]] & ~volatile[then.name[pairs[0]]]]
    wrong = [_different(then, now, int(a), int(b), names) for a, b in differ[:, ~is_expected].T[:100]]
    wrong += [_one_sided(then, int(at), names, was_then=True) for at in lost[:10]]
    wrong += [_one_sided(now, int(at), names, was_then=False) for at in extra[:10]]
    return Comparison(
        int(same.sum()), tuple(wrong), int(is_expected.sum()), now.rows[agree[1]],
        np.sort(np.concatenate([now.rows[differ[1, ~is_expected]], now.rows[extra]])),
        tuple({(int(context) >> 32, int(context) & 0xFFFFFFFF) for context in then.context[lost]}),
    )  # fmt: skip


def _proving_names(recorded: ParsedJournal, names: _NameCodes) -> list[int]:
    """Names whose recorded values are numbers that vary, and not just counters."""
    code_of = names.table(recorded)
    return [
        int(code_of[local]) for local in range(len(recorded.names)) if _proves(recorded, recorded.name == local)
    ]  # fmt: skip


def _proves(recorded: ParsedJournal, rows: NDArray[np.bool_]) -> bool:
    kind, value = recorded.kind[rows], recorded.value[rows]
    value = value[np.isin(kind, list(slot_kinds.FLOAT_KINDS | slot_kinds.INTEGER_KINDS)) & ~np.isnan(value)]
    if not len(value):
        return False
    if len(value) == 1:
        return len(repr(float(value[0])).strip("-0").replace(".", "")) >= _PROVING_DIGITS
    steps = np.diff(value)
    is_counter = bool(np.all(steps == steps[0])) and float(steps[0]).is_integer()
    return not is_counter


def _completed_contexts(replayed: ParsedJournal) -> Ints:
    """The contexts that ran to their end: iterations with a line that says so, and all of loops that ended."""
    ended = line_schema.lines_of(line_schema.IterationReplayed, replayed.lines)
    found = [_context_id(line.loop, line.i) for line in ended]
    for row in replayed.ended:
        found += [_context_id(row[0], iteration) for iteration in range(row[1])]
    return np.asarray(found, np.int64)


def _context_id(loop: int, iteration: int) -> int:
    return loop << 32 | iteration


class _NameCodes:
    """One numbering for the names of both journals."""

    def __init__(self, *journals: ParsedJournal) -> None:
        self._of: dict[str, int] = {}
        for journal in journals:
            for name in journal.names:
                self._of.setdefault(name, len(self._of))

    @property
    def listed(self) -> list[str]:
        return list(self._of)

    def codes(self, names: Collection[str]) -> list[int]:
        return [self._of[name] for name in names if name in self._of]

    def table(self, journal: ParsedJournal) -> Ints:
        return np.asarray([self._of[name] for name in journal.names] or [0], np.int64)


class _Values:
    """Values of one journal, with the context of each as one number."""

    def __init__(self, journal: ParsedJournal, names: _NameCodes, rows: Ints | None = None) -> None:
        self.journal = journal
        self._names = names
        self.rows = np.arange(len(journal)) if rows is None else rows
        self.context: Ints = (journal.loop[self.rows].astype(np.int64) << 32) | journal.iteration[self.rows]
        self.name: Ints = names.table(journal)[journal.name[self.rows]] if len(self.rows) else np.zeros(0, np.int64)

    def take(self, mask: NDArray[np.bool_]) -> _Values:
        return _Values(self.journal, self._names, self.rows[mask])


def _match(then: _Values, now: _Values) -> tuple[Ints, Ints, Ints]:
    """Pairs the k-th value of a name in a context with the k-th of the other journal; returns unpaired ones, too."""
    context = np.concatenate([then.context, now.context])
    name = np.concatenate([then.name, now.name])
    side = np.concatenate([np.zeros(len(then.rows), bool), np.ones(len(now.rows), bool)])
    order = np.lexsort([np.arange(len(context)), side, name, context])
    group = np.zeros(len(order), np.int64)
    if len(order):
        is_new = (np.diff(context[order]) != 0) | (np.diff(name[order]) != 0)
        group[1:] = np.cumsum(is_new)
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = _occurrences(group, side[order])
    of = np.empty(len(order), np.int64)
    of[order] = group
    key = of << 24 | occurrence
    left, right = key[: len(then.rows)], key[len(then.rows) :]
    _, a, b = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    pairs = np.stack([a, b]) if len(a) else np.zeros((2, 0), np.int64)
    return pairs, np.setdiff1d(np.arange(len(left)), a), np.setdiff1d(np.arange(len(right)), b)


def _occurrences(group: Ints, side: NDArray[np.bool_]) -> Ints:
    """For rows sorted by group and side: the ordinal of each within its group and side."""
    if not len(group):
        return group
    block = group * 2 + side
    starts = np.flatnonzero(np.concatenate([[True], np.diff(block) != 0]))
    sizes = np.diff(np.append(starts, len(block)))
    return np.arange(len(block)) - np.repeat(starts, sizes)


def _equal(then: _Values, now: _Values, pairs: Ints, tolerance: float) -> NDArray[np.bool_]:
    a, b = then.rows[pairs[0]], now.rows[pairs[1]]
    one, other = then.journal, now.journal
    kind = one.kind[a]
    same: NDArray[np.bool_] = kind == other.kind[b]
    floats = np.isin(kind, list(slot_kinds.FLOAT_KINDS))
    x, y = one.value[a], other.value[b]
    close = (x.view(np.int64) == y.view(np.int64)) | (np.isnan(x) & np.isnan(y))
    if tolerance:
        close |= np.isclose(x, y, rtol=tolerance, atol=tolerance)
    same &= np.where(floats, close, one.exact[a] == other.exact[b])
    for at in np.flatnonzero(kind == slot_kinds.LINE):
        mine = one.text[a[at]] if one.text is not None else None
        theirs = other.text[b[at]] if other.text is not None else None
        same[at] &= mine == theirs or _without_volatile(mine) == _without_volatile(theirs)
    return same


def _without_volatile(json: str | None) -> str | None:
    """Returns a text without the parts that differ each time; any other value as it is."""
    return _VOLATILE_TEXT.sub("…", json) if json is not None and json.startswith('"') else json


def shows_address(journal: ParsedJournal, rows: Ints) -> bool:
    """Whether one of these values is a text with an address in it, which no other process has."""
    texts = journal.text[rows].tolist() if journal.text is not None else []
    return any(text is not None and _ADDRESS.search(text) for text in texts)


def _different(then: _Values, now: _Values, a: int, b: int, names: _NameCodes) -> Mismatch:
    name = names.listed[int(then.name[a])]
    return Mismatch(name, _describe_context(then, a), _displayed(then, a), _displayed(now, b))


def _one_sided(side: _Values, at: int, names: _NameCodes, *, was_then: bool) -> Mismatch:
    name, value = names.listed[int(side.name[at])], _displayed(side, at)
    return Mismatch(name, _describe_context(side, at), *((value, "nothing") if was_then else ("nothing", value)))


def _describe_context(side: _Values, at: int) -> str:
    journal, row = side.journal, int(side.rows[at])
    path = journal.paths[int(journal.path[row])]
    dims: Sequence[int] = journal.dims[row][: len(path)].tolist()
    return " ".join(f"{loop} {iteration}" for loop, iteration in zip(path, dims, strict=True)) or "outside of loops"


def _displayed(side: _Values, at: int) -> Any:
    return displayed_value(side.journal, int(side.rows[at]))


@dataclass(frozen=True, slots=True, eq=False)
class ValuePairs:
    """The values of two journals, paired: the k-th of a name in an iteration with the k-th there. All are rows."""

    one: Ints
    other: Ints
    is_same: NDArray[np.bool_]
    is_volatile: NDArray[np.bool_]  # of clocks and the like
    only_one: Ints  # of names that both have
    only_other: Ints
    names_of_one: tuple[str, ...]  # that the other journal lacks
    names_of_other: tuple[str, ...]


def pair_values(one: ParsedJournal, other: ParsedJournal) -> ValuePairs:
    """Pairs all values of two journals whose loops have the same numbers."""
    names = _NameCodes(one, other)
    then, now = _Values(one, names), _Values(other, names)
    pairs, lost, extra = _match(then, now)
    volatile = np.asarray([has_volatile_name(name) for name in names.listed] or [False])
    shared = np.asarray([name in one.names and name in other.names for name in names.listed] or [False])
    return ValuePairs(
        then.rows[pairs[0]], now.rows[pairs[1]], _equal(then, now, pairs, 0.0), volatile[then.name[pairs[0]]],
        then.rows[lost[shared[then.name[lost]]]], now.rows[extra[shared[now.name[extra]]]],
        tuple(name for name in one.names if name not in other.names),
        tuple(name for name in other.names if name not in one.names),
    )  # fmt: skip


def displayed_value(journal: ParsedJournal, row: int) -> Any:
    """Returns a logged value as it is shown to users."""
    kind = int(journal.kind[row])
    if kind == slot_kinds.LINE:
        return journal.text[row] if journal.text is not None else None
    if kind == slot_kinds.NONE:
        return None
    return int(journal.exact[row]) if kind in slot_kinds.INTEGER_KINDS else float(journal.value[row])
