"""Objects near a loop that carry state nobody named: generators, schedulers, scalers, samplers, and its live-outs."""

from __future__ import annotations

import io
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.frames import set_variables
from relive.checkpoint.liveouts import live_outs, rebound_in, set_in
from relive.checkpoint.randomness import is_generator
from relive.checkpoint.restoring import Checkpoint
from relive.checkpoint.subjects import GeneratorSubject, StatefulSubject, Subject, ValueSubject
from relive.checkpoint.tree import is_leaf

MAX_FRAMES = 20


class _Everything:
    """Contains whatever it is asked for."""

    def __contains__(self, _name: object) -> bool:
        return True


_EVERYTHING: Container[str] = _Everything()
Outer = tuple[int, int, int]  # the loop around: identities of its frame and code, and its line
MAX_VARIABLE_BYTES = 64 << 20
_NO_STATE = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type, io.IOBase)
_FOREIGN = ("/site-packages/", "/dist-packages/", "<frozen", "/lib/python3")


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame of the user's own code: progress bars and wrappers of libraries are passed over."""
    while frame is not None and is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_foreign(filename: str) -> bool:
    own = sys.modules["relive"].__file__ or ""
    return any(part in filename for part in _FOREIGN) or filename.startswith(own.removesuffix("__init__.py"))


def subjects_near(frame: FrameType, named: set[int]) -> dict[str, Subject]:
    """What the frames around a loop hold that changes while training, apart from what was named already."""
    found: dict[str, Subject] = {}
    seen = set(named)
    for name, value in _values(frame):
        for part, subject, thing in _subjects(name, value):
            if id(thing) not in seen:
                seen.add(id(thing))
                found.setdefault(part, subject)
    return found


def _values(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        if not is_foreign(frame.f_code.co_filename):
            yield from list(frame.f_locals.items())
            if frame.f_globals is not frame.f_locals:
                yield from list(frame.f_globals.items())
        frame = frame.f_back


def _subjects(name: str, value: Any) -> Iterator[tuple[str, Subject, Any]]:
    if is_generator(value):
        yield name, GeneratorSubject(value), value
        return
    torch = sys.modules.get("torch")
    if torch is None or type(value).__module__ == "builtins":
        return
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
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


def variables(frame: FrameType, line: int, named: set[int]) -> dict[str, Any]:
    """The live-outs of the loop at a line that hold data, with their values."""
    return _data_in(frame, live_outs(frame, line), named)


def frames_between(inner: FrameType, outer: Outer | None) -> list[FrameType]:
    """The user's frames from that of a nested loop up to that of the loop around it; none if that isn't found."""
    found: list[FrameType] = []
    frame: FrameType | None = inner
    while frame is not None and outer is not None and len(found) < MAX_FRAMES:
        if not is_foreign(frame.f_code.co_filename):
            found.append(frame)
        if (id(frame), id(frame.f_code)) == outer[:2]:
            return found
        frame = frame.f_back
    return []


def variables_around(inner: FrameType, outer: Outer | None, named: set[int]) -> list[dict[str, Any]]:
    """For each frame up to that of the main loop: what it has worked out so far in this iteration.

    With them a resume may begin in the middle of an iteration, after its nested loop.
    """
    frames = frames_between(inner, outer)
    names = [list(frame.f_locals) for frame in frames[:-1]]
    if frames and outer is not None:
        names.append(list(set_in(frames[-1], outer[2])))
    return [_data_in(frame, chosen, named) for frame, chosen in zip(frames, names, strict=True)]


def put_back(
    checkpoint: Checkpoint, frame: FrameType | None, objects: Mapping[str, Any], *, outer: Outer | None, line: int = 0
) -> None:
    """Bring a running script to the state of a checkpoint: objects, what is near, variables, and random generators.

    `frame` is where the skipped loop stands. `outer` is given when the iteration around it did not run as it did then:
    then the variables of that iteration are put back, too.
    """
    checkpoint.restore(objects, random=False)
    user = users_frame(frame)
    if user is not None:
        named = {id(thing) for thing in objects.values()}
        checkpoint.restore_near(subjects_near(user, named))
        for level, around in enumerate(frames_between(user, outer)):
            set_variables(around, checkpoint.around(level), rebound=_EVERYTHING)
        set_variables(user, checkpoint.variables(), rebound=rebound_in(user, line or user.f_lineno))
    checkpoint.restore_random()


def _data_in(frame: FrameType, names: Iterable[str], named: set[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        if value is not None and id(value) not in named and _is_data(value):
            found[name] = value.detach() if hasattr(value, "detach") and is_leaf(value) else value
        elif value is None and name in frame.f_locals:
            found[name] = None
    return found


def _is_data(value: Any) -> bool:
    """Numbers, texts, containers, tensors and arrays; not machinery, which a restart makes anew."""
    if isinstance(value, _NO_STATE) or is_generator(value):
        return False
    if is_leaf(value):
        return bool(value.nbytes <= MAX_VARIABLE_BYTES)
    module = type(value).__module__
    if module in ("builtins", "collections", "numpy", "pathlib", "decimal", "datetime"):
        return True
    return _is_users_class(module) and not hasattr(value, "state_dict")


def _is_users_class(module: str) -> bool:
    """A class of the project, such as a running average; those of libraries are machinery unless known otherwise."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (file is not None and not is_foreign(file))
