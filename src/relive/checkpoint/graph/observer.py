"""Observes what a loop changes: a walk when it begins, and walks later that are compared with that one.

What differs is what a checkpoint must hold. What was looked at and is equal needs not be held; what could not be
looked at is unknown, with its name.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Any

from relive.checkpoint.graph.buffers import Buffer
from relive.checkpoint.graph.graph_state import GraphState, StoredBuffer, path_name, stored_nodes
from relive.checkpoint.graph.handlers import (
    FinalizerState,
    FolderState,
    LibraryState,
    ModuleHandler,
    ProcessState,
    RandomState,
)
from relive.checkpoint.graph.object_tokens import is_node
from relive.checkpoint.graph.registry import DISPLAY
from relive.checkpoint.graph.roots import NAMED, Roots, changed_threads
from relive.checkpoint.graph.walk import NOT_REACHED, KnownWays, ObjectNode, ObjectWalk
from relive.checkpoint.memory import MemoryDigest

MAX_START_S = 2.0  # of the first walk, however long the process has run
START_SHARE = 0.03  # of the time since the process began
MIN_START_S = 0.25
MAX_HASHED_BYTES = 256 << 20  # of memory that has not been seen to change, in each walk
MAX_KEPT_BYTES = 1 << 20  # buffers up to this size are held from the start, whether they change or not
MAX_KEPT_TOTAL_BYTES = 16 << 20
MAX_MODEL_BYTES = 32 << 20  # models up to this size are held from the start
_MAX_PATH = 50
LATER = "+"  # the generation of ways of objects that did not exist at the start
_now = time.perf_counter


@dataclass(slots=True)
class Observation:
    """The state at one moment, as a difference to the start."""

    changes: GraphState  # nodes that differ from the start, or are new
    copied: list[Buffer]  # buffers whose bytes have to be copied, in the order of their leaves
    unkept: list[str]  # what changed and can't be restored, by name, with the reason
    unknown: list[str]  # what could not be looked at, by name, with the reason
    walk_s: float = 0.0


class Observer:
    """Observes one loop. The recording and the replaying process have one each, with the same roots."""

    def __init__(self, home: str = "") -> None:
        self._home = home
        self.folder = _working_folder()
        self.process: dict[str, Any] = {}
        self.start: GraphState | None = None
        self.start_leaves: list[bytes] = []
        self._known = KnownWays()
        self._volatile: set[int] = set()  # buffers that are copied without looking whether they have changed
        self._memo: dict[int, Any] = {}
        self.memory_digest = MemoryDigest(())
        self.with_gradients = False
        self.launcher_port = "", ""  # then and now
        self._items: int | None = None  # the way of what the loop iterates over: a replay draws its items again

    @property
    def volatile_bytes(self) -> int:
        """The size of the buffers that are copied by every capture, as far as they are known at the start."""
        buffers = self.start.buffers.values() if self.start is not None else ()
        return sum(one.size_bytes for one in buffers if one.way in self._volatile)

    @property
    def is_started(self) -> bool:
        return self.start is not None

    def begin(self, roots: Roots, *, elapsed_s: float, items: Any = None) -> None:
        """Walks over the state when the loop begins, which iterates over `items`."""
        self.process = {
            "process": ProcessState(), "random generators": RandomState(), "libraries": LibraryState(),
            "finalizers": FinalizerState(), "files": FolderState(self.folder, self._home),
        }  # fmt: skip
        walk = self.walk(roots, seconds=min(MAX_START_S, max(MIN_START_S, START_SHARE * elapsed_s)))
        self._mark_volatile(walk)
        self._hash_stable(walk, is_start=True)
        leaves = self._keep_small(walk)
        self.start = GraphState(
            stored_nodes(walk.nodes), _stored_buffers(walk.buffers.found), dict(walk.roots), dict(walk.unknown)
        )
        self.start_leaves = leaves
        nodes = {node.way: node.obj for node in walk.nodes}
        volatile = [one for one in walk.buffers.found if one.way in self._volatile]
        self.memory_digest = MemoryDigest((one, nodes.get(one.parent)) for one in volatile)
        self._known = walk.known_ways()
        self._memo = {}  # ways of the start are not those of later objects
        known = self._known.objects.get(id(items))
        self._items = known[0] if known is not None else None
        walk.release()

    def use_known(self, known: KnownWays) -> None:
        """Gives objects the ways of their counterparts in a recorded graph."""
        self._known = known

    def adopt(self, known: KnownWays) -> None:
        """Takes objects that a restore has made for those that existed when the loop began."""
        self._known.objects.update(known.objects)
        self._known.buffers.update(known.buffers)
        self._memo.clear()

    def walk(self, roots: Roots, *, seconds: float = 60.0) -> ObjectWalk:
        """Walks over the state now; the caller releases it."""
        is_start = self.start is None
        walk = ObjectWalk(self.folder, self._known, seconds=seconds, generation="" if is_start else LATER)
        walk.with_gradients = self.with_gradients
        walk.memo = self._memo
        everything = replace(roots, process=self.process)
        everything.add_to(walk)
        walk.run()
        return walk

    def observe(self, roots: Roots, *, seconds: float = 60.0) -> Observation:
        """Walks over the state and compares it with the start."""
        begun = _now()
        self._known.forget_dead()
        walk = self.walk(roots, seconds=seconds)
        self._mark_volatile(walk)
        self._hash_stable(walk, is_start=False)
        start = self.start or GraphState()
        changed = [node for node in walk.nodes if not _is_same(node, start)]
        copied = [buffer for buffer in walk.buffers.found if self._is_copied(buffer, start)]
        first = len(self.start_leaves)
        for at, buffer in enumerate(copied):
            buffer.leaf = first + at
        nodes = {node.way: node for node in (*walk.nodes, *walk.displayed)}
        buffers = {buffer.way: buffer for buffer in walk.buffers.found}
        unknown = {**walk.unknown, **{one.way: f"{one.kind} {DISPLAY}" for one in walk.displayed}}
        if walk.is_cut:  # what is held by objects that were not looked at was not even met
            before = start.nodes.keys() | start.buffers.keys()
            unknown |= dict.fromkeys(before - nodes.keys() - buffers.keys(), NOT_REACHED)

        def name(way: int) -> str:
            return path_name(way, nodes, buffers)

        touched = [one for one in walk.buffers.found if one.leaf is not None or one.way not in start.buffers]
        changes = GraphState(
            stored_nodes([*changed, *walk.displayed]), _stored_buffers(touched),
            dict(walk.roots), unknown, roots.names_left_out(), walk.with_gradients,
        )  # fmt: skip
        found = Observation(
            changes, copied,
            unkept=[
                f"{name(node.way)} can't be kept in a checkpoint ({node.kind})"
                for node in changed
                if node.way not in walk.unknown
                and not node.handler.can_restore(node.content)
                and not _is_below(node, self._items, nodes)
            ]
            + [
                f"variables of {one}, which runs in another thread, can't be kept"
                for one in changed_threads(start.roots, walk.roots)
            ],
            unknown=[f"{name(way)}: {why}" for way, why in walk.unknown.items()]
            + [f"{what}: {why}" for what, why in walk.unknown_names.items()],
            walk_s=_now() - begun,
        )  # fmt: skip
        self._last = walk  # keeps what owns the memory alive until it is copied
        return found

    def release(self) -> None:
        """Lets go of the objects of the last walk, once the memory was copied."""
        self._last.release()

    # --- memory -----------------------------------------------------------------------------------------------------

    def _mark_volatile(self, walk: ObjectWalk) -> None:
        """Marks the memory of named objects, parameters and modules: it is held whether it changes or not."""
        nodes = {node.way: node for node in walk.nodes}
        named = {token[0] for key, token in walk.roots.items() if key[0] == NAMED and is_node(token)}
        for buffer in walk.buffers.found:
            if buffer.way not in self._volatile and _is_volatile(nodes, buffer, named):
                self._volatile.add(buffer.way)

    def _hash_stable(self, walk: ObjectWalk, *, is_start: bool) -> None:
        left = MAX_HASHED_BYTES
        for buffer in sorted(walk.buffers.found, key=lambda one: one.size_bytes):
            if not is_start and (buffer.way in self._volatile or not self._was_there(buffer)):
                continue
            if not buffer.is_on_host:
                self._volatile.add(buffer.way)
                continue
            left -= buffer.size_bytes
            if left < 0:
                walk.unknown[buffer.way] = f"{buffer.size_bytes >> 20} MB of memory, too much to look at"
                continue
            buffer.digest = int(walk.hash(buffer.view()))

    def _was_there(self, buffer: Buffer) -> bool:
        return self.start is not None and buffer.way in self.start.buffers

    def _is_copied(self, buffer: Buffer, start: GraphState) -> bool:
        before = start.buffers.get(buffer.way)
        if buffer.way in self._volatile or before is None or before.size_bytes != buffer.size_bytes:
            return True
        if buffer.digest is None or before.digest is None:
            return False  # unknown
        if buffer.digest != before.digest:
            self._volatile.add(buffer.way)
            return True
        return False

    def _keep_small(self, walk: ObjectWalk) -> list[bytes]:
        """Holds small buffers and small models as they are at the start: a script that is not seeded makes others."""
        on_host = sorted((one for one in walk.buffers.found if one.is_on_host), key=lambda one: one.size_bytes)
        model = [one for one in on_host if one.way in self._volatile]
        kept = model if sum(one.size_bytes for one in model) <= MAX_MODEL_BYTES else []
        left = MAX_KEPT_TOTAL_BYTES
        for buffer in on_host:
            if buffer.way not in self._volatile and buffer.size_bytes <= min(MAX_KEPT_BYTES, left):
                left -= buffer.size_bytes
                kept.append(buffer)
        for at, buffer in enumerate(kept):
            buffer.leaf = at
        return [buffer.view().tobytes() for buffer in kept]


def _is_volatile(nodes: dict[int, ObjectNode], buffer: Buffer, named: set[int]) -> bool:
    holder = nodes.get(buffer.parent)
    if holder is not None and getattr(holder.obj, "requires_grad", False):
        return True
    owner = nodes.get(holder.parent) if holder is not None else None
    if owner is not None and type(owner.handler) is ModuleHandler:
        return True
    seen = 0
    while holder is not None and seen < _MAX_PATH:
        if holder.way in named:
            return True
        holder, seen = nodes.get(holder.parent), seen + 1
    return False


def _is_below(node: ObjectNode, way: int | None, nodes: dict[int, ObjectNode]) -> bool:
    """Whether an object is met first inside another one."""
    current: ObjectNode | None = node
    for _ in range(_MAX_PATH):
        if current is None or way is None:
            return False
        if current.way == way:
            return True
        current = nodes.get(current.parent)
    return False


def _is_same(node: ObjectNode, start: GraphState) -> bool:
    before = start.nodes.get(node.way)
    return before is not None and before.digest == node.digest and before.kind == node.kind


def _stored_buffers(buffers: list[Buffer]) -> dict[int, StoredBuffer]:
    return {one.way: StoredBuffer(one.way, one.parent, one.size_bytes, one.digest, one.leaf) for one in buffers}


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return os.sep
