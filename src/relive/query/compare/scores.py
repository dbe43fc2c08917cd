"""The one number a run is ranked by, and the order of such numbers: ties, NaN and missing values included."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from relive.store.catalog import Summary
from relive.store.journal import finite_or_none, from_json, plain_value_from_json

LAST, MIN, MAX, MEAN, BEST = "last", "min", "max", "mean", "best"
BY_CHOICES = (LAST, BEST, MIN, MAX, MEAN)
NAN, MISSING, NO_NUMBER = "nan", "missing", "not a number"
_NUMBERS, _NANS, _MISSING_NUMBERS = range(3)  # the order on every board
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_LOWER_IS_BETTER = frozenset(
    "loss losses error errors err mse rmse mae mape nll perplexity ppl wer cer fid bpb bpc regret divergence latency "
    "time seconds brier".split()
)


@dataclass(frozen=True, slots=True)
class Score:
    """The number a run is ranked by. `note` says what it is if it isn't a finite number, or that it is unverified."""

    number: float | None = None  # may be infinite or NaN; None if there is no number
    note: str | None = MISSING
    at: Any = None  # the loop columns of the logged value, unless it is an aggregate

    @property
    def value(self) -> float | None:
        """The number if JSON can represent it; None for NaN, infinities and missing numbers."""
        return self.number if self.number is not None and math.isfinite(self.number) else None


def guess_order(metric: str) -> str:
    """Returns which is better for a metric of this name: MIN or MAX."""
    words = {word.lower() for word in _WORD.findall(metric)}
    return MIN if words & _LOWER_IS_BETTER else MAX


def score(summary: Summary | None, by: str, k: int = 1) -> Score:
    """Returns the last, lowest or highest value of a name, or the mean of its last k. MIN and MAX ignore NaN."""
    if summary is None:
        return Score()
    if by == MEAN:
        return mean_score(summary.last_values()[-k:])
    if by == LAST:
        return _last_score(summary)
    extreme, at = (summary.lowest, summary.lowest_at) if by == MIN else (summary.highest, summary.highest_at)
    if extreme is None:
        return _last_score(summary)  # there is no number at all; the last value's note says what there is instead
    return _make_score(extreme, plain_value_from_json(at))


def mean_score(values: Sequence[float]) -> Score:
    """Returns the mean; it is NaN if any value is, so that a run that diverged at its end doesn't look good."""
    if not values:
        return Score()
    if any(math.isnan(value) for value in values):
        return Score(math.nan, NAN)
    infinite = sum(value for value in values if math.isinf(value))
    return _make_score(infinite if infinite else _mean(values), None)


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum of huge numbers may be too large where their mean is not
        return float(sum(map(Fraction, values)) / len(values))


def aggregate_ranks(scores: Sequence[Score], how: str) -> Score:
    """Returns the mean, lowest or highest of the ranks' scores; ranks without a number are ignored."""
    numbers = [one.number for one in scores if one.number is not None]
    if not numbers or how == MEAN or any(math.isnan(number) for number in numbers):
        return mean_score(numbers)
    return _make_score(min(numbers) if how == MIN else max(numbers), None)


def _last_score(summary: Summary) -> Score:
    at = plain_value_from_json(summary.last_at)
    if summary.last_text is None:
        return _make_score(summary.last, at) if summary.last is not None else Score(None, MISSING, at)
    form = from_json(summary.last_text)
    if isinstance(form, int | float):
        return _make_score(form, at)
    if form == {"$float": "nan"}:
        return Score(math.nan, NAN, at)
    number = form.get("$int") if isinstance(form, dict) else None
    return _make_score(float(int(number, 16)), at) if number is not None else Score(None, NO_NUMBER, at)


def _make_score(number: float, at: Any) -> Score:
    if math.isnan(number):
        return Score(number, NAN, at)
    return Score(number, None if math.isfinite(number) else repr(float(number)), at)


def sort_key(score: Score, order: str, *tie_breakers: Any) -> tuple[Any, ...]:
    """Sorts numbers first, the best at the front; then NaN; then missing numbers. `tie_breakers` order equals.

    Infinities count as numbers: the lowest and the highest.
    """
    number = score.number
    if number is None:
        return (_MISSING_NUMBERS, 0, *tie_breakers)
    if math.isnan(number):
        return (_NANS, 0, *tie_breakers)
    return (_NUMBERS, number if order == MIN else -number, *tie_breakers)


def assign_places(scores: Sequence[Score]) -> list[int | None]:
    """Returns the places of sorted scores (1, 1, 3, …): equal numbers share a place; NaN and missing have none."""
    found: list[int | None] = []
    for at, one in enumerate(scores):
        if one.number is None or math.isnan(one.number):
            found.append(None)
        elif at and scores[at - 1].number == one.number:
            found.append(found[-1])
        else:
            found.append(at + 1)
    return found


def summarize(scores: Sequence[Score], order: str) -> dict[str, Any]:
    """Returns count, best, mean and sample standard deviation of the finite scores of a group."""
    values = [one.value for one in scores if one.value is not None]
    if not values:
        return {"count": 0, "best": None, "mean": None, "std": None}
    mean = _mean(values)
    std = math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1) if len(values) > 1 else None
    best = min(values) if order == MIN else max(values)
    return {"count": len(values), "best": best, "mean": mean, "std": finite_or_none(std)}
