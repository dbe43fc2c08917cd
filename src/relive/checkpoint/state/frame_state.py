"""What a checkpoint reaches besides the objects it was given: variables of running functions, and objects near them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import (
    given_in,
    is_foreign,
    live_outs,
    rebound_in,
    set_in,
    set_later,
    used_in,  # fmt: skip
)
from relive.checkpoint.memory import is_leaf
from relive.checkpoint.state.discovery import DiscoveredState, discover_state
from relive.checkpoint.state.function_state import is_given
from relive.checkpoint.state.loader_iterators import is_watched
from relive.checkpoint.state.module_parts import ModulePartsCache
from relive.checkpoint.state.object_state import holds_too_many, is_data, is_lost_iterator, is_small, is_users_object
from relive.checkpoint.state.user_frames import MAX_FRAMES, frames_of

Known = Mapping[int, str]  # objects that are kept by themselves, by identity
Outer = tuple[int, int, int]  # the loop around: identities of its frame and code, and its line


def near(
    frame: FrameType, line: int, named: Mapping[str, Any], outer: Outer | None, *, with_empty: bool = False,
    modules: ModulePartsCache | None = None,
) -> DiscoveredState:  # fmt: skip
    """Objects with state around the loop at a line, but for those that are made in it, or later in the loop around."""
    frames = frames_of(frame)
    made = (name for name in rebound_in(frame, line) if not is_watched(_value(frame, name)))
    inside: dict[int, frozenset[str]] = {id(frame): frozenset(made)}
    for one in frames:
        if outer is not None and id(one) == outer[0]:
            later = set_later(one, outer[2], line if one is frame else one.f_lineno)
            inside[id(one)] = inside.get(id(one), frozenset()) | later
    return discover_state(frames, named, inside, modules=modules or ModulePartsCache(), with_empty=with_empty)


def lost_variables(frame: FrameType, line: int, known: Known) -> list[str]:
    """What the loop at a line uses up or makes, and no checkpoint can hold."""
    iterators = [name for name in used_in(frame, line) if is_lost_iterator(_value(frame, name))]
    made = [name for name in live_outs(frame, line) if name in rebound_in(frame, line)]
    lost = [name for name in made if id(_value(frame, name)) not in known and _cannot_be_kept(_value(frame, name))]
    return [
        *(
            f"{name} is an iterator, whose place can't be kept; iterate over it in a loop of its own"
            for name in iterators
        ),
        *(
            f"{name} is made in the loop and can't be kept; make it before, or name it in checkpointing"
            for name in lost
        ),
    ]


def _value(frame: FrameType, name: str) -> Any:
    return frame.f_locals.get(name, frame.f_globals.get(name))


def _cannot_be_kept(value: Any) -> bool:
    return not (is_data(value) or is_users_object(value) or _is_stateless(value))


def _is_stateless(value: Any) -> bool:
    return value is None or isinstance(value, ModuleType | FunctionType | BuiltinFunctionType | MethodType | type)


def variables(frame: FrameType, line: int, known: Known) -> dict[str, Any]:
    """What the loop at a line leaves in variables: all that others read, and what is small of the rest.

    An object of the user's that was there before the loop is near it; one that it makes is kept whole.
    """
    rebound = rebound_in(frame, line)
    names = [name for name in live_outs(frame, line) if name in rebound or not _is_by_itself(frame, name, known)]
    names += [name for name in given_in(frame, line) if is_given(_value(frame, name)) and name not in names]
    found = _data_in(frame, names, known)
    rest = [name for name in sorted(rebound) if name not in found and _is_worth_it(frame, name, known)]
    return found | _data_in(frame, rest, known)


def _is_worth_it(frame: FrameType, name: str, known: Known) -> bool:
    value = frame.f_locals.get(name)
    return is_small(value) or id(value) in known


def unkept(frame: FrameType, line: int, kept: Collection[str]) -> list[str]:
    """What the loop at a line binds and the checkpoint does not hold: too large, or nothing that can be kept."""
    return [
        name
        for name in sorted(rebound_in(frame, line))
        if name not in kept and name in frame.f_locals and not _is_stateless(frame.f_locals[name])
    ]


def _is_by_itself(frame: FrameType, name: str, known: Known) -> bool:
    """Is the state of what a variable holds kept elsewhere, so that the variable needs not be touched?"""
    value = _value(frame, name)
    return id(value) in known or is_users_object(value)


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


def variables_around(inner: FrameType, outer: Outer | None, known: Known) -> list[dict[str, Any]]:
    """For each frame up to that of the main loop: what it has worked out so far in this iteration.

    With them a resume may begin in the middle of an iteration, after its nested loop. Objects are near the loop.
    """
    frames = frames_between(inner, outer)
    names = [list(frame.f_locals) for frame in frames[:-1]]
    if frames and outer is not None:
        names.append(list(set_in(frames[-1], outer[2])))
    return [
        _data_in(frame, [name for name in chosen if not _is_by_itself(frame, name, known)], known)
        for frame, chosen in zip(frames, names, strict=True)
    ]


def lost_around(inner: FrameType, outer: Outer, known: Known) -> list[str]:
    """What keeps a run from beginning at the end of a nested loop, although that loop can be skipped.

    The iterations of the loop around it that were left out would have used something up that no checkpoint can hold.
    """
    frames = frames_between(inner, outer)
    if not frames:
        return ["the loop around it is too far away to be restored"]
    return lost_variables(frames[-1], outer[2], known)


def _data_in(frame: FrameType, names: Iterable[str], known: Known) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        value = _value(frame, name)
        if holds_too_many(value):
            continue
        if id(value) in known:
            found[name] = value
        elif value is not None and (is_data(value) or is_users_object(value)):
            found[name] = value.detach() if is_leaf(value) and getattr(value, "requires_grad", False) else value
        elif value is None and name in frame.f_locals:
            found[name] = None
    return found
