"""Makes the live objects of this process equal to a recorded graph, object by object, in place where possible.

Only what differs is touched. An object that exists here under its way is given the recorded content; one that does
not is created. If an object can't be changed in place it is replaced, and whatever holds it is changed, too.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from relive.checkpoint.graph import object_tokens as tokens
from relive.checkpoint.graph.graph_state import GraphState, StoredNode
from relive.checkpoint.graph.guards import guard_of
from relive.checkpoint.graph.matches import reachable
from relive.checkpoint.graph.object_tokens import Token, nodes_in
from relive.checkpoint.graph.registry import MISSING, CannotRestore, Handler, Restorer, handler_of, type_name
from relive.checkpoint.graph.token_values import build_value, find_class
from relive.checkpoint.graph.walk import KnownWays

ReadBuffer = Callable[[int, Any], None]  # reads the bytes of a buffer, by its way, into memory


class LiveObjects:
    """The objects and buffers of a walk over the live state, by way."""

    def __init__(self, walk: Any = None) -> None:
        self.nodes = {node.way: node for node in walk.nodes} if walk is not None else {}
        self.buffers = {buffer.way: buffer for buffer in walk.buffers.found} if walk is not None else {}
        self.unknown = dict(walk.unknown) if walk is not None else {}


class GraphRestore:
    """Restores one recorded graph into live objects."""

    def __init__(
        self,
        state: GraphState,
        live: LiveObjects,
        read: ReadBuffer,
        folder: str,
        flush: Callable[[], Any] = lambda: None,
    ) -> None:
        self._flush = flush  # reads what was only noted to be read
        self._state = state
        self._live = live
        self._read = read
        self._folder = folder
        self._objects: dict[int, Any] = {}
        self._done: set[int] = set()
        self._storages: dict[int, Any] = {}
        self._classes: dict[str, type] = {}
        self.has_gradients = state.has_gradients
        self._moved: set[int] = set()
        self._chosen: set[int] = set()  # the objects to restore
        self.failed_roots: dict[str, str] = {}
        self.failures: dict[int, str] = {}  # why objects could not be restored, by way
        self.replaced = self._find_replaced()

    # --- called by handlers -----------------------------------------------------------------------------------------

    def value(self, token: Token) -> Any:
        """Returns the object of a token; one that is being restored may not have all of its content yet."""
        if type(token) is not tuple:
            return token
        if len(token) == tokens.NODE and type(token[0]) is int:
            return self.object(token[0])
        return build_value(token, self, self._folder)

    def value_or(self, token: Token, current: Any) -> Any:
        """Returns the object of a token; `current` if it is of a kind that is left out of checkpoints."""
        is_left_out = type(token) is tuple and len(token) > tokens.NODE and token[0] == tokens.UNSEEN
        return current if is_left_out and current is not MISSING else self.value(token)

    def complete_value(self, token: Token) -> Any:
        """Returns the object of a token with all of its content, and that of everything it holds."""
        for way in nodes_in(token):
            self._complete(way, set())
        found = self.value(token)
        self._flush()
        return found

    def find_class(self, name: str) -> Any:
        """Returns a class by its full name; local classes are found by their instances here."""
        if name not in self._classes:
            self._classes[name] = find_class(name, self._live.nodes.values())
        return self._classes[name]

    def unmarshal(self, data: bytes) -> Any:
        """Returns the items of a large container."""
        return marshal.loads(data)

    def find_live(self, is_wanted: Callable[[Any], bool]) -> Any:
        """Returns the first live object for which this holds; None if there is none."""
        return next((node.obj for node in self._live.nodes.values() if is_wanted(node.obj)), None)

    def find_all(self, is_wanted: Callable[[Any], bool]) -> list[Any]:
        """Returns all live objects for which this holds."""
        return [node.obj for node in self._live.nodes.values() if is_wanted(node.obj)]

    def memory(self, way: int) -> Any:
        """Returns the memory of a buffer as an array of bytes: that of the live one, or new memory."""
        live = self._live_buffer(way)
        if live is not None and live.is_on_host and live.source is not None:
            owner = live.source
            if isinstance(owner, np.ndarray):
                return owner.reshape(-1).view(np.uint8) if owner.flags.c_contiguous else live.whole()
            return _bytes_of_storage(live.storage())
        if way not in self._storages:
            self._storages[way] = self._new_memory(way)
        found = self._storages[way]
        return found if isinstance(found, np.ndarray) else _bytes_of_storage(found)

    def storage(self, way: int, device: str) -> Any:
        """Returns the memory of a buffer as a storage of torch."""
        torch = sys.modules["torch"]
        live = self._live_buffer(way)
        if live is not None and live.source is not None:
            if not isinstance(live.source, np.ndarray):
                return live.storage()
            return torch.from_numpy(self.memory(way)).untyped_storage()
        if way not in self._storages:
            self._storages[way] = self._new_memory(way)
        made = self._storages[way]
        if isinstance(made, np.ndarray):
            self._storages[way] = made = torch.from_numpy(made).untyped_storage()
        if device != "cpu":
            self._storages[way] = made = made.to(device=torch.device(device))
        return made

    def is_memory_of(self, way: int, address: int) -> bool:
        """Whether a buffer is at an address now."""
        live = self._live_buffer(way)
        if live is not None:
            return bool(live.address == address)
        made = self._storages.get(way)
        if made is None:
            return False
        if isinstance(made, np.ndarray):
            return bool(made.__array_interface__["data"][0] == address)
        return bool(made.data_ptr() == address)

    @property
    def changed_identity(self) -> set[int]:
        """The ways of objects that new ones have replaced."""
        return {
            way for way, node in self._live.nodes.items() if way in self._objects and self._objects[way] is not node.obj
        }

    def adopted(self, start: GraphState) -> KnownWays:
        """Returns the ways of objects and memory that were made now, and that existed when the loop began."""
        found = KnownWays()
        for way, obj in self._objects.items():
            live = self._live.nodes.get(way)
            if way in start.nodes and (live is None or live.obj is not obj):
                node = start.nodes[way]
                found.objects[id(obj)] = way, type(obj), guard_of(obj, (node.parent, node.label))
        for way in self._storages.keys() & start.buffers.keys():
            made = self._storages[way]
            address = made.__array_interface__["data"][0] if isinstance(made, np.ndarray) else made.data_ptr()
            found.buffers[address, self._state.buffers[way].size_bytes] = way, made
        return found

    # --- objects ----------------------------------------------------------------------------------------------------

    def object(self, way: int) -> Any:
        if way not in self._objects:
            node, live = self._state.nodes.get(way), self._live.nodes.get(way)
            if live is not None and (node is None or (live.kind == node.kind and way not in self.replaced)):
                self._objects[way] = live.obj
            elif node is None or node.content is None:
                raise CannotRestore("the checkpoint does not hold it")
            else:
                self._objects[way] = self._created(node)
        return self._objects[way]

    def _created(self, node: StoredNode) -> Any:
        handler = self._handler(node)
        try:
            made = self._make(node, handler)
        except CannotRestore:
            raise
        except Exception as error:  # a class that can't be made without arguments, and the like
            raise CannotRestore(f"it can't be made again ({type(error).__name__}: {error})") from error
        if handler.creates_complete:
            self._done.add(node.way)
        return made

    def _make(self, node: StoredNode, handler: Handler) -> Any:
        return handler.create(node.kind, node.content, self)

    def _refill(self, obj: Any, node: StoredNode, handler: Handler) -> None:
        handler.restore(obj, node.content, self)

    def reachable(self, token: Token) -> list[int]:
        return reachable(self._state, token)

    def root_values(self, current: Mapping[str, Token]) -> dict[str, Any]:
        """Returns the objects of roots that are bound to something else now."""
        moved = self.changed_identity
        found: dict[str, Any] = {}
        for key, token in self._state.roots.items():
            if current.get(key, self) == token and not any(way in moved for way in nodes_in(token)):
                continue
            try:
                found[key] = self.value(token)
            except CannotRestore as error:
                if key in current and current[key] == token:
                    continue
                self.failed_roots[key] = str(error)
        self._finish_created()
        return found

    def run(self, ways: Iterable[int] | None = None) -> None:
        """Restores everything that differs, or only these objects: memory, then objects, then what hashes objects."""
        chosen = set(self._state.nodes) | set(self._state.buffers) if ways is None else set(ways)
        self._chosen = chosen
        self.restore_buffers(chosen)
        differing = [node for way, node in self._state.nodes.items() if way in chosen and self._differs(node)]
        for is_hashed in (False, True):
            for node in differing:
                if self._handler(node).is_hashed is is_hashed:
                    self._restore_node(node)
        self._finish_created()
        self._rebind_holders()

    def _finish_created(self) -> None:
        """Fills objects that were created on the way."""
        while left := [way for way in self._objects if way not in self._done and self._is_created(way)]:
            for way in left:
                self._restore_node(self._state.nodes[way])

    def _is_created(self, way: int) -> bool:
        live = self._live.nodes.get(way)
        return way in self._state.nodes and (live is None or live.obj is not self._objects[way])

    def _differs(self, node: StoredNode) -> bool:
        live = self._live.nodes.get(node.way)
        return live is not None and (
            live.digest != node.digest or node.way in self.replaced or self._holds_replaced(node)
        )

    def _holds_replaced(self, node: StoredNode) -> bool:
        return bool(self.replaced) and any(way in self.replaced for way in nodes_in(node.content))

    def _restore_node(self, node: StoredNode) -> None:
        if node.way in self._done:
            return
        self._done.add(node.way)
        if node.way in self._state.unknown:
            return  # listed as unknown, whatever it is here
        try:
            if node.content is None:
                raise CannotRestore("the checkpoint does not hold it")
            handler = self._handler(node)
            if not handler.is_restorable:
                raise CannotRestore("objects of its kind can't be restored")
            self._restore_or_replace(node, handler)
        except Exception as error:  # noqa: BLE001 - one object that can't be restored is named; the others are restored
            self.failures[node.way] = f"{error}" or type(error).__name__

    def _restore_or_replace(self, node: StoredNode, handler: Handler) -> None:
        """Gives an object its content; if it can't be changed in place, a new one takes its place."""
        target = self.object(node.way)
        try:
            self._refill(target, node, handler)
        except CannotRestore as error:
            try:
                made = self._make(node, handler)
            except Exception:  # noqa: BLE001 - what went wrong first says more
                raise error from None
            if made is target:
                raise
            self._objects[node.way] = made
            if not handler.creates_complete:
                self._refill(made, node, handler)
            self._moved.add(node.way)

    def _rebind_holders(self) -> None:
        """Whatever holds an object that was replaced gets the new one."""
        while self._moved:
            moved, self._moved = self._moved, set()
            for node in self._state.nodes.values():
                is_chosen = node.way in self._chosen and node.content is not None
                if is_chosen and any(way in moved for way in nodes_in(node.content)):
                    self._done.discard(node.way)
                    self._restore_node(node)

    def _complete(self, way: int, seen: set[int]) -> None:
        node = self._state.nodes.get(way)
        if node is None or way in seen:
            return
        seen.add(way)
        for inner in nodes_in(node.content):
            self._complete(inner, seen)
        self.object(way)
        if way not in self._done and (self._is_created(way) or self._differs(node)):
            self._restore_node(node)

    def _find_replaced(self) -> set[int]:
        """Returns the objects that exist here with another type, or can't be changed in place, and differ."""
        found: set[int] = set()
        for way, node in self._state.nodes.items():
            live = self._live.nodes.get(way)
            if live is None or node.content is None or live.digest == node.digest:
                continue
            if live.kind != node.kind or not _fits_in_place(live.obj, node):
                found.add(way)
        return found

    def _handler(self, node: StoredNode) -> Handler:
        live = self._live.nodes.get(node.way)
        if live is not None and live.kind == node.kind:
            return live.handler  # type: ignore[no-any-return]
        if node.kind in _CHOSEN_BY_OBJECT:
            return handler_of(_CHOSEN_BY_OBJECT[node.kind])[0].of_nodes or _NO_CLASS
        try:
            found: Handler = handler_of(self.find_class(node.kind))[0]
        except CannotRestore:
            return _NO_CLASS
        return found

    def _live_buffer(self, way: int) -> Any:
        """Returns the live memory of a buffer, unless it has another size now."""
        live, stored = self._live.buffers.get(way), self._state.buffers.get(way)
        return live if live is not None and (stored is None or stored.size_bytes == live.size_bytes) else None

    # --- memory -----------------------------------------------------------------------------------------------------

    def restore_buffers(self, chosen: set[int]) -> None:
        """Fills the memory of live buffers that differ."""
        for way, stored in self._state.buffers.items():
            live = self._live.buffers.get(way)
            if way not in chosen or live is None or live.size_bytes != stored.size_bytes or way in self._state.unknown:
                continue
            if live.digest is not None and live.digest == stored.digest:
                continue
            if stored.leaf is None:
                if stored.digest is not None and live.digest is not None:
                    self.failures[way] = "the checkpoint does not hold its memory"
                continue
            self._fill(way, live)

    def _fill(self, way: int, live: Any) -> None:
        if live.is_on_host:
            self._read(way, live.whole())
        else:
            torch = sys.modules["torch"]
            memory = np.empty(live.size_bytes, np.uint8)
            self._read(way, memory)
            live.whole().copy_(torch.from_numpy(memory))

    def _new_memory(self, way: int) -> Any:
        stored = self._state.buffers.get(way)
        if stored is None or stored.leaf is None:
            raise CannotRestore("the checkpoint does not hold its memory")
        torch = sys.modules.get("torch")
        if torch is not None:
            storage = torch.empty(stored.size_bytes, dtype=torch.uint8).untyped_storage()
            self._read(way, _bytes_of_storage(storage))
            return storage
        memory = np.empty(stored.size_bytes, np.uint8)
        self._read(way, memory)
        return memory


class _MissingClassHandler(Handler):
    """Stands for a class that this process does not have."""

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        raise CannotRestore(f"there is no class {kind} here")


_NO_CLASS = _MissingClassHandler()
# Types whose handler does not follow from the type alone.
_CHOSEN_BY_OBJECT: dict[str, type] = {type_name(kind): kind for kind in (type, FunctionType, ModuleType)}


def _bytes_of_storage(storage: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


def _fits_in_place(obj: Any, node: StoredNode) -> bool:
    """Whether an array still has the shape and memory that it had: an array of numpy can't get others."""
    if not isinstance(obj, np.ndarray) or node.content[0] == "object":
        return True
    _, _, shape, strides, offset, _, _, _ = node.content
    return bool(obj.shape == shape and obj.strides == strides and offset >= 0)
