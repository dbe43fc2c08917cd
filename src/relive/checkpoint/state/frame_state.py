"""What a checkpoint captures of running frames: live-out variables of the loop, and objects discovered around it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import (
    bound_after_line,
    escaping_from_loop,
    is_library_file,
    live_outs,
    modified_in_loop,
    read_in_loop,  # fmt: skip
    rebound_in_loop,
)
from relive.checkpoint.memory import is_leaf
from relive.checkpoint.state.discovery import DiscoveredState, discover_state
from relive.checkpoint.state.function_state import is_small_mutable_data
from relive.checkpoint.state.loader_iterators import is_tracked_iterator
from relive.checkpoint.state.module_parts import ModulePartsCache
from relive.checkpoint.state.object_state import (
    has_too_many_objects,
    is_data,
    is_small,
    is_untracked_iterator,
    is_user_object,
)
from relive.checkpoint.state.user_frames import MAX_FRAMES, collect_user_frames

KnownObjects = Mapping[int, str]  # names of objects with their own entry, by identity
OuterLoop = tuple[int, int, int]  # the enclosing loop: identities of its frame and code, and its line


def discover_around_loop(
    frame: FrameType, line: int, named: Mapping[str, Any], outer: OuterLoop | None, *, with_empty: bool = False,
    modules: ModulePartsCache | None = None,
) -> DiscoveredState:  # fmt: skip
    """Discovers objects with state around the loop at a line.

    Variables that the loop binds, or that the outer loop binds after it, do not exist when the loop is skipped.
    """
    frames = collect_user_frames(frame)
    bound = (name for name in rebound_in_loop(frame, line) if not is_tracked_iterator(_lookup(frame, name)))
    inside: dict[int, frozenset[str]] = {id(frame): frozenset(bound)}
    for one in frames:
        if outer is not None and id(one) == outer[0]:
            later = bound_after_line(one, outer[2], line if one is frame else one.f_lineno)
            inside[id(one)] = inside.get(id(one), frozenset()) | later
    return discover_state(frames, named, inside, modules=modules or ModulePartsCache(), with_empty=with_empty)


def uncaptured_variables(frame: FrameType, line: int, known: KnownObjects) -> list[str]:
    """Returns what the loop at a line consumes or creates and no checkpoint can hold, with the reason."""
    iterators = [name for name in read_in_loop(frame, line) if is_untracked_iterator(_lookup(frame, name))]
    created = [name for name in live_outs(frame, line) if name in rebound_in_loop(frame, line)]
    unsupported = [
        name for name in created if id(_lookup(frame, name)) not in known and _is_unsupported(_lookup(frame, name))
    ]
    return [
        *(
            f"{name} is an iterator, whose position can't be kept; iterate over it in a loop of its own"
            for name in iterators
        ),
        *(
            f"{name} is created in the loop and can't be kept; create it before, or name it in checkpointing"
            for name in unsupported
        ),
    ]


def _lookup(frame: FrameType, name: str) -> Any:
    return frame.f_locals.get(name, frame.f_globals.get(name))


def _is_unsupported(value: Any) -> bool:
    return not (is_data(value) or is_user_object(value) or _is_stateless(value))


def _is_stateless(value: Any) -> bool:
    return value is None or isinstance(value, ModuleType | FunctionType | BuiltinFunctionType | MethodType | type)


def capture_variables(frame: FrameType, line: int, known: KnownObjects) -> dict[str, Any]:
    """Returns the values of variables to capture: all live-outs of the loop at a line, and small other variables.

    Objects of the user's classes that existed before the loop are discovered; those that it creates are captured whole.
    """
    rebound = rebound_in_loop(frame, line)
    names = [name for name in live_outs(frame, line) if name in rebound or not _has_own_handler(frame, name, known)]
    names += [
        name
        for name in escaping_from_loop(frame, line)
        if is_small_mutable_data(_lookup(frame, name)) and name not in names
    ]
    found = _capturable_values(frame, names, known)
    others = [name for name in sorted(rebound) if name not in found and _is_cheap_to_capture(frame, name, known)]
    return found | _capturable_values(frame, others, known)


def _is_cheap_to_capture(frame: FrameType, name: str, known: KnownObjects) -> bool:
    value = frame.f_locals.get(name)
    return is_small(value) or id(value) in known


def uncaptured_names(frame: FrameType, line: int, captured: Collection[str]) -> list[str]:
    """Returns the variables that the loop at a line binds and that are not captured: too large, or unsupported."""
    return [
        name
        for name in sorted(rebound_in_loop(frame, line))
        if name not in captured and name in frame.f_locals and not _is_stateless(frame.f_locals[name])
    ]


def _has_own_handler(frame: FrameType, name: str, known: KnownObjects) -> bool:
    """Whether the object of a variable is captured by a handler, so that the variable needs not be captured."""
    value = _lookup(frame, name)
    return id(value) in known or is_user_object(value)


def frames_between(inner: FrameType, outer: OuterLoop | None) -> list[FrameType]:
    """Returns the user's frames from a nested loop up to the outer loop; none if that isn't found."""
    found: list[FrameType] = []
    frame: FrameType | None = inner
    while frame is not None and outer is not None and len(found) < MAX_FRAMES:
        if not is_library_file(frame.f_code.co_filename):
            found.append(frame)
        if (id(frame), id(frame.f_code)) == outer[:2]:
            return found
        frame = frame.f_back
    return []


def capture_outer_variables(inner: FrameType, outer: OuterLoop | None, known: KnownObjects) -> list[dict[str, Any]]:
    """Returns for each frame up to that of the main loop the values that this iteration has computed so far.

    With them a replay can resume in the middle of an iteration, after its nested loop. Objects are discovered.
    """
    frames = frames_between(inner, outer)
    names = [list(frame.f_locals) for frame in frames[:-1]]
    if frames and outer is not None:
        names.append(list(modified_in_loop(frames[-1], outer[2])))
    return [
        _capturable_values(frame, [name for name in candidates if not _has_own_handler(frame, name, known)], known)
        for frame, candidates in zip(frames, names, strict=True)
    ]


def uncaptured_outer_variables(inner: FrameType, outer: OuterLoop, known: KnownObjects) -> list[str]:
    """Returns why a replay can't begin at the end of a nested loop, although it can skip that loop.

    The outer iterations that it would leave out consume something that no checkpoint can hold.
    """
    frames = frames_between(inner, outer)
    if not frames:
        return ["the loop around it is too many calls away to be restored"]
    return uncaptured_variables(frames[-1], outer[2], known)


def _capturable_values(frame: FrameType, names: Iterable[str], known: KnownObjects) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        value = _lookup(frame, name)
        if has_too_many_objects(value):
            continue
        if id(value) in known:
            found[name] = value
        elif value is not None and (is_data(value) or is_user_object(value)):
            found[name] = value.detach() if is_leaf(value) and getattr(value, "requires_grad", False) else value
        elif value is None and name in frame.f_locals:
            found[name] = None
    return found
