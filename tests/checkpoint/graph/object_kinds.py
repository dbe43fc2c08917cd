"""Values of the standard library, streams, iterators, functions, references and objects."""

from __future__ import annotations

import array
import copy
import datetime
import decimal
import functools
import io
import itertools
import types
import uuid
import weakref
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

from tests.checkpoint.graph.kinds import Box, Kind, Things, kind


@kind
def immutable_values() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [
            decimal.Decimal("1.10"), datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.UTC), datetime.date(2024, 1, 2),
            datetime.timedelta(seconds=5), Fraction(1, 3), uuid.UUID(int=5), Path("/elsewhere/file"),
            PurePosixPath("a/b"), range(2, 9, 3), slice(1, 2), 1 + 2j, b"bytes", float("nan"), -0.0, 10**40, ..., int,
            "a \udcff b", re_pattern(), NotImplemented, types.SimpleNamespace(a=[1]),
        ]  # fmt: skip

    def view(things: Things) -> Any:
        return [(type(one).__name__, repr(one)) for one in things["box"].values]

    return lambda: {"box": Box(values=[])}, change, view


def re_pattern() -> Any:
    import re

    return re.compile("a+", re.IGNORECASE)


@kind
def paths_below_the_working_folder() -> Kind:
    def change(things: Things) -> None:
        things["box"].paths = [Path.cwd() / "out", str(Path.cwd() / "text")]

    return lambda: {"box": Box(paths=[])}, change, lambda things: list(things["box"].paths)


class Name(str):
    __slots__ = ()


class Count(int):
    __slots__ = ()


class Metres(float):
    """A number with attributes."""


@kind
def subclasses_of_plain_types() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [Name("x"), Count(7)]

    def view(things: Things) -> Any:
        return [(type(one).__name__, str(one)) for one in things["box"].values]

    return lambda: {"box": Box(values=[Name("first"), Count(1)])}, change, view


@kind
def numbers_with_attributes() -> Kind:
    def change(things: Things) -> None:
        things["box"].length = Metres(2.5)
        things["box"].length.unit = "m"

    def view(things: Things) -> Any:
        length = things["box"].length
        return type(length).__name__, float(length), getattr(length, "unit", None)

    return lambda: {"box": Box(length=Metres(1.0))}, change, view


@kind
def streams_in_memory() -> Kind:
    def build() -> Things:
        return {"text": io.StringIO("start"), "bytes": io.BytesIO(b"start"), "box": Box(made=None)}

    def change(things: Things) -> None:
        things["text"].seek(0, 2)
        things["text"].write(" é\n")
        things["bytes"].read(2)
        things["bytes"].write(b"xy")
        things["box"].made = io.StringIO("late")
        things["box"].made.read(2)

    def view(things: Things) -> Any:
        made = things["box"].made
        streams = [things["text"], things["bytes"], *([made] if made else [])]
        return [(one.getvalue(), one.tell(), one.read()) for one in streams]

    return build, change, view


@kind
def closed_streams() -> Kind:
    def change(things: Things) -> None:
        things["text"].close()

    return lambda: {"text": io.StringIO("start")}, change, lambda things: things["text"].closed


@kind
def arrays_of_bytes() -> Kind:
    def build() -> Things:
        return {"numbers": array.array("d", [1.0]), "bytes": bytearray(b"a"), "box": Box(made=None)}

    def change(things: Things) -> None:
        things["numbers"].append(2.5)
        things["bytes"] += b"bc"
        things["box"].made = [array.array("i", [7]), bytearray(b"z")]

    def view(things: Things) -> Any:
        numbers, made = things["numbers"], things["box"].made
        return numbers.typecode, numbers.tolist(), bytes(things["bytes"]), repr(made)

    return build, change, view


@kind
def counts_and_cycles() -> Kind:
    def build() -> Things:
        return {
            "box": Box(
                count=itertools.count(), odd=itertools.count(1, 2), cycle=itertools.cycle("ab"), parts=iter([*"abcde"]),
                numbers=iter(range(9)), pairs=enumerate("uvwxyz"), both=zip(range(6), "abcdef", strict=True),
                chain=itertools.chain([1, 2], [3, 4, 5, 6]), turned=reversed([*range(6)]), rest=itertools.repeat(7, 6),
            )
        }  # fmt: skip

    def change(things: Things) -> None:
        for one in vars(things["box"]).values():
            next(one)
            next(one)

    return build, change, lambda things: [next(one) for one in vars(things["box"]).values()]


def add(left: Any, right: Any, *, scale: int = 1) -> Any:
    return (left + right) * scale


@kind
def partial_functions() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(call=functools.partial(add, shared, scale=1), shared=shared)}

    def change(things: Things) -> None:
        box = things["box"]
        box.shared.append(1)
        box.call = functools.partial(add, box.shared, scale=2)
        box.bound = functools.partial(box.shared.append, 8)

    def view(things: Things) -> Any:
        box = things["box"]
        before = box.call([5]), box.call.keywords, box.call.args[0] is box.shared, box.call.func is add
        if hasattr(box, "bound"):
            box.bound()
        return before, list(box.shared)

    return build, change, view


