"""What one number stands for a run, and which of two runs stands higher: ties, NaN and missing values included."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relive.store.catalog import Summary
from relive.store.journal import from_text, plain_number, plain_text

LAST, MIN, MAX, MEAN, BEST = "last", "min", "max", "mean", "best"
WAYS = (LAST, BEST, MIN, MAX, MEAN)
NAN, MISSING, NO_NUMBER = "nan", "missing", "not a number"
_NUMBERS, _NANS, _NOTHINGS = range(3)  # in this order on every board
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_LOWER_IS_BETTER = frozenset(
    "loss losses error errors err mse rmse mae mape nll perplexity ppl wer cer fid bpb bpc regret divergence latency "
    "time seconds brier".split()
)


@dataclass(frozen=True, slots=True)
class Score:
    """What a run is ranked by. `value` is None for NaN and for what is missing; `note` tells which, and infinities."""

    number: float | None = None  # may be infinite or NaN; None when there is none
    note: str | None = MISSING
    at: Any = None  # the loop columns it was logged in, if it is one logged value

    @property
    def value(self) -> float | None:
        """The number as JSON can say it."""
        return self.number if self.number is not None and math.isfinite(self.number) else None


def told_by_name(metric: str) -> str:
    """MIN or MAX: which is better for a metric of this name."""
    words = {word.lower() for word in _WORD.findall(metric)}
    return MIN if words & _LOWER_IS_BETTER else MAX


def score(summary: Summary | None, by: str, k: int = 1) -> Score:
    """The last, lowest or highest value of a name, or the mean of its last k. MIN and MAX pass over NaN."""
    if summary is None:
        return Score()
    if by == MEAN:
        return mean_of(summary.last_values()[-k:])
    if by == LAST:
        return _last(summary)
    extreme, at = (summary.lowest, summary.lowest_at) if by == MIN else (summary.highest, summary.highest_at)
    if extreme is None:
        return _last(summary)  # there is no number at all, and the last one tells what there is instead
    return _score(extreme, plain_text(at))


def mean_of(values: Sequence[float]) -> Score:
    """NaN if one of them is: a run that diverged at its end must not look good."""
    if not values:
        return Score()
    if any(math.isnan(value) for value in values):
        return Score(math.nan, NAN)
    infinite = sum(value for value in values if math.isinf(value))
    return _score(infinite if infinite else _mean(values), None)


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum of huge numbers may be too large where their mean is not
        return math.fsum(value / len(values) for value in values)


def over_ranks(scores: Sequence[Score], how: str) -> Score:
    """One score of several ranks: their mean, lowest or highest; a rank without a value does not count."""
    numbers = [one.number for one in scores if one.number is not None]
    if not numbers or how == MEAN or any(math.isnan(number) for number in numbers):
        return mean_of(numbers)
    return _score(min(numbers) if how == MIN else max(numbers), None)


def _last(summary: Summary) -> Score:
    at = plain_text(summary.last_at)
    if summary.last_text is None:
        return _score(summary.last, at) if summary.last is not None else Score(None, MISSING, at)
    form = from_text(summary.last_text)
    if isinstance(form, int | float):
        return _score(form, at)
    if form == {"$float": "nan"}:
        return Score(math.nan, NAN, at)
    number = form.get("$int") if isinstance(form, dict) else None
    return _score(float(int(number, 16)), at) if number is not None else Score(None, NO_NUMBER, at)


def _score(number: float, at: Any) -> Score:
    if math.isnan(number):
        return Score(number, NAN, at)
    return Score(number, None if math.isfinite(number) else repr(float(number)), at)


def sort_key(score: Score, order: str, *tie_breakers: Any) -> tuple[Any, ...]:
    """Numbers come first, the better ones before the others; then NaN; then what has no number. Ties keep their order.

    Infinities are numbers: the lowest and the highest there are.
    """
    number = score.number
    if number is None:
        return (_NOTHINGS, 0, *tie_breakers)
    if math.isnan(number):
        return (_NANS, 0, *tie_breakers)
    return (_NUMBERS, number if order == MIN else -number, *tie_breakers)


def places(scores: Sequence[Score]) -> list[int | None]:
    """The places of scores that are in order: equal numbers share one, and the next stands behind all of them."""
    found: list[int | None] = []
    for at, one in enumerate(scores):
        if one.number is None or math.isnan(one.number):
            found.append(None)
        elif at and scores[at - 1].number == one.number:
            found.append(found[-1])
        else:
            found.append(at + 1)
    return found


def summed_up(scores: Sequence[Score], order: str) -> dict[str, Any]:
    """What the finite scores of a group come to: how many, the best, mean and sample standard deviation."""
    values = [one.value for one in scores if one.value is not None]
    if not values:
        return {"count": 0, "best": None, "mean": None, "std": None}
    mean = _mean(values)
    std = math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1) if len(values) > 1 else None
    best = min(values) if order == MIN else max(values)
    return {"count": len(values), "best": best, "mean": mean, "std": plain_number(std)}
