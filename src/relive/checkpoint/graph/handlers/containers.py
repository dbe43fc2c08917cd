"""Handlers of lists, dicts, sets, deques and classes derived from them: items in order, settings, attributes."""

from __future__ import annotations

import marshal
from collections import OrderedDict, defaultdict, deque
from typing import Any

from relive.checkpoint.graph.handlers.attributes import Attributes, attribute_tokens, restore_attributes
from relive.checkpoint.graph.object_tokens import FROZEN_SET, NAMED_TUPLE, PLAIN_TYPES, Token, nodes_in
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Walker

BULK_ITEMS = 64  # from this size on, containers of nothing but plain values are taken in one piece
_LEAST_ADDRESS = 1 << 32  # larger integers may be addresses of objects, as `id` gives them
_BULK = "bulk"
_BULK_TYPES = PLAIN_TYPES | {str}
_EXACT_HASH_TYPES = frozenset({int, bool, type(None), float})  # whose order in a set is the same in every process


def _bulk(items: Any) -> Any:
    """Returns all items as one piece of bytes, if they are plain; None otherwise."""
    if len(items) < BULK_ITEMS or not set(map(type, items)) <= _BULK_TYPES:
        return None
    return _BULK, marshal.dumps(list(items), 2)


def _items(content: Any, restore: Restorer) -> list[Any]:
    if type(content) is tuple and len(content) == 2 and content[0] == _BULK:
        loaded: list[Any] = restore.unmarshal(content[1])
        return loaded
    return [restore.value(token) for token in content]


def _hashable_items(content: Any, restore: Restorer) -> list[Any]:
    """Returns the items of a set, with all of their content: their hash may depend on it."""
    for token in content if type(content) is tuple else ():
        if nodes_in(token):
            restore.complete_value(token)
    return _items(content, restore)


class ListHandler(Handler):
    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return _bulk(obj) or walk.refs(obj)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return []

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        obj[:] = _items(content, restore)


class DictHandler(Handler):
    is_data = True
    is_hashed = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return dict_tokens(obj, walk)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return {}

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        pairs = dict_items(content, restore)
        obj.clear()
        obj.update(pairs)


def dict_tokens(obj: Any, walk: Walker) -> Any:
    """Returns keys and values, alternating; for large dicts of plain values, all in one piece."""
    if len(obj) >= BULK_ITEMS:
        values = list(dict.values(obj))
        if set(map(type, values)) <= _BULK_TYPES and set(map(type, dict.keys(obj))) <= _BULK_TYPES:
            return _BULK, marshal.dumps([list(dict.keys(obj)), values], 2)
    found: list[Any] = []
    ref = walk.ref
    for at, (key, value) in enumerate(list(dict.items(obj))):
        if type(key) is str:
            found.append(key)
            found.append(value if type(value) in PLAIN_TYPES else ref(value, "[", key))
        else:
            label = key if type(key) in PLAIN_TYPES else f"{type(key).__qualname__} {at}"
            if type(key) is int and key > _LEAST_ADDRESS:
                label = f"int {at}"
                found.append(walk.identity_token(key))
            else:
                found.append(key if type(key) in PLAIN_TYPES else ref(key, "[key ", f"{at}]"))
            found.append(value if type(value) in PLAIN_TYPES else ref(value, "[", label))
    return tuple(found)


def dict_items(content: Any, restore: Restorer) -> list[tuple[Any, Any]]:
    if len(content) == 2 and content[0] == _BULK and type(content[1]) is bytes:
        keys, values = restore.unmarshal(content[1])
        return list(zip(keys, values, strict=True))
    keys = [restore.complete_value(token) if nodes_in(token) else restore.value(token) for token in content[::2]]
    return list(zip(keys, [restore.value(token) for token in content[1::2]], strict=True))


_MIN_TABLE, _TABLE_FACTOR = 1 << 14, 16  # how large a table of a set is tried, at most: each try takes time


class SetHandler(Handler):
    """Sets keep their order of iteration, where it does not depend on the process."""

    is_data = True

    is_hashed = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return set_tokens(obj, walk)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return set()

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        _refill_set(obj, _hashable_items(content[1], restore), is_ordered=content[0])


def set_tokens(obj: Any, walk: Walker) -> Any:
    """Returns whether the order counts, and the items."""
    items = list(set.__iter__(obj) if isinstance(obj, set) else frozenset.__iter__(obj))
    is_ordered = set(map(type, items)) <= _EXACT_HASH_TYPES
    if not is_ordered:  # the order depends on the hash seed of the process, or on addresses
        try:
            items.sort(key=lambda item: (type(item).__name__, marshal.dumps(item, 2)))
        except ValueError:  # objects: by what is known of them
            if walk.is_deferred():
                return is_ordered, ()
            items.sort(key=walk.order_key)
    return is_ordered, _bulk(items) or walk.refs(items)


