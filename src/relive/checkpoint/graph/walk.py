"""Walks over all objects that can be reached from some roots, and takes the content of each.

No code of the user's is called.
Each object is met first on some path, which gives it its *way*, a hash of that path. Its content names the objects
that it holds by their ways, so sharing and order are part of it, cycles end, and no address is in it: contents can be
compared with those of another process. A walk that is given the ways of an earlier one keeps them for objects that
still exist; objects that are new since then get ways of their own.
"""

from __future__ import annotations

import marshal
import sys
import time
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

from relive.checkpoint.graph.buffers import Buffer, BufferTable
from relive.checkpoint.graph.guards import guard_of, is_still, is_still_at, keeps_alive
from relive.checkpoint.graph.handlers import own_dict
from relive.checkpoint.graph.object_tokens import FOLDER, IDENTITY, PLAIN_TYPES, TUPLE, UNSEEN, Token
from relive.checkpoint.graph.registry import Handler, Unreadable, class_handler_of, handler_of, type_name

MARSHAL_VERSION = 2  # later ones depend on reference counts
MAX_TUPLE_DEPTH = 40
_CHECK_EVERY = 64  # nodes between two looks at the clock
_WAITING = 4.0  # times the time for a walk, which is that of the processor, may pass
NOT_REACHED = "not reached in time"
_now, _cpu_now = time.perf_counter, time.thread_time


class ObjectNode:
    """One object of the graph."""

    __slots__ = ("content", "digest", "form", "handler", "key", "kind", "obj", "parent", "way")

    def __init__(self, obj: Any, way: int, parent: int, form: str, key: Any, kind: str, handler: Handler) -> None:
        self.obj = obj
        self.way = way
        self.parent = parent  # way of the object that it was met in first
        self.form = form  # how it is held there: an attribute, an item
        self.key = key
        self.kind = kind
        self.handler = handler
        self.content: Any = None
        self.digest = 0

    @property
    def label(self) -> str:
        return label_of(self.form, self.key)


def label_of(form: str, key: Any) -> str:
    if form == "[":
        return f"[{key!r}]" if type(key) in (str, int, bool) else f"[{key}]"
    return f"{form}{key}"


class KnownWays:
    """The ways of objects and buffers that an earlier walk met, by identity.

    Another object may be at the address of one that has died, so guards tell; lists and dicts, which can't have weak
    references, are kept alive until `forget_dead`.
    """

    def __init__(self) -> None:
        self.objects: dict[int, tuple[int, type, Any]] = {}  # way, type, and what tells whether it is still that object
        self.buffers: dict[tuple[int, int], tuple[int, Any]] = {}  # way, and what tells whether it is still that memory

    def forget_dead(self) -> None:
        """Lets go of objects that nobody else refers to."""
        count = sys.getrefcount
        dead = [
            identity
            for identity, (_, _, guard) in self.objects.items()
            if keeps_alive(guard) and count(guard) <= _OWN_REFERENCES
        ]
        for identity in dead:
            del self.objects[identity]


NOTHING_KNOWN = KnownWays()
_OWN_REFERENCES = 3  # the entry of an object, the variable of the loop, and the argument


