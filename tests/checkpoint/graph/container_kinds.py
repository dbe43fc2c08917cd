"""Lists, dicts, sets, tuples, dataclasses and enums."""

from __future__ import annotations

import copy
import enum
import functools
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.checkpoint.graph.kinds import Box, Kind, Things, kind, seen


@kind
def nested_deques() -> Kind:
    def build() -> Things:
        return {"box": Box(recent=deque([deque([1], maxlen=2)], maxlen=3))}

    def change(things: Things) -> None:
        recent = things["box"].recent
        for one in (one for one in recent if isinstance(one, deque)):
            one.extend([2, 3, 4])
        recent.append(deque([5], maxlen=1))
        things["box"].other = deque([1, 2], maxlen=2)

    def view(things: Things) -> Any:
        before = seen(things["box"].recent), seen(getattr(things["box"], "other", None))
        things["box"].recent.extend([1, 2, 3])
        return before, seen(things["box"].recent)

    return build, change, view


@kind
def a_list_under_two_names() -> Kind:
    def build() -> Things:
        return {"box": Box(first=[], second=[]), "other": {"third": []}}

    def change(things: Things) -> None:
        shared = things["box"].first
        shared.append([1])
        things["box"].second = things["other"]["third"] = shared
        things["other"]["inner"] = shared[0]

    def view(things: Things) -> Any:
        box, other = things["box"], things["other"]
        facts = box.first is box.second, box.first is other["third"], seen(box.first)
        return facts, "inner" in other and other["inner"] is box.first[0]

    return build, change, view


@kind
def lists_that_are_no_longer_shared() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(first=shared, second=shared)}

    def change(things: Things) -> None:
        things["box"].second = [9]
        things["box"].first.append(1)

    def view(things: Things) -> Any:
        return seen(things["box"].first), seen(things["box"].second), things["box"].first is things["box"].second

    return build, change, view


@kind
def cycles() -> Kind:
    def change(things: Things) -> None:
        inner: dict[str, Any] = {"up": things["box"]}
        inner["self"] = inner
        things["box"].inner = inner
        things["box"].ring.append(things["box"].ring)

    def view(things: Things) -> Any:
        box = things["box"]
        inner = getattr(box, "inner", {})
        return inner.get("up") is box, inner.get("self") is inner, bool(box.ring) and box.ring[0] is box.ring

    return lambda: {"box": Box(ring=[])}, change, view


class NotedList(list):  # type: ignore[type-arg]
    note = ""


class NotedDict(dict):  # type: ignore[type-arg]
    note = ""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("restoring calls no code of the class")


class SlottedList(list):  # type: ignore[type-arg]
    __slots__ = ("limit",)


@kind
def attributes_of_list_and_dict_subclasses() -> Kind:
    def build() -> Things:
        return {"items": NotedList([1]), "table": NotedDict(a=1), "box": Box(slotted=SlottedList([1]), set=NotedSet())}

    def change(things: Things) -> None:
        things["items"].append(2)
        things["items"].note = "more"
        dict.__setitem__(things["table"], "b", [2])
        things["table"].note = ["list"]
        things["box"].slotted.limit = 5
        things["box"].set.add(3)
        things["box"].set.note = "set"
        things["box"].made = NotedDict(c=3)
        things["box"].made.note = "late"

    def view(things: Things) -> Any:
        holders = things["items"], things["table"], things["box"].set, getattr(things["box"], "made", NotedDict())
        slotted = things["box"].slotted
        return [(seen(one), seen(one.note)) for one in holders], seen(slotted), getattr(slotted, "limit", None)

    return build, change, view


class NotedSet(set):  # type: ignore[type-arg]
    note = ""


