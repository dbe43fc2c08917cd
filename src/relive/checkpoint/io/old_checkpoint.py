"""Reads a checkpoint: restores live objects in place, or builds new values, reading only what is needed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from relive.checkpoint.memory import (
    Json,
    SharedContainers,
    StoredTensor,
    build_tensor,
    fill_tensor,
    unflatten,
    writable_memory,
)
from relive.checkpoint.state import (
    ModuleHandler,
    ObjectHandler,
    handler_for,
    part_name,
    refill,
    restore_gradients,
    restore_random_states,
)
from relive.errors import Damaged, NotFound
from relive.store.chunks import Chunks, Packs, Piece, read_pieces, record_restore

if TYPE_CHECKING:
    from relive.checkpoint.state import DiscoveredState

RANDOM_STATES = "random states"  # the entry of the global random generators
VARIABLES = "variables"  # prefix: live-out variables of the loop
OUTER_VARIABLES = "around"  # prefix: variables of the frames around a nested loop when it ended
GRADIENTS = "gradients"  # the entry of loop-carried gradients
UNCAPTURED = "unkept"  # the entry with the names of variables that were not captured
_INTERNAL_KINDS = frozenset({"places", "file", "lost", "module attributes"})  # not for `restore(into=…)`
_TENSOR_KINDS = frozenset({"module", "optimizer", "array", "generator"})  # which hold no other objects
DISCOVERED = "near"  # prefix: objects discovered around the loop


class _CheckpointManifest(msgspec.Struct):
    v: int
    subjects: dict[str, dict[str, Json]]  # name → kind, leaves, rest
    leaves: list[StoredTensor]
    blobs: list[list[int]]
    pieces: list[Piece]


_decode = msgspec.json.Decoder(_CheckpointManifest).decode


def _decode_manifest(content: bytes, name: str) -> _CheckpointManifest:
    try:
        return _decode(content)
    except msgspec.DecodeError as error:
        raise Damaged(f"manifest {name[:12]} can't be read ({error}); restore another checkpoint") from error


def _with_module_parts(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Returns these objects, and the layers, parameters and buffers of those that are modules."""
    found = dict(objects)
    torch = sys.modules.get("torch")
    for name, obj in objects.items():
        if torch is not None and isinstance(obj, torch.nn.Module):
            handler = ModuleHandler(obj)
            handler.tensors()
            found |= {part_name(name, path): part for path, part in handler.parts.items()}
    return found