def _refill_set(obj: set[Any], items: list[Any], *, is_ordered: bool) -> None:
    """Fills a set so that it has the order of the items: that depends on the size of its table, too."""
    set.clear(obj)
    for item in items:
        set.add(obj, item)
    if not is_ordered or list(obj) == items:
        return
    size, most = 8, max(_MIN_TABLE, _TABLE_FACTOR * len(items))
    while size <= most:
        # A larger table, as of a set that has shrunk: items that are removed again don't make it smaller.
        set.clear(obj)
        fillers = [("relive", number) for number in range(size)]
        for filler in fillers:
            set.add(obj, filler)
        for filler in fillers:
            set.discard(obj, filler)
        for item in items:
            set.add(obj, item)
        if list(obj) == items:
            return
        size *= 2
    raise CannotRestore("the order of its items can't be made again")


class DequeHandler(Handler):
    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return (
            deque.maxlen.__get__(obj),
            _bulk(obj) or walk.refs(list(deque.__iter__(obj))),
            attribute_tokens(obj, walk),
        )

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        made = cls.__new__(cls)
        deque.__init__(made, (), content[0])
        return made

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if deque.maxlen.__get__(obj) != content[0]:
            deque.__init__(obj, (), content[0])
        deque.clear(obj)
        deque.extend(obj, _items(content[1], restore))
        restore_attributes(obj, content[2], restore)


class DerivedHandler(Handler):
    """A class derived from list, dict or set: the content by the methods of the base class, and attributes."""

    is_data = True

    def __init__(self, base: type) -> None:
        self._base = base
        self.is_hashed = base is not list

    def content(self, obj: Any, walk: Walker) -> Any:
        factory = obj.default_factory if isinstance(obj, defaultdict) else None
        return (
            self._content(obj, walk),
            walk.ref(factory, ".", "default_factory"),
            attribute_tokens(obj, walk),
        )

    def _content(self, obj: Any, walk: Walker) -> Any:
        if self._base is list:
            items = list(list.__iter__(obj))
            return _bulk(items) or walk.refs(items)
        if self._base is set:
            return set_tokens(obj, walk)
        ordered = dict(OrderedDict.items(obj)) if self._base is OrderedDict else obj
        return dict_tokens(ordered, walk)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        items, factory, attributes = content
        if self._base is list:
            list.__setitem__(obj, slice(None), _items(items, restore))
        elif self._base is set:
            _refill_set(obj, _hashable_items(items[1], restore), is_ordered=items[0])
        else:
            base: Any = self._base
            base.clear(obj)
            setter = base.__setitem__
            for key, value in dict_items(items, restore):
                setter(obj, key, value)
        if isinstance(obj, defaultdict):
            obj.default_factory = restore.value(factory)
        restore_attributes(obj, attributes, restore)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        made = cls.__new__(cls)
        if issubclass(cls, OrderedDict):
            OrderedDict.__init__(made)
        return made


class FrozenSetHandler(Handler):
    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        items = sorted(obj, key=lambda item: _sort_key(item, walk))
        return (FROZEN_SET, *[walk.ref(item, form, f"{key}[{at}]") for at, item in enumerate(items)])


def _sort_key(item: Any, walk: Walker) -> tuple[Any, ...]:
    plain = type(item) in _BULK_TYPES or (type(item) is tuple and all(type(part) in _BULK_TYPES for part in item))
    return (type(item).__name__, *((marshal.dumps(item, 2),) if plain else walk.order_key(item)))


class NamedTupleHandler(Handler):
    """A subclass of tuple that has no attributes of its own."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        fields = getattr(type(obj), "_fields", ())
        labels = fields if len(fields) == len(obj) else range(len(obj))
        items = zip(labels, tuple.__iter__(obj), strict=True)
        kind = walk.ref(type(obj), form, f"{key}.__class__")
        return (NAMED_TUPLE, kind, *[walk.ref(item, form, f"{key}.{label}") for label, item in items])


class TupleHandler(Handler):
    """A subclass of tuple whose instances have attributes."""

    def content(self, obj: Any, walk: Walker) -> Any:
        return walk.refs(tuple.__iter__(obj)), attribute_tokens(obj, walk)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return tuple.__new__(restore.find_class(kind), [restore.value(token) for token in content[0]])

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        items = [restore.value(token) for token in content[0]]
        if tuple.__len__(obj) != len(items) or not all(map(_is_same, tuple.__iter__(obj), items)):
            raise CannotRestore("the items of a tuple can't be changed")
        restore_attributes(obj, content[1], restore)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _BULK_TYPES and one == other)


_EXACT: dict[type, Handler] = {
    list: ListHandler(), dict: DictHandler(), set: SetHandler(), deque: DequeHandler(), frozenset: FrozenSetHandler(),
}  # fmt: skip
_DERIVED: list[tuple[type, Handler]] = [
    (OrderedDict, DerivedHandler(OrderedDict)), (dict, DerivedHandler(dict)), (list, DerivedHandler(list)),
    (set, DerivedHandler(set)), (deque, DequeHandler()), (frozenset, FrozenSetHandler()),
]  # fmt: skip


def choose_container(kind: type) -> Handler | None:
    if kind in _EXACT:
        return _EXACT[kind]
    if issubclass(kind, tuple):
        return TupleHandler() if Attributes.of(kind).has_dict else NamedTupleHandler()
    return next((handler for base, handler in _DERIVED if issubclass(kind, base)), None)