class ObjectWalk:
    """One walk. Afterwards `nodes` has every object that was reached, `unknown` those that could not be looked at."""

    def __init__(
        self, folder: str, known: KnownWays = NOTHING_KNOWN, *, seconds: float = 60.0, generation: str = ""
    ) -> None:
        from xxhash import xxh3_64_intdigest

        self.hash = xxh3_64_intdigest
        self.nodes: list[ObjectNode] = []
        self.roots: dict[str, Token] = {}
        self.unknown: dict[int, str] = {}  # reasons, by way
        self.unknown_names: dict[str, str] = {}  # the same for what has no way
        self.displayed: list[ObjectNode] = []  # objects that are left out because they only display something
        self.with_gradients = True
        self.memo: dict[int, Any] = {}  # what handlers remember from walk to walk, by identity
        self.is_end = False
        self.is_cut = False  # whether the time was up before everything was looked at
        self._folder = folder
        self._known = known
        self._generation = generation  # of ways that objects get if they are not known
        # Work counts, rather than time in which other processes have the core; but waiting for disks ends as well.
        self._cpu_deadline, self._deadline = _cpu_now() + seconds, _now() + _WAITING * seconds
        self._tokens: dict[int, Token] = {}
        self._kept: list[Any] = []  # objects that were made for the walk
        self._made: set[int] = set()  # their identities, and those of what they hold
        self._is_parent_made = False
        self._parent = 0
        self._node: ObjectNode | None = None
        self._with_identities: list[ObjectNode] = []
        self._are_all_met = False
        self._deferred: list[ObjectNode] = []
        self._takes_deferred = False
        self._tuple_depth = 0
        self._classes: set[type] = set()  # of the objects that were met
        self.buffers = BufferTable(self)

    # --- called by handlers -----------------------------------------------------------------------------------------

    def ref(self, obj: Any, form: str, key: Any) -> Token:
        """Returns the token of an object that the current one holds; `form` and `key` say where."""
        kind = type(obj)
        if kind in PLAIN_TYPES:
            return obj
        if kind is str:
            folder = self._folder
            return obj if not obj.startswith(folder) else (FOLDER, obj[len(folder) :])
        if kind is tuple:
            return self._tuple(obj, form, key)
        identity = id(obj)
        token = self._tokens.get(identity)
        if token is not None:
            return token
        handler, name = handler_of(kind)
        if handler.is_inline:
            return handler.token(obj, self, form, key)
        known = self._known.objects.get(identity)
        if (
            known is not None
            and known[1] is kind
            and identity not in self._made
            and (is_still(known[2], obj) or is_still(known[2], obj, (self._parent, label_of(form, key))))
        ):
            way = known[0]
        else:
            if self._is_parent_made:
                self._made.add(identity)
            way = self.new_way(form, key, is_made=identity in self._made)
        token = self._tokens[identity] = (way,)
        self.nodes.append(ObjectNode(obj, way, self._parent, form, key, name, handler))
        return token

    def node_token(self, obj: Any, form: str, key: Any, handler: Handler) -> Token:
        """Returns the token of an object with a handler that does not follow from its type alone."""
        identity = id(obj)
        token = self._tokens.get(identity)
        if token is None:
            known = self._known.objects.get(identity)
            is_known = known is not None and known[1] is type(obj) and is_still(known[2], obj)
            way = known[0] if known is not None and is_known else self.new_way(form, key)
            token = self._tokens[identity] = (way,)
            self.nodes.append(ObjectNode(obj, way, self._parent, form, key, type_name(type(obj)), handler))
        return token

    def refs(self, objects: Iterable[Any]) -> tuple[Token, ...]:
        """Returns the tokens of items, numbered."""
        ref = self.ref
        return tuple([obj if type(obj) in PLAIN_TYPES else ref(obj, "[", at) for at, obj in enumerate(objects)])

    def attributes(self, values: Mapping[str, Any]) -> tuple[Token, ...]:
        """Returns names and tokens of attributes, alternating."""
        ref, found = self.ref, []
        for name, value in values.items():
            found.append(name)
            found.append(value if type(value) in PLAIN_TYPES else ref(value, ".", name))
        return tuple(found)

    def identity_token(self, number: int) -> Token:
        """Returns the token of a number that may be the `id` of an object: then it is another one in each process."""
        if not self._are_all_met:
            if self._node is not None and self._node not in self._with_identities:
                self._with_identities.append(self._node)
            return number
        token = self._tokens.get(number)
        return (IDENTITY, token) if token is not None else number

    def is_deferred(self) -> bool:
        """Whether the current object is looked at again when all others are known: it has no order of its own."""
        if not self._takes_deferred and self._node is not None:
            self._deferred.append(self._node)
        return not self._takes_deferred

    def order_key(self, obj: Any) -> tuple[Any, ...]:
        """Returns a key to sort objects by that does not depend on addresses: their way, or their plain content."""
        token = self._tokens.get(id(obj)) or (self._known.objects.get(id(obj)) or ())[:1]
        if token:
            return (0, token[0], b"")
        if isinstance(obj, type | FunctionType | BuiltinFunctionType):
            return (1, f"{obj.__module__}.{obj.__qualname__}", b"")
        own = own_dict(obj) or {"": obj}
        plain = [(name, value) for name, value in own.items() if type(value) in PLAIN_TYPES or type(value) is str]
        return (1, type(obj).__qualname__, marshal.dumps(plain, MARSHAL_VERSION))

    def made(self, obj: Any) -> Any:
        """Marks an object that was made for the walk, and keeps it alive: another at its address would pass for it.

        It is a new one in every walk, so its way is that of its path, whatever was known before.
        """
        self._kept.append(obj)
        self._made.add(id(obj))
        return obj

    def new_way(self, form: str, key: Any, *, is_made: bool = False) -> int:
        text = f"{'' if is_made else self._generation}{self._parent:x}{form}{key}"
        return int(self.hash(text.encode("utf-8", "surrogatepass")))

    def known_buffer(self, address: int, size_bytes: int) -> int | None:
        known = self._known.buffers.get((address, size_bytes))
        return known[0] if known is not None and is_still_at(known[1], address) else None

    @property
    def parent(self) -> int:
        return self._parent

    def _tuple(self, obj: tuple[Any, ...], form: str, key: Any) -> Token:
        """A tuple has no state of its own, so it is part of the content of whatever holds it."""
        self._tuple_depth += 1
        try:
            if self._tuple_depth > MAX_TUPLE_DEPTH:
                raise Unreadable("tuples are nested too deeply")
            ref = self.ref
            label = label_of(form, key)
            return (
                TUPLE,
                *[item if type(item) in PLAIN_TYPES else ref(item, label, f"[{at}]") for at, item in enumerate(obj)],
            )
        finally:
            self._tuple_depth -= 1

    # --- walking ----------------------------------------------------------------------------------------------------

    def add_root(self, key: str, obj: Any, name: str) -> None:
        """Adds a root, with the name that users know it by; all roots come before `run`."""
        try:
            self.roots[key] = self.ref(obj, "", name)
        except Exception as error:  # noqa: BLE001 - whatever a strange object raises, it is unknown
            self.note_unknown(name, _reason(error))
            self.roots[key] = (UNSEEN, type(obj).__qualname__)

    def note_unknown(self, name: str, why: str) -> None:
        """Notes something that could not be looked at and that is no object of the graph."""
        self.unknown_names[name] = why

    def note_displayed(self, obj: Any, form: str, key: Any) -> None:
        """Notes an object that is left out, with its path."""
        handler, kind = handler_of(type(obj))
        self.displayed.append(ObjectNode(None, self.new_way(form, key), self._parent, form, key, kind, handler))

    def run(self) -> None:
        """Takes the content of every object, nearest first, until the time is up."""
        nodes, at = self.nodes, self._take_contents(0)
        self._takes_deferred = True
        for node in self._deferred:
            self._take_content(node)
        at = self._take_contents(at)
        self._are_all_met = True
        for node in self._with_identities:
            self._take_content(node)
        while at < len(nodes):
            if nodes[at].handler.is_essential:
                self._take_content(nodes[at])
            else:
                self.unknown[nodes[at].way] = NOT_REACHED
                self.is_cut = True
            at += 1

    def _take_contents(self, at: int) -> int:
        """Takes the contents of objects from a number on; returns the number of the first that it did not come to."""
        nodes = self.nodes
        while at < len(nodes):
            if at % _CHECK_EVERY == 0 and (_cpu_now() > self._cpu_deadline or _now() > self._deadline):
                break
            self._take_content(nodes[at])
            at += 1
        return at

    def _take_content(self, node: ObjectNode) -> None:
        self._node, self._parent = node, node.way
        self._is_parent_made = id(node.obj) in self._made
        try:
            if type(node.obj) not in self._classes:
                self._meet_class(type(node.obj))
            handler = node.handler
            node.content = content = handler.content(node.obj, self)
            if not handler.is_hashed_whole:
                content = handler.fingerprint(content)
            node.digest = self.hash(marshal.dumps((node.kind, content), MARSHAL_VERSION))
        except Exception as error:  # noqa: BLE001 - changed by another thread, closed, broken: unknown, with its name
            self.unknown[node.way] = _reason(error)
            node.content, node.digest = None, 0

    def _meet_class(self, kind: type) -> None:
        """Classes hold state of their instances, whether or not a variable names them."""
        for base in kind.__mro__:
            if base not in self._classes:
                self._classes.add(base)
                handler = class_handler_of(base)
                if handler is not None:
                    self.node_token(base, ".", "__class__" if base is kind else base.__qualname__, handler)

    def known_ways(self) -> KnownWays:
        """Returns the ways of everything that was met, for later walks."""
        known = KnownWays()
        made = self._made
        known.objects = {
            id(node.obj): (node.way, type(node.obj), guard_of(node.obj, (node.parent, node.label)))
            for node in self.nodes
            if id(node.obj) not in made
        }
        known.buffers = {(one.address, one.size_bytes): (one.way, guard_of(one.source)) for one in self.buffers.found}
        return known

    def release(self) -> None:
        """Lets go of all objects."""
        for node in self.nodes:
            node.obj = None
        self._kept, self._tokens, self._made = [], {}, set()
        for buffer in self.buffers.found:
            buffer.release()


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0][:120] if str(error) else ""
    return text if isinstance(error, Unreadable) else f"{type(error).__name__}: {text}"


__all__ = ["Buffer", "KnownWays", "ObjectNode", "ObjectWalk", "label_of"]
