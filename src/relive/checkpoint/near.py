"""Objects near a loop that carry state nobody named: modules, optimizers, generators, objects of the user's classes."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

from relive.checkpoint.objects import ObjectSubject, is_users_object
from relive.checkpoint.randomness import is_generator
from relive.checkpoint.subjects import GeneratorSubject, StatefulSubject, Subject, ValueSubject, subject_of

MAX_DEPTH = 4
MAX_ITEMS = 64  # of a list or dict that is looked through for objects with state
_CONTAINERS = (list, tuple, dict)


def subjects_near(
    frames: Iterable[FrameType], named: Collection[int], made_inside: Mapping[int, Collection[str]]
) -> dict[str, Subject]:
    """What these frames hold that changes while training, apart from what was named already.

    `made_inside` says for a frame which of its variables the loop makes anew: those are not there when it is skipped.
    """
    walk = _Walk(named)
    seen: set[int] = set()
    for frame in frames:
        inside = made_inside.get(id(frame), ())
        for holder in (frame.f_locals, frame.f_globals):
            if id(holder) in seen:
                continue
            seen.add(id(frame.f_globals) if holder is frame.f_globals else id(holder))
            for name, value in list(holder.items()):
                if name not in inside:
                    walk.look(name, value, 0)
    return walk.found


class _Walk:
    """Looks through variables, and the attributes of objects, each thing once."""

    def __init__(self, named: Collection[int]) -> None:
        self.found: dict[str, Subject] = {}
        self._seen = set(named)

    def look(self, name: str, value: Any, depth: int) -> None:
        if value is None or type(value) in (int, float, str, bool, bytes) or id(value) in self._seen:
            return
        if type(value) in _CONTAINERS:
            if depth < MAX_DEPTH and 0 < len(value) <= MAX_ITEMS:
                self._seen.add(id(value))
                items = value.items() if isinstance(value, dict) else enumerate(value)
                for key, item in list(items):
                    self.look(f"{name}[{key!r}]", item, depth + 1)
            return
        for part, subject, thing in _subjects(name, value):
            if id(thing) not in self._seen:
                self._seen.add(id(thing))
                self.found.setdefault(part, subject)
                self._cover(thing)
        if id(value) not in self._seen and depth < MAX_DEPTH and is_users_object(value):
            self._seen.add(id(value))
            self.found.setdefault(name, ObjectSubject(name, value))
            for attribute, inner in list(vars(value).items()):
                self.look(f"{name}.{attribute}", inner, depth + 1)

    def _cover(self, thing: Any) -> None:
        """A module's parts need not be looked at again."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.nn.Module):
            self._seen.update(id(part) for part in thing.modules())


def covered(objects: Iterable[Any]) -> set[int]:
    """The objects that were named, and all modules inside them."""
    walk = _Walk(())
    for thing in objects:
        walk._seen.add(id(thing))
        walk._cover(thing)
    return walk._seen


def _subjects(name: str, value: Any) -> Iterator[tuple[str, Subject, Any]]:
    if is_generator(value):
        yield name, GeneratorSubject(value), value
        return
    torch = sys.modules.get("torch")
    if torch is None or type(value).__module__ == "builtins":
        return
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        yield name, subject_of(name, value), value
    elif isinstance(value, torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
        yield name, StatefulSubject(name, value), value
    elif isinstance(value, torch.utils.data.DataLoader):
        yield from _loader(name, value)
    elif isinstance(value, torch.utils.data.Sampler):
        yield from _sampler(name, value)


def _loader(name: str, loader: Any) -> Iterator[tuple[str, Subject, Any]]:
    if hasattr(loader, "state_dict"):
        yield name, StatefulSubject(name, loader), loader
    if loader.generator is not None:
        yield f"{name}.generator", GeneratorSubject(loader.generator), loader.generator
    if loader.sampler is not None:
        yield from _sampler(f"{name}.sampler", loader.sampler)


def _sampler(name: str, sampler: Any) -> Iterator[tuple[str, Subject, Any]]:
    generator = getattr(sampler, "generator", None)
    if is_generator(generator):
        yield f"{name}.generator", GeneratorSubject(generator), generator
    epoch = getattr(sampler, "epoch", None)
    if isinstance(epoch, int):
        yield name, _Attribute(name, sampler, "epoch"), sampler


class _Attribute(ValueSubject):
    """One attribute of an object that is otherwise left alone."""

    kind = "attribute"

    def __init__(self, name: str, owner: Any, attribute: str) -> None:
        super().__init__(name, getattr(owner, attribute))
        self._owner, self._attribute = owner, attribute

    def rest(self, plant: Any) -> Any:
        return plant(getattr(self._owner, self._attribute), self._name)

    def put_back(self, leaves: dict[str, int], rest: Any, source: Any) -> None:
        setattr(self._owner, self._attribute, source.value(rest))
