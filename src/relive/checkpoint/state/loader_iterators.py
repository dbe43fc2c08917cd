"""State of data loader iterators that outlive an iteration, as with `next(batches)`: the position of each."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from relive.checkpoint.memory import Json
from relive.checkpoint.state.random_state import (
    generator_state,
    global_states,
    is_generator,
    restore_generator,
    restore_global_states,  # fmt: skip
)
from relive.checkpoint.state.state_handlers import RestoreSource, ValueHandler

# Samplers that draw when they are asked for the first time, and from then on need nothing but what they drew.
_KNOWN = ("SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "BatchSampler",
          "DistributedSampler")  # fmt: skip

_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # of samplers, as they are first used
_next_number = itertools.count()


class Indices:
    """What a sampler gives, counted; and the random states that it was about to draw from."""

    def __init__(self, sampler: Any, inner: Iterator[Any]) -> None:
        self.sampler = sampler
        if sampler not in _numbers:
            _numbers[sampler] = next(_next_number)
        self.number = _numbers[sampler]
        self.count = 0
        self.states: dict[str, Any] | None = None
        self._inner = inner

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.states is None:
            self.states = _states(self.sampler)
        found = next(self._inner)
        self.count += 1
        return found

    def go_to(self, count: int, states: dict[str, Any] | None) -> None:
        """Draw the same again, and leave out as many. The generators are left as they are now."""
        now = _states(self.sampler)
        if states is not None:
            _restore(self.sampler, states)
        self._inner, self.count, self.states = iter(self.sampler), count, states
        for _ in range(count):
            next(self._inner)
        if states is not None:
            _restore(self.sampler, now)


def watched(batches: Any) -> None:
    """Count what an iterator over a loader takes from its sampler, from its beginning on."""
    if all(type(one).__name__ in _KNOWN and _is_torchs(one) for one in _samplers(batches._index_sampler)):
        batches._sampler_iter = Indices(batches._index_sampler, batches._sampler_iter)


def is_watched(value: Any) -> bool:
    """An iterator whose place can be kept."""
    return isinstance(value, batches_classes()) and isinstance(getattr(value, "_sampler_iter", None), Indices)


def batches_classes() -> tuple[type, ...]:
    """The class of those iterators, if torch is loaded."""
    loaders = sys.modules.get("torch.utils.data.dataloader")
    return (loaders._SingleProcessDataLoaderIter,) if loaders is not None else ()


def name_of_batches(name: str, batches: Any) -> str:
    """With the number of its sampler: an iterator over another loader is not the same thing in the same variable."""
    return f"{name} (loader {batches._sampler_iter.number})"


class LoaderIteratorHandler(ValueHandler):
    """An iterator over a data loader: how far it came, and from which random states it set out."""

    kind = "batches"

    def rest(self, plant: Callable[[Any, str], Json]) -> Json:
        indices: Indices = self._thing._sampler_iter
        return plant({"count": indices.count, "states": indices.states}, self._name)

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        kept = source.value(rest)
        self._thing._sampler_iter.go_to(kept["count"], kept["states"])
        self._thing._num_yielded = kept["count"]


def _samplers(sampler: Any) -> Iterator[Any]:
    yield sampler
    inner = getattr(sampler, "sampler", None)
    if inner is not None:
        yield from _samplers(inner)


def _is_torchs(sampler: Any) -> bool:
    return type(sampler).__module__.startswith("torch.utils.data.")


def _states(sampler: Any) -> dict[str, Any]:
    own = [getattr(one, "generator", None) for one in _samplers(sampler)]
    epochs = [getattr(one, "epoch", None) for one in _samplers(sampler)]
    return {
        "global": global_states(),
        "own": [generator_state(one) if is_generator(one) else None for one in own],
        "epochs": epochs,
    }


def _restore(sampler: Any, states: dict[str, Any]) -> None:
    restore_global_states(states["global"])
    for one, state, epoch in zip(_samplers(sampler), states["own"], states["epochs"], strict=True):
        if state is not None:
            restore_generator(one.generator, state)
        if epoch is not None:
            one.epoch = epoch
