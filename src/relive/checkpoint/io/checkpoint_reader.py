"""A checkpoint read back: into the very objects it was taken of, or as new values; only the parts asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from relive.checkpoint.memory import Json, SharedObjects, StoredTensor, fill, made, unflatten, window
from relive.checkpoint.state import (
    ModuleHandler,
    ObjectHandler,
    handler_for,
    part_name,
    put_gradients_back,
    refilled,
    restore_global_states,
)
from relive.errors import Damaged, NotFound
from relive.store.chunks import Chunks, Packs, Piece, note_restore, read_pieces

if TYPE_CHECKING:
    from relive.checkpoint.state import DiscoveredState

RANDOM = "random states"  # the subject that holds the global generators
VARIABLES = "variables"
AROUND = "around"  # variables of the frames around a nested loop, as they were when it ended
GRADIENTS = "gradients"  # where they outlive the iteration in which they were made
UNKEPT = "unkept"  # the names of variables that were too large
_HIDDEN = frozenset({"places", "file", "lost", "module attributes"})  # what nobody could give to `restore(into=…)`
_OF_TENSORS = frozenset({"module", "optimizer", "array", "generator"})
NEAR = "near"  # what was found near the loop without being named


class _CheckpointManifest(msgspec.Struct):
    v: int
    subjects: dict[str, dict[str, Json]]  # name → kind, leaves, rest
    leaves: list[StoredTensor]
    blobs: list[list[int]]
    pieces: list[Piece]


_decode = msgspec.json.Decoder(_CheckpointManifest).decode


def _decoded(content: bytes, name: str) -> _CheckpointManifest:
    try:
        return _decode(content)
    except msgspec.DecodeError as error:
        raise Damaged(f"manifest {name[:12]} can't be read ({error}); restore another checkpoint") from error


def _with_parts(things: Mapping[str, Any]) -> dict[str, Any]:
    """The same, and the layers, parameters and buffers of those which are modules."""
    found = dict(things)
    torch = sys.modules.get("torch")
    for name, thing in things.items():
        if torch is not None and isinstance(thing, torch.nn.Module):
            subject = ModuleHandler(thing)
            subject.tensors()
            found |= {part_name(name, way): part for way, part in subject.parts.items()}
    return found


class Checkpoint:
    """A stored moment. Tensors are read without running any code; pickled parts only when they are asked for."""

    def __init__(self, manifest: str, chunks: Chunks, packs: Packs) -> None:
        content = _decoded(chunks.get(manifest), manifest)
        self._subjects = content.subjects
        self._leaves = content.leaves
        self._blobs = content.blobs
        self._pieces = content.pieces
        self._packs = packs
        self._later: list[tuple[Piece, Any]] = []
        self._alive: list[Any] = []  # the tensors whose memory is still to be filled
        self._made: dict[int, Any] = {}
        self._live: dict[str, Any] = {}  # the objects that it was restored into
        self._shared = SharedObjects(lambda: (subject["rest"] for subject in self._subjects.values()))
        self._filled: dict[int, Any] = {}  # objects that have got their content
        self._settled: dict[int, tuple[Any, Any]] = {}  # what was restored, and the object that has its content now

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self._pieces)

    def names(self) -> list[str]:
        """The objects that the checkpoint holds."""
        return [name for name, subject in self._subjects.items() if subject["kind"] != "extra"]

    def given(self) -> list[str]:
        """The objects that were named, rather than found near the loop."""
        return [name for name in self.names() if not name.startswith(NEAR + ":")]

    def near(self) -> list[str]:
        """Objects found near the loop: schedulers, generators and the like, by the names of their variables."""
        return [name for name in self._all_near() if self._subjects[f"{NEAR}:{name}"]["kind"] not in _HIDDEN]

    def _all_near(self) -> list[str]:
        return [name.partition(":")[2] for name in self._subjects if name.startswith(NEAR + ":")]

    def restore(self, into: Mapping[str, Any], *, random: bool) -> None:
        """Put the state back into live objects, in place, and the global random generators if asked for."""
        by_name = {name: thing for given, thing in into.items() for name in (given, f"{NEAR}:{given}")}
        self._live.update(_with_parts(by_name))
        begun = time.perf_counter()
        with self._packs.reading():
            for name, thing in into.items():
                stored = self._stored(name)
                is_object = stored["kind"] == ObjectHandler.kind
                subject = ObjectHandler(name, thing) if is_object else handler_for(name, thing)
                subject.put_back(stored["leaves"], stored["rest"], self)
            size_bytes = self._finish()
        note_restore(self._packs.folder, size_bytes, time.perf_counter() - begun)
        if random:
            self.restore_random()

    def state(self, name: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
        """The tensors of one object as new tensors: all of them, or only those asked for (one layer, say)."""
        leaves = self._stored(name)["leaves"]
        wanted = list(leaves) if keys is None else list(keys)
        unknown = [key for key in wanted if key not in leaves]
        if unknown:
            raise NotFound(f"{name} has no {unknown[0]!r} in this checkpoint; it has {', '.join(leaves)}")
        with self._packs.reading():
            return {key: self.made(leaves[key]) for key in wanted}

    def variables(self) -> dict[str, Any]:
        """The variables of the loop as they were."""
        return {
            name.partition(":")[2]: self.value(subject["rest"])
            for name, subject in self._subjects.items()
            if name.startswith(VARIABLES + ":")
        }

    def around(self, level: int) -> dict[str, Any]:
        """The variables of the frames around a nested loop: level 0 is that of the loop itself."""
        start = f"{AROUND}:{level}:"
        return {
            name.removeprefix(start): self.value(subject["rest"])
            for name, subject in self._subjects.items()
            if name.startswith(start)
        }

    def may_refer(self) -> bool:
        """Do objects that were named hold others than tensors? Those may be ones that were found near the loop."""
        return any(self._subjects[name]["kind"] not in _OF_TENSORS for name in self.given())

    def meet(self, found: DiscoveredState) -> None:
        """Know what is near the loop, before any of it is put back."""
        self._live.update(_with_parts({f"{NEAR}:{name}": thing for name, thing in found.things.items()}))

    def restore_near(self, found: DiscoveredState) -> list[str]:
        """Put back what was found near the loop; gives the names of what was kept and is not there now."""
        self.meet(found)
        for name in self._all_near():
            if name in found.subjects:
                stored = self._subjects[f"{NEAR}:{name}"]
                found.subjects[name].put_back(stored["leaves"], stored["rest"], self)
        self._finish()
        return [name for name in self._all_near() if name not in found.subjects]

    def restore_gradients(self) -> None:
        """Put them back into the objects that the rest was restored into, if they were kept."""
        if GRADIENTS in self._subjects:
            put_gradients_back(self.extra(GRADIENTS), self._live)

    def unkept(self) -> list[str]:
        """Variables that the loop bound and that are not held here."""
        return list(self.extra(UNKEPT)) if UNKEPT in self._subjects else []

    def restore_random(self) -> None:
        """Put the global random generators back: the last step, since rebuilding objects may draw numbers."""
        if RANDOM in self._subjects:
            restore_global_states(self.value(self._subjects[RANDOM]["rest"]))

    def extra(self, name: str) -> Any:
        return self.value(self._stored(name)["rest"])

    def _stored(self, name: str) -> dict[str, Json]:
        name = f"{NEAR}:{name}" if f"{NEAR}:{name}" in self._subjects else name
        if name not in self._subjects:
            raise NotFound(f"the checkpoint has no {name!r}; it has {', '.join(self.names()) or 'no objects'}")
        return self._subjects[name]

    # --- what subjects ask for ----------------------------------------------------------------------------------

    def value(self, tree: Json) -> Any:
        return unflatten(tree, self.made, self._blob, self._live, self._shared)

    def settle(self, before: Any, value: Any) -> Any:
        """Put a value where another is: into that very object, if it can be.

        Names may share an object now that they did not share then: only one of them gets its content. And names that
        shared one then do so again.
        """
        if id(value) in self._settled:
            return self._settled[id(value)][1]
        is_taken = id(before) in self._filled
        kept = value if is_taken else refilled(before, value)
        if kept is before:
            self._filled[id(before)] = before
        self._settled[id(value)] = value, kept
        return kept

    def settled(self, value: Any) -> Any:
        """The object that has the content of a restored value, if one was filled with it."""
        return self._settled.get(id(value), (value, value))[1]

    def fill(self, leaf: int, target: Any) -> bool:
        """Fill a live tensor, if it is of the stored type; plain memory is filled later, all of it at once."""
        stored = self._leaves[leaf]
        if not stored.is_like(target):
            return False
        memory = window(target)
        if memory is None:
            fill(target, lambda buffer: self._read(stored.pieces, buffer), stored.kind)
        elif len(stored.pieces) == 1:
            self._later.append((self._pieces[stored.pieces[0]], memory))
        else:
            self._later.extend(self._parts(stored.pieces, memory))
        self._alive.append(target)
        return True

    def made(self, leaf: int) -> Any:
        if leaf not in self._made:
            stored = self._leaves[leaf]
            self._made[leaf] = made(stored.kind, lambda buffer: self._read(stored.pieces, buffer))
        return self._made[leaf]

    def _blob(self, number: int) -> bytes:
        return b"".join(self._packs.read(self._pieces[at]) for at in self._blobs[number])

    def _read(self, pieces: list[int], buffer: Any) -> None:
        for piece, part in self._parts(pieces, buffer):
            self._packs.read_into(piece, part)

    def _parts(self, pieces: list[int], buffer: Any) -> Iterator[tuple[Piece, memoryview]]:
        view, at = memoryview(buffer), 0
        for piece in (self._pieces[number] for number in pieces):
            yield piece, view[at : at + piece.size_bytes]
            at += piece.size_bytes

    def _finish(self) -> int:
        """Fill what is to be filled; gives its size in bytes."""
        wanted, alive = self._later, self._alive
        self._later, self._alive = [], []
        read_pieces(self._packs, wanted)
        del alive
        return sum(piece.size_bytes for piece, _ in wanted)
