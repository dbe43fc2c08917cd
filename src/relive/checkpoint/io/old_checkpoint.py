"""Reads a checkpoint that an earlier release wrote: objects by name, each with its tensors and a tree of the rest."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from relive.checkpoint.io.old_values import Json, StoredTensor, TreeReader, fill_array
from relive.checkpoint.state import restore_generator, restore_random_states
from relive.errors import Damaged, NotFound, ReliveError
from relive.store.chunks import Chunks, Packs, Piece, record_restore

_RANDOM_STATES = "random states"  # the entry of the global random generators
_VARIABLES = "variables:"  # prefix: variables of the loop
_DISCOVERED = "near:"  # prefix: objects around the loop that the user did not name
_INTERNAL_KINDS = frozenset({"places", "file", "lost", "module attributes"})  # of a running script only
_PARAMETER = "(parameter)"  # key of a parameter itself, beside those of its optimizer state
_CONTENT = "(content)"  # the attribute name for the items of a subclass of list, dict or set
_MISSING = object()


class _OldManifest(msgspec.Struct):
    v: int
    subjects: dict[str, dict[str, Json]]  # name → kind, leaves, rest
    leaves: list[StoredTensor]
    blobs: list[list[int]]
    pieces: list[Piece]


_decode = msgspec.json.Decoder(_OldManifest).decode


class OldCheckpoint:
    """A checkpoint of an earlier release. Live objects can be restored from it; replays do not use it."""

    def __init__(self, manifest: str, chunks: Chunks, packs: Packs, *, refusal: str = "") -> None:
        try:
            content = _decode(chunks.get(manifest))
        except msgspec.DecodeError as error:
            raise Damaged(f"manifest {manifest[:12]} can't be read ({error}); restore another checkpoint") from error
        self._entries = content.subjects
        self._content = content
        self._packs = packs
        self._tensors: dict[int, Any] = {}
        self._live: dict[str, Any] = {}  # the objects that it is restored into
        self._read_bytes = 0
        self._trees = TreeReader(
            (entry["rest"] for entry in self._entries.values()), self._tensor, self._blob, self._live, refusal
        )
        self._refilled: dict[int, Any] = {}  # live objects that were refilled already, by identity
        self._live_by_value: dict[int, tuple[Any, Any]] = {}  # restored values, and the live object of each

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self._content.pieces)

    def names(self) -> list[str]:
        """Returns the names of the objects in the checkpoint."""
        return [name for name, entry in self._entries.items() if entry["kind"] != "extra"]

    def named(self) -> list[str]:
        """Returns the names of the objects that the user named."""
        return [name for name in self.names() if not name.startswith(_DISCOVERED)]

    def discovered(self) -> list[str]:
        """Returns the variables of other objects: schedulers, generators and the like."""
        return [
            name.removeprefix(_DISCOVERED)
            for name, entry in self._entries.items()
            if name.startswith(_DISCOVERED) and entry["kind"] not in _INTERNAL_KINDS
        ]

    def variables(self) -> dict[str, Any]:
        """Returns the variables of the loop."""
        return {
            name.removeprefix(_VARIABLES): self._trees.value(entry["rest"])
            for name, entry in self._entries.items()
            if name.startswith(_VARIABLES)
        }

    def extra(self, name: str) -> Any:
        """Returns a value that was captured beside the objects."""
        return self._trees.value(self._entry(name)["rest"])

    def state(self, name: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns the tensors of an object as new tensors: all of them, or only those of `keys` (one layer, say)."""
        leaves = self._entry(name)["leaves"]
        selected = list(leaves) if keys is None else list(keys)
        unknown = [key for key in selected if key not in leaves]
        if unknown:
            raise NotFound(f"{name} has no {unknown[0]!r} in this checkpoint; it has {', '.join(leaves)}")
        with self._packs.read_lock():
            return {key: self._tensor(leaves[key]) for key in selected}

    def restore(self, into: Mapping[str, Any], *, random: bool) -> None:
        """Restores the state of live objects in place, and with `random` the global random generators."""
        begun = time.perf_counter()
        for name, obj in into.items():
            for key in (name, _DISCOVERED + name):
                self._live |= {key: obj} | {f"{key}/{path}": part for path, part in _module_parts(obj).items()}
        with self._packs.read_lock():
            for name, obj in into.items():
                entry = self._entry(name)
                self._restorer(name, entry["kind"])(name, obj, entry["leaves"], entry["rest"])
        record_restore(self._packs.folder, self._read_bytes, time.perf_counter() - begun)
        if random:
            self.restore_random()

    def restore_random(self) -> None:
        """Restores the global random generators: the last step, since rebuilding objects may draw numbers."""
        if _RANDOM_STATES in self._entries:
            restore_random_states(self.extra(_RANDOM_STATES))

    # --- kinds of objects -------------------------------------------------------------------------------------------

    def _restorer(self, name: str, kind: str) -> Callable[[str, Any, dict[str, int], Json], None]:
        by_kind = {
            "module": self._restore_module, "optimizer": self._restore_optimizer, "array": self._restore_array,
            "generator": self._restore_generator, "state_dict": self._restore_state_dict,
            "value": self._restore_value, "object": self._restore_object, "attributes": self._restore_attributes,
            "environment": self._restore_attributes,
        }  # fmt: skip
        if kind not in by_kind:
            raise ReliveError(f"{name} was kept for replays only; give other objects in `into=`")
        return by_kind[kind]

    def _restore_module(self, name: str, module: Any, leaves: dict[str, int], tree: Json) -> None:
        live = _module_parts(module)
        missing = [key for key in leaves if key not in live]
        if missing:
            raise ReliveError(
                f"the module has no {missing[0]!r}, which the checkpoint holds; build the same model first"
            )
        for key, leaf in leaves.items():
            self._fill(live[key], leaf)
        state = self._trees.value(tree)
        for path, one in module.named_modules():
            for key, value in state["attributes"].get(path, {}).items():
                if getattr(one, key, _MISSING) != value:
                    setattr(one, key, value)
        for key, parameter in module.named_parameters():
            parameter.requires_grad_(key not in state["frozen"])

    def _restore_optimizer(self, name: str, optimizer: Any, leaves: dict[str, int], tree: Json) -> None:
        state, groups = self._trees.value(tree), optimizer.param_groups
        if [len(group["params"]) for group in groups] != state["sizes"]:
            raise ReliveError("the optimizer has other parameter groups than the checkpoint; build the same one first")
        parameters = [parameter for group in groups for parameter in group["params"]]
        states: dict[int, dict[str, Any]] = {number: dict(values) for number, values in state["others"].items()}
        for path, leaf in leaves.items():
            index, _, key = path.partition(".")
            parameter = parameters[int(index)]
            if key == _PARAMETER:
                self._fill(parameter, leaf)
            else:
                value = self._tensor(leaf)
                is_count = key == "step" and value.ndim == 0  # stays on the host
                states.setdefault(int(index), {})[key] = value.to("cpu" if is_count else parameter.device, copy=True)
        optimizer.state.clear()
        for number, values in states.items():
            optimizer.state[parameters[number]] = values
        for group, options in zip(groups, state["groups"], strict=True):
            group.update(options)

    def _restore_array(self, name: str, array: Any, leaves: dict[str, int], tree: Json) -> None:
        if not fill_array(array, self._tensor(leaves[""])):
            raise ReliveError("the array has another type or shape than the checkpoint; give one like the original")

    def _restore_generator(self, name: str, generator: Any, leaves: dict[str, int], tree: Json) -> None:
        restore_generator(generator, self._trees.value(tree))

    def _restore_state_dict(self, name: str, obj: Any, leaves: dict[str, int], tree: Json) -> None:
        obj.load_state_dict(self._trees.value(tree))

    def _restore_value(self, name: str, obj: Any, leaves: dict[str, int], tree: Json) -> None:
        value = self._trees.value(tree)
        if _refill_container(obj, value):
            return
        if hasattr(obj, "__dict__"):
            vars(obj).clear()
            vars(obj).update(vars(value))
        elif obj != value:
            raise ReliveError(f"{name} can't be changed in place; take it from what restore() gives back")

    def _restore_object(self, name: str, obj: Any, leaves: dict[str, int], tree: Json) -> None:
        for key, value in self._trees.value(tree).items():
            if key == _CONTENT:
                _refill_container(obj, value)
            else:
                object.__setattr__(obj, key, self._refilled_value(getattr(obj, key, _MISSING), value))

    def _restore_attributes(self, name: str, obj: Any, leaves: dict[str, int], tree: Json) -> None:
        if tree is not None:
            vars(obj).update(self._trees.value(tree))

    # --- private ----------------------------------------------------------------------------------------------------

    def _refilled_value(self, before: Any, value: Any) -> Any:
        """Gives a live object a value in place, if it can be; returns the object that has the value now.

        Names that shared an object in the checkpoint share one again. If names share a live object that they did not
        share in the checkpoint, only the first of them refills it.
        """
        if id(value) not in self._live_by_value:
            is_free = type(before) is type(value) and id(before) not in self._refilled
            live = before if is_free and (_refill_container(before, value) or fill_array(before, value)) else value
            if live is before:
                self._refilled[id(before)] = before
            self._live_by_value[id(value)] = value, live
        return self._live_by_value[id(value)][1]

    def _fill(self, target: Any, leaf: int) -> None:
        value = self._tensor(leaf)
        if not fill_array(target, value):
            target.data = value.to(target.device)

    def _entry(self, name: str) -> dict[str, Json]:
        name = _DISCOVERED + name if _DISCOVERED + name in self._entries else name
        if name not in self._entries:
            raise NotFound(f"the checkpoint has no {name!r}; it has {', '.join(self.names()) or 'no objects'}")
        return self._entries[name]

    def _tensor(self, leaf: int) -> Any:
        """Returns a tensor or array, always the same one."""
        if leaf not in self._tensors:
            stored = self._content.leaves[leaf]
            self._tensors[leaf] = stored.build(lambda buffer: self._read(stored.pieces, buffer))
        return self._tensors[leaf]

    def _read(self, pieces: list[int], buffer: Any) -> None:
        view, at = memoryview(buffer), 0
        for piece in (self._content.pieces[number] for number in pieces):
            self._packs.read_into(piece, view[at : at + piece.size_bytes])
            at += piece.size_bytes
        self._read_bytes += at

    def _blob(self, number: int) -> bytes:
        return b"".join(self._packs.read(self._content.pieces[at]) for at in self._content.blobs[number])


def _module_parts(obj: Any) -> dict[str, Any]:
    """Returns the layers, parameters and buffers of a module by path, also under second names; of others none."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.Module):
        return {}
    layers = dict(obj.named_modules())
    found = {path: layer for path, layer in layers.items() if path}
    for path, layer in layers.items():
        for key, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            if tensor is not None:
                found[f"{path}.{key}" if path else key] = tensor
    return found


def _refill_container(obj: Any, value: Any) -> bool:
    """Gives a list, dict, set, deque or bytearray the items of another; False if it is none."""
    if isinstance(obj, list | bytearray):
        obj[:] = value
    elif isinstance(obj, dict | set):
        obj.clear()
        obj.update(value)
    elif isinstance(obj, deque):
        obj.clear()
        obj.extend(value)
    else:
        return False
    return True