@kind
def defaults_of_dicts() -> Kind:
    def build() -> Things:
        return {"lists": defaultdict(list), "box": Box(numbers=defaultdict(int))}

    def change(things: Things) -> None:
        things["lists"]["a"].append(1)
        things["lists"].default_factory = set
        things["box"].numbers["b"] += 2
        things["box"].nested = defaultdict(functools.partial(defaultdict, float))
        things["box"].nested["x"]["y"] += 1.5
        things["box"].numbers.default_factory = None

    def view(things: Things) -> Any:
        lists, box = things["lists"], things["box"]
        nested = getattr(box, "nested", None)
        made = nested["new"]["new"] if nested is not None else None
        return seen(lists), lists.default_factory, seen(box.numbers), box.numbers.default_factory, seen(nested), made

    return build, change, view


@kind
def ordered_dicts_counters_and_chains() -> Kind:
    def build() -> Things:
        return {
            "order": OrderedDict(a=1, b=2, c=3), "counts": Counter("aab"), "plain": {"x": 1, "y": 2},
            "box": Box(chain=ChainMap({"a": 1}, {"b": 2}), user=UserDict(a=1)),
        }  # fmt: skip

    def change(things: Things) -> None:
        things["order"].move_to_end("a")
        things["order"]["d"] = 4
        things["counts"].update("bcc")
        things["plain"]["x"] = things["plain"].pop("x")
        things["box"].chain["c"] = 3
        things["box"].user["b"] = 2

    def view(things: Things) -> Any:
        box = things["box"]
        return [
            seen(things["order"]), seen(things["counts"]), things["counts"]["absent"], seen(things["plain"]),
            seen(box.chain.maps), seen(box.user.data),
        ]  # fmt: skip

    return build, change, view


Pair = namedtuple("Pair", ["left", "right"])


class Place(NamedTuple):
    row: int
    items: list[int]


@dataclass
class Plain:
    count: int = 0
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    count: int = 0
    items: tuple[Any, ...] = ()


@dataclass(slots=True)
class Slotted:
    count: int = 0
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    count: int = 0


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Labelled(Place):
    """Not declared without a dict, so that its instances have attributes."""


@kind
def tuples_with_attributes() -> Kind:
    def build() -> Things:
        return {"box": Box(kept=Labelled([1], 2), moved=Labelled([3], 4), twice=None)}

    def change(things: Things) -> None:
        box = things["box"]
        box.kept.label = ["a"]  # type: ignore[attr-defined]
        box.kept[0].append(5)
        box.moved = box.twice = Labelled([6], 7)

    def view(things: Things) -> Any:
        box = things["box"]
        label = getattr(box.kept, "label", None)
        return type(box.kept), tuple(box.kept), label, tuple(box.moved), box.moved is box.twice

    return build, change, view


@kind
def named_tuples() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(pair=Pair(1, shared), place=Place(0, shared), shared=shared)}

    def change(things: Things) -> None:
        box = things["box"]
        box.shared.append(1)
        box.pair = Pair(2, box.shared)

    def view(things: Things) -> Any:
        box = things["box"]
        return seen(box.pair), seen(box.place), box.pair.right is box.shared, box.place.items is box.shared

    return build, change, view


@kind
def dataclasses_of_all_sorts() -> Kind:
    def build() -> Things:
        return {"box": Box(plain=Plain(), frozen=Frozen(), slotted=Slotted(), both=FrozenSlotted())}

    def change(things: Things) -> None:
        box = things["box"]
        box.plain.count, box.slotted.count = 3, 4
        box.plain.items.append(1)
        box.slotted.items.append(2)
        box.frozen = Frozen(5, (box.plain,))
        box.both = FrozenSlotted(6)

    def view(things: Things) -> Any:
        box = things["box"]
        is_shared = bool(box.frozen.items) and box.frozen.items[0] is box.plain
        return box.plain, box.frozen, box.slotted, box.both, is_shared

    return build, change, lambda things: copy.deepcopy(view(things))


@kind
def keys_that_are_frozen_dataclasses() -> Kind:
    def change(things: Things) -> None:
        things["box"].keys = {Frozen(1): "a", FrozenSlotted(2): "b"}

    def view(things: Things) -> Any:
        keys = things["box"].keys
        return list(keys.items()), keys.get(Frozen(1)), keys.get(FrozenSlotted(2))

    return lambda: {"box": Box(keys={})}, change, view