class OldCheckpoint:
    """A stored checkpoint. Reading tensors runs no code; pickled parts are loaded only when they are needed."""

    def __init__(self, manifest: str, chunks: Chunks, packs: Packs) -> None:
        content = _decode_manifest(chunks.get(manifest), manifest)
        self._entries = content.subjects
        self._leaves = content.leaves
        self._blobs = content.blobs
        self._pieces = content.pieces
        self._packs = packs
        self._pending: list[tuple[Piece, Any]] = []  # pieces to read, and the memory to fill
        self._alive: list[Any] = []  # the tensors that own that memory
        self._tensors: dict[int, Any] = {}
        self._live: dict[str, Any] = {}  # the objects that it is restored into
        self._shared = SharedContainers(lambda: (entry["rest"] for entry in self._entries.values()))
        self._refilled: dict[int, Any] = {}  # live objects that were refilled already, by identity
        self._live_by_value: dict[int, tuple[Any, Any]] = {}  # restored values, and the live object of each

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self._pieces)

    def names(self) -> list[str]:
        """Returns the names of the objects in the checkpoint."""
        return [name for name, entry in self._entries.items() if entry["kind"] != "extra"]

    def named(self) -> list[str]:
        """Returns the names of the objects that the user named, without the discovered ones."""
        return [name for name in self.names() if not name.startswith(DISCOVERED + ":")]

    def discovered(self) -> list[str]:
        """Returns the variable names of discovered objects: schedulers, generators and the like."""
        kinds = {name: self._entries[f"{DISCOVERED}:{name}"]["kind"] for name in self._all_discovered()}
        return [name for name, kind in kinds.items() if kind not in _INTERNAL_KINDS]

    def _all_discovered(self) -> list[str]:
        return [name.partition(":")[2] for name in self._entries if name.startswith(DISCOVERED + ":")]

    def restore(self, into: Mapping[str, Any], *, random: bool) -> None:
        """Restores the state of live objects in place, and with `random` the global random generators."""
        by_name = {key: obj for name, obj in into.items() for key in (name, f"{DISCOVERED}:{name}")}
        self._live.update(_with_module_parts(by_name))
        begun = time.perf_counter()
        with self._packs.read_lock():
            for name, obj in into.items():
                stored = self._entry(name)
                is_object = stored["kind"] == ObjectHandler.kind
                handler = ObjectHandler(name, obj) if is_object else handler_for(name, obj)
                handler.restore(stored["leaves"], stored["rest"], self)
            size_bytes = self._read_pending()
        record_restore(self._packs.folder, size_bytes, time.perf_counter() - begun)
        if random:
            self.restore_random()

    def state(self, name: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns the tensors of an object as new tensors: all of them, or only those of `keys` (one layer, say)."""
        leaves = self._entry(name)["leaves"]
        selected = list(leaves) if keys is None else list(keys)
        unknown = [key for key in selected if key not in leaves]
        if unknown:
            raise NotFound(f"{name} has no {unknown[0]!r} in this checkpoint; it has {', '.join(leaves)}")
        with self._packs.read_lock():
            return {key: self.new_tensor(leaves[key]) for key in selected}

    def variables(self) -> dict[str, Any]:
        """Returns the captured variables of the loop."""
        return {
            name.partition(":")[2]: self.unflatten(entry["rest"])
            for name, entry in self._entries.items()
            if name.startswith(VARIABLES + ":")
        }

    def outer_variables(self, level: int) -> dict[str, Any]:
        """Returns the variables of a frame around a nested loop: level 0 is the frame of the loop itself."""
        prefix = f"{OUTER_VARIABLES}:{level}:"
        return {
            name.removeprefix(prefix): self.unflatten(entry["rest"])
            for name, entry in self._entries.items()
            if name.startswith(prefix)
        }

    def may_refer_to_discovered(self) -> bool:
        """Whether named objects may refer to discovered ones: they hold more than tensors."""
        return any(self._entries[name]["kind"] not in _TENSOR_KINDS for name in self.named())

    def register(self, found: DiscoveredState) -> None:
        """Registers discovered objects as live ones, so that restored values can refer to them."""
        self._live.update(_with_module_parts({f"{DISCOVERED}:{name}": obj for name, obj in found.objects.items()}))

    def restore_discovered(self, found: DiscoveredState) -> list[str]:
        """Restores discovered objects; returns the captured names that were not discovered now."""
        self.register(found)
        for name in self._all_discovered():
            if name in found.handlers:
                stored = self._entries[f"{DISCOVERED}:{name}"]
                found.handlers[name].restore(stored["leaves"], stored["rest"], self)
        self._read_pending()
        return [name for name in self._all_discovered() if name not in found.handlers]

    def restore_gradients(self) -> None:
        """Restores gradients into the objects that were restored before, if the checkpoint has them."""
        if GRADIENTS in self._entries:
            restore_gradients(self.extra(GRADIENTS), self._live)

    def uncaptured(self) -> list[str]:
        """Returns the names of variables that the loop bound and that were not captured."""
        return list(self.extra(UNCAPTURED)) if UNCAPTURED in self._entries else []

    def restore_random(self) -> None:
        """Restores the global random generators: the last step, since rebuilding objects may draw numbers."""
        if RANDOM_STATES in self._entries:
            restore_random_states(self.unflatten(self._entries[RANDOM_STATES]["rest"]))

    def extra(self, name: str) -> Any:
        """Returns a value that was captured without a handler."""
        return self.unflatten(self._entry(name)["rest"])

    def _entry(self, name: str) -> dict[str, Json]:
        name = f"{DISCOVERED}:{name}" if f"{DISCOVERED}:{name}" in self._entries else name
        if name not in self._entries:
            raise NotFound(f"the checkpoint has no {name!r}; it has {', '.join(self.names()) or 'no objects'}")
        return self._entries[name]

    # --- the RestoreSource of handlers --------------------------------------------------------------------------

    def unflatten(self, tree: Json) -> Any:
        return unflatten(tree, self.new_tensor, self._blob, self._live, self._shared)

    def refill(self, before: Any, value: Any) -> Any:
        """Restores a value into the live object `before`, if possible; returns the object that has the value now.

        Names that shared an object in the checkpoint share one again. If names share a live object that they did not
        share in the checkpoint, only the first of them refills it.
        """
        if id(value) in self._live_by_value:
            return self._live_by_value[id(value)][1]
        live = value if id(before) in self._refilled else refill(before, value)
        if live is before:
            self._refilled[id(before)] = before
        self._live_by_value[id(value)] = value, live
        return live

    def live_object_for(self, value: Any) -> Any:
        """Returns the live object that was refilled with a restored value; the value itself if there is none."""
        return self._live_by_value.get(id(value), (value, value))[1]

    def fill(self, leaf: int, target: Any) -> bool:
        """Fills a live tensor; False if its type or shape differs. Contiguous host memory is filled later, at once."""
        stored = self._leaves[leaf]
        if not stored.is_like(target):
            return False
        memory = writable_memory(target)
        if memory is None:
            fill_tensor(target, lambda buffer: self._read(stored.pieces, buffer), stored.kind)
        elif len(stored.pieces) == 1:
            self._pending.append((self._pieces[stored.pieces[0]], memory))
        else:
            self._pending.extend(self._split(stored.pieces, memory))
        self._alive.append(target)
        return True

    def new_tensor(self, leaf: int) -> Any:
        """Returns a leaf as a new tensor or array, always the same one."""
        if leaf not in self._tensors:
            stored = self._leaves[leaf]
            self._tensors[leaf] = build_tensor(stored.kind, lambda buffer: self._read(stored.pieces, buffer))
        return self._tensors[leaf]

    def _blob(self, number: int) -> bytes:
        return b"".join(self._packs.read(self._pieces[at]) for at in self._blobs[number])

    def _read(self, pieces: list[int], buffer: Any) -> None:
        for piece, part in self._split(pieces, buffer):
            self._packs.read_into(piece, part)

    def _split(self, pieces: list[int], buffer: Any) -> Iterator[tuple[Piece, memoryview]]:
        view, at = memoryview(buffer), 0
        for piece in (self._pieces[number] for number in pieces):
            yield piece, view[at : at + piece.size_bytes]
            at += piece.size_bytes

    def _read_pending(self) -> int:
        """Reads the pending pieces; returns their size in bytes."""
        pending, alive = self._pending, self._alive
        self._pending, self._alive = [], []
        read_pieces(self._packs, pending)
        del alive
        return sum(piece.size_bytes for piece, _ in pending)