@kind
def methods_and_closures() -> Kind:
    def build() -> Things:
        return {"box": Box(of_class=Meter.make), "count": counting(), "meter": Meter()}

    def change(things: Things) -> None:
        things["count"]()
        things["meter"].update(2)
        things["box"].bound = things["meter"].update

    def view(things: Things) -> Any:
        box = things["box"]
        if hasattr(box, "bound"):
            box.bound(1)
        return things["count"](), things["meter"].total, box.of_class().total

    return build, change, view


def counting() -> Callable[[], int]:
    total = 0

    def count() -> int:
        nonlocal total
        total += 1
        return total

    return count


class Meter:
    def __init__(self) -> None:
        self.total = 0

    @classmethod
    def make(cls) -> Meter:
        return cls()

    def update(self, value: int) -> None:
        self.total += value


@kind
def weak_references() -> Kind:
    def build() -> Things:
        target, other = Meter(), Meter()
        return {
            "target": target, "other": other,
            "box": Box(ref=weakref.ref(target), values=weakref.WeakValueDictionary(a=target),
                       keys=weakref.WeakKeyDictionary({target: 1}), members=weakref.WeakSet([target]), dead=None),
        }  # fmt: skip

    def change(things: Things) -> None:
        box, other = things["box"], things["other"]
        other.update(3)
        box.ref = weakref.ref(other)
        box.values["b"] = other
        box.keys[other] = [2]
        box.members.discard(things["target"])
        box.members.add(other)
        box.dead = weakref.ref(Meter())

    def view(things: Things) -> Any:
        box, other, target = things["box"], things["other"], things["target"]
        return [
            box.ref() is other, box.ref() is target, sorted(box.values), box.values.get("b") is other,
            box.values["a"] is target, box.keys.get(other), box.keys[target], other in box.members,
            target in box.members, len(box.members), box.dead is not None and box.dead() is None, other.total,
        ]  # fmt: skip

    return build, change, view


class Stopped(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@kind
def exceptions() -> Kind:
    def change(things: Things) -> None:
        things["box"].error = Stopped("late")
        things["box"].error.add_note("a note")

    def view(things: Things) -> Any:
        error = things["box"].error
        return type(error).__name__, error.args, getattr(error, "reason", None), getattr(error, "__notes__", None)

    return lambda: {"box": Box(error=ValueError("first"), other=Stopped("other"))}, change, view


@kind
def causes_of_exceptions() -> Kind:
    def change(things: Things) -> None:
        things["box"].error.__cause__ = KeyError("inner")

    return lambda: {"box": Box(error=ValueError("a"))}, change, lambda things: repr(things["box"].error.__cause__)


@kind
def errors_of_the_system() -> Kind:
    def change(things: Things) -> None:
        things["box"].error = FileNotFoundError(2, "gone", "file")

    def view(things: Things) -> Any:
        error = things["box"].error
        return type(error).__name__, error.errno, error.filename, str(error)

    return lambda: {"box": Box(error=OSError("first"))}, change, view


class Base:
    __slots__ = ("kept",)


class Derived(Base):
    __slots__ = ("__dict__", "__weakref__", "own")


class Guarded:
    """A class that objects to being set."""

    def __init__(self) -> None:
        vars(self)["count"] = 0

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("restoring calls no code of the class")


@kind
def slots_and_guarded_attributes() -> Kind:
    def build() -> Things:
        derived = Derived()
        derived.kept = [1]
        return {"derived": derived, "guarded": Guarded(), "box": Box(gone=1)}

    def change(things: Things) -> None:
        derived = things["derived"]
        derived.kept.append(2)
        derived.own = 3
        derived.other = derived.kept
        vars(things["guarded"])["count"] = 5
        vars(things["box"]).pop("gone", None)
        things["box"].made = Derived()
        things["box"].made.kept = derived

    def view(things: Things) -> Any:
        derived, box = things["derived"], things["box"]
        made = getattr(box, "made", None)
        return [
            derived.kept, getattr(derived, "own", None), getattr(derived, "other", None) is derived.kept,
            things["guarded"].count, hasattr(box, "gone"), made is not None and made.kept is derived,
            made is not None and hasattr(made, "own"),
        ]  # fmt: skip

    return build, change, lambda things: copy.deepcopy(view(things))


@kind
def objects_that_change_their_class() -> Kind:
    def change(things: Things) -> None:
        things["box"].inner.__class__ = Meter
        things["box"].inner.total = 4

    def view(things: Things) -> Any:
        return type(things["box"].inner).__name__, vars(things["box"].inner)

    return lambda: {"box": Box(inner=Box(total=1))}, change, lambda things: copy.deepcopy(view(things))