@kind
def combined_flags() -> Kind:
    def change(things: Things) -> None:
        things["box"].rights = Rights.READ | Rights.WRITE

    return lambda: {"box": Box(rights=Rights.READ)}, change, lambda things: things["box"].rights


@kind
def empty_tuples_and_frozen_sets() -> Kind:
    def change(things: Things) -> None:
        things["box"].items, things["box"].members, things["box"].holder = (), frozenset(), [()]

    def view(things: Things) -> Any:
        return things["box"].items, things["box"].members, list(things["box"].holder)

    return lambda: {"box": Box(items=(1,), members=frozenset({1}), holder=[])}, change, view


class Late:
    """A class that nothing refers to at first."""

    @classmethod
    def make(cls) -> Late:
        return cls()


class LateColour(enum.Enum):
    GREEN = 3


@kind
def classes_that_are_first_used_later() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [Late(), Late, Late.make, LateColour.GREEN, frozenset({LateColour.GREEN})]

    def view(things: Things) -> Any:
        return [type(things["box"].values[0]), *things["box"].values[1:]] if things["box"].values else []

    return lambda: {"box": Box(values=[])}, change, view


@kind
def keys_of_enums_and_other_objects() -> Kind:
    def build() -> Things:
        return {"table": {Colour.RED: 1}, "box": Box(rights=Rights.READ, colours={Colour.RED})}

    def change(things: Things) -> None:
        things["table"][Colour.BLUE] = 2
        things["table"][1, "a"] = 3
        things["table"][frozenset({1, 2})] = 4
        things["table"][None] = 5
        things["table"][float] = 6
        things["table"][len] = 7
        things["box"].rights = Rights.WRITE
        things["box"].colours.add(Colour.BLUE)

    def view(things: Things) -> Any:
        return list(things["table"].items()), things["box"].rights, things["box"].colours

    return build, change, lambda things: copy.copy(view(things))


class Hashed:
    """An object whose hash is its content."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and other.name == self.name


@kind
def keys_with_a_hash_of_their_own() -> Kind:
    def change(things: Things) -> None:
        key = Hashed("late")
        things["box"].table = {Hashed("b"): 1, key: [2]}
        things["box"].members = {key, Hashed("c")}
        things["box"].key = key

    def view(things: Things) -> Any:
        box = things["box"]
        found = [(one.name, value) for one, value in box.table.items()], sorted(one.name for one in box.members)
        return found, box.table.get(Hashed("late")), Hashed("c") in box.members, box.key in box.members

    return lambda: {"box": Box(table={}, members=set(), key=Hashed("first"))}, change, view


@kind
def a_set_that_has_shrunk() -> Kind:
    def change(things: Things) -> None:
        numbers = things["box"].numbers
        numbers.update(range(1000))
        for number in range(1000):
            if number % 97:
                numbers.discard(number)

    def view(things: Things) -> Any:
        return list(things["box"].numbers), list(things["box"].frozen)

    return lambda: {"box": Box(numbers={5}, frozen=frozenset({1, 2}))}, change, view


@kind
def frozen_sets_of_objects() -> Kind:
    def change(things: Things) -> None:
        things["box"].groups = frozenset({(1, 2), "a", 3.5, None, frozenset({7})})

    return lambda: {"box": Box(groups=frozenset())}, change, lambda things: things["box"].groups


@kind
def large_containers() -> Kind:
    def change(things: Things) -> None:
        things["numbers"].extend(range(1000))
        things["table"].update({f"key {number}": number / 3 for number in range(1000)})
        things["box"].mixed = [*range(100), [1], *range(100)]
        things["box"].queue.extend(range(200))

    def view(things: Things) -> Any:
        box = things["box"]
        return seen(things["numbers"]), seen(things["table"]), seen(box.mixed), seen(box.queue)

    def build() -> Things:
        return {"numbers": [1], "table": {"a": 1}, "box": Box(mixed=[], queue=deque(maxlen=150))}

    return build, change, view
