"""The position of data loader iterators that are loop-carried, as with `next(batches)`."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

from relive.checkpoint.state.random_state import (
    capture_random_states,
    generator_state,
    is_generator,
    restore_generator,
    restore_random_states,  # fmt: skip
)

# Samplers that draw all random numbers at the first `next`, so that the same random state gives the same indices.
_REPEATABLE_SAMPLERS = (
    "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "BatchSampler",
    "DistributedSampler",
)  # fmt: skip

_sampler_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # in the order of first use
_next_number = itertools.count()


class CountedIndices:
    """Iterates over a sampler and counts its indices; remembers the random states before its first draw."""

    def __init__(self, sampler: Any, inner: Iterator[Any]) -> None:
        self.sampler = sampler
        if sampler not in _sampler_numbers:
            _sampler_numbers[sampler] = next(_next_number)
        self.number = _sampler_numbers[sampler]
        self.count = 0
        self.states: dict[str, Any] | None = None
        self._inner = inner

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.states is None:
            self.states = _capture_states(self.sampler)
        found = next(self._inner)
        self.count += 1
        return found

    def seek(self, count: int, states: dict[str, Any] | None) -> None:
        """Repeats the draws from `states` and skips `count` indices; leaves the generators as they are now."""
        current = _capture_states(self.sampler)
        if states is not None:
            _restore_states(self.sampler, states)
        self._inner, self.count, self.states = iter(self.sampler), count, states
        for _ in range(count):
            next(self._inner)
        if states is not None:
            _restore_states(self.sampler, current)


def track_loader_iterator(batches: Any) -> None:
    """Counts the indices that a new loader iterator takes from its sampler, if its sampler is repeatable."""
    if all(
        type(one).__name__ in _REPEATABLE_SAMPLERS and _is_torch_sampler(one)
        for one in _nested_samplers(batches._index_sampler)
    ):
        batches._sampler_iter = CountedIndices(batches._index_sampler, batches._sampler_iter)


def make_iterator(loader: Any) -> Any:
    """Returns a new iterator over a data loader; leaves the generators as they are now."""
    states = capture_random_states()
    own = generator_state(loader.generator) if is_generator(loader.generator) else None
    made = iter(loader)
    if not is_tracked_iterator(made):
        track_loader_iterator(made)
    restore_random_states(states)
    if own is not None:
        restore_generator(loader.generator, own)
    return made


def is_tracked_iterator(value: Any) -> bool:
    """Whether a value is a loader iterator whose position can be captured."""
    return isinstance(getattr(value, "_sampler_iter", None), CountedIndices)


def _nested_samplers(sampler: Any) -> Iterator[Any]:
    """Yields a sampler and those that it wraps."""
    yield sampler
    inner = getattr(sampler, "sampler", None)
    if inner is not None:
        yield from _nested_samplers(inner)


def _is_torch_sampler(sampler: Any) -> bool:
    return type(sampler).__module__.startswith("torch.utils.data.")


def _capture_states(sampler: Any) -> dict[str, Any]:
    generators = [getattr(one, "generator", None) for one in _nested_samplers(sampler)]
    epochs = [getattr(one, "epoch", None) for one in _nested_samplers(sampler)]
    return {
        "global": capture_random_states(),
        "own": [generator_state(one) if is_generator(one) else None for one in generators],
        "epochs": epochs,
    }


def _restore_states(sampler: Any, states: dict[str, Any]) -> None:
    restore_random_states(states["global"])
    for one, state, epoch in zip(_nested_samplers(sampler), states["own"], states["epochs"], strict=True):
        if state is not None:
            restore_generator(one.generator, state)
        if epoch is not None:
            one.epoch = epoch
