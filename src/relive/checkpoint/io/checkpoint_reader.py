"""Reads a checkpoint: restores live objects in place, or builds new ones, reading only what is needed."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from relive.checkpoint.graph import (
    CannotRestore,
    Difference,
    GraphRestore,
    GraphState,
    LiveObjects,
    NeedsTrust,
    Observer,
    PlainRestore,
    Roots,
    changed_variables,
    compare_graphs,
    import_modules,
    is_node,
    match_objects,
    module_paths,
    named_token,
    set_roots,
    tensor_paths,
)
from relive.errors import Damaged, NotFound, ReliveError, ReliveWarning, Untrusted
from relive.store.chunks import Chunks, Packs, Piece, read_pieces, record_restore

FORMAT = 3
_GRAPH_FORMAT = 2  # the first with a graph of all objects; values of known types were pickled
_MALFORMED = (TypeError, ValueError, LookupError, AttributeError, RecursionError, OverflowError)


class _Manifest(msgspec.Struct):
    v: int
    graph: list[list[int]] = []
    memory: list[list[int]] = []
    pieces: list[Piece] = []


_decode = msgspec.json.Decoder(_Manifest).decode


def open_checkpoint(manifest: str, chunks: Chunks, packs: Packs, *, refusal: str = "") -> Checkpoint:
    """Opens a checkpoint of any format. With a `refusal`, which says why and ends in the remedy, it is read as data."""
    content = chunks.get(manifest)
    try:
        decoded = _decode(content)
    except msgspec.DecodeError as error:
        raise Damaged(f"manifest {manifest[:12]} can't be read ({error}); restore another checkpoint") from error
    if decoded.v > FORMAT:
        raise Damaged(f"manifest {manifest[:12]} was written by a newer relive; upgrade to read it")
    if decoded.v < _GRAPH_FORMAT:
        from relive.checkpoint.io.old_checkpoint import OldCheckpoint

        return OldCheckpoint(manifest, chunks, packs, refusal=refusal)  # type: ignore[return-value]
    return Checkpoint(decoded, packs, refusal=refusal)


class Checkpoint:
    """A stored checkpoint. If it is not trusted, no code runs that it names: what needs code is refused."""

    def __init__(self, manifest: _Manifest, packs: Packs, *, refusal: str = "", is_entry: bool = False) -> None:
        self._manifest = manifest
        self._packs = packs
        self._refusal = refusal
        self._is_entry = is_entry  # it stands for the state when the loop began
        self._pending: list[tuple[Piece, Any]] = []  # pieces to read, and the memory to fill

    def entry(self) -> Checkpoint:
        """Returns the state when the loop began as a checkpoint: of large memory it has only the hashes."""
        return Checkpoint(self._manifest, self._packs, refusal=self._refusal, is_entry=True)

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self._manifest.pieces)

    @cached_property
    def start(self) -> GraphState:
        """The state when the loop began."""
        return self._decoded(0)

    @cached_property
    def changes(self) -> GraphState:
        """What had changed since then."""
        return self._decoded(1)

    @cached_property
    def graph(self) -> GraphState:
        """The whole state, as data."""
        return self.start if self._is_entry else self.start.overlaid(self.changes)

    # --- contents ---------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Returns the names of the objects in the checkpoint."""
        return [*self.named(), *self.discovered()]

    def named(self) -> list[str]:
        """Returns the names of the objects that the user named."""
        return [key.partition("|")[2] for key in self.graph.roots if key.startswith("=|")]

    def discovered(self) -> list[str]:
        """Returns the variables whose objects the loop changed: schedulers, generators, lists and the like."""
        return [name for name, is_object in changed_variables(self.start, self.changes) if is_object]

    def variables(self) -> dict[str, Any]:
        """Returns the values of all variables that the loop bound or changed."""
        found: dict[str, Any] = {}
        left_out: list[str] = []
        with self._reading():
            restore = self._building()
            for name, _ in changed_variables(self.start, self.changes):
                token = named_token(self.graph, name)
                try:
                    found[name] = restore.complete_value(token)
                except NeedsTrust:
                    left_out.append(name)
                except CannotRestore:
                    continue  # code, or an object that only a running script has
            self._read_pending()
        if left_out:
            text = f"[restore-untrusted] {', '.join(left_out[:5])}: left out; {self._refusal}"
            warnings.warn(text, ReliveWarning, stacklevel=2)
        return found

    def extra(self, name: str) -> Any:
        """Returns a value that was captured beside the named objects."""
        return self._built(self._token(name))

    def state(self, name: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns the tensors of an object as new tensors: all of them, or only those of `keys` (one layer, say)."""
        paths = tensor_paths(self.graph, self._token(name))
        selected = list(paths) if keys is None else list(keys)
        unknown = [key for key in selected if key not in paths]
        if unknown:
            raise NotFound(f"{name} has no {unknown[0]!r} in this checkpoint; it has {', '.join(paths)}")
        with self._reading():
            restore = self._building()
            found = {key: _detached(restore.value(paths[key])) for key in selected}
            self._read_pending()
        return found

    # --- restoring --------------------------------------------------------------------------------------------------

    def restore(self, into: Mapping[str, Any], *, random: bool) -> None:
        """Restores the state of live objects in place, and with `random` the global random generators."""
        with self._reading():
            self._restore(into)
        if random:
            self.restore_random()

    def _restore(self, into: Mapping[str, Any]) -> None:
        begun = time.perf_counter()
        tokens = {name: self._token(name) for name in into}
        observer = Observer()
        roots = Roots(into, has_modules=False)
        first = observer.walk(roots)
        known = match_objects(self.graph, tokens, first)
        missing = [path for name in into for path in module_paths(self.graph, tokens[name]) - known.paths]
        if missing:
            raise ReliveError(
                f"the module has no {sorted(missing)[0]!r}, which the checkpoint holds; build the same model first"
            )
        observer.use_known(known.ways)
        walk = observer.walk(roots)
        with self._reading():
            restore = self._restoring(walk, observer.folder)
            ways = {way for token in tokens.values() for way in restore.reachable(token)}
            restore.run(ways)
            size_bytes = self._read_pending()
        self._raise_failures(restore, into)
        self._check_in_place(restore, into, tokens)
        self._warn_unknown(ways)
        record_restore(self._packs.folder, size_bytes, time.perf_counter() - begun)
        first.release()
        walk.release()

    def _check_in_place(self, restore: GraphRestore, into: Mapping[str, Any], tokens: Mapping[str, Any]) -> None:
        """An object that another one had to replace has not been restored: only its caller could bind the new one."""
        moved = restore.changed_identity
        for name, token in tokens.items():
            if is_node(token) and token[0] in moved:
                kind = type(into[name]).__qualname__
                raise ReliveError(f"{name} ({kind}) can't be restored in place; take it from `variables()`")

    def _warn_unknown(self, ways: Collection[int]) -> None:
        unknown = [f"{self.graph.name(way)} ({why})" for way, why in self.graph.unknown.items() if way in ways]
        if unknown:
            warnings.warn(
                f"[restore-incomplete] {', '.join(unknown[:5])}: not restored, since the checkpoint does not hold it",
                ReliveWarning, stacklevel=4,
            )  # fmt: skip

    def _raise_failures(self, restore: GraphRestore, into: Mapping[str, Any]) -> None:
        if isinstance(restore, PlainRestore) and restore.refused:
            raise self._untrusted(restore.refused)
        if restore.failures:
            way, why = next(iter(restore.failures.items()))
            raise ReliveError(
                f"{self.graph.name(way)} can't be restored into {', '.join(into)}: {why}; "
                "build the same objects first, or take them from `variables()`"
            )

    def restore_random(self) -> None:
        """Restores the global random generators: the last step, since rebuilding objects may draw numbers."""
        from relive.checkpoint.state import restore_random_states

        token = self.graph.roots.get("p|random generators")
        content = self.graph.nodes[token[0]].content if token is not None else None
        if content is not None:  # else they are unknown, by name
            with self._reading():
                restore_random_states(self._building().value(content))

    def restore_running(self, observer: Observer, roots: Roots) -> tuple[int, list[Difference]]:
        """Restores everything into the running script, and compares it with what was recorded.

        Returns how many objects are as recorded, and the differences.
        """
        begun = time.perf_counter()
        import_modules(self.graph.roots)
        walk = observer.walk(roots)
        with self._packs.read_lock():
            restore = self._restoring(walk, observer.folder)
            restore.run()
            values = restore.root_values(walk.roots)
            size_bytes = self._read_pending()
        missing = set_roots(roots, values, self.graph.left_out)
        observer.adopt(restore.adopted(self.start))
        self.restore_random()  # once more: making objects may have drawn numbers
        walk.release()
        record_restore(self._packs.folder, size_bytes, time.perf_counter() - begun)
        proof = observer.walk(roots)
        agreed, differences = compare_graphs(self.graph, proof, observer.launcher_port)
        proof.release()
        failures = [Difference(self.graph.name(way), why) for way, why in restore.failures.items()]
        failures += [Difference(name, "there is no such variable to restore") for name in missing]
        return agreed, [*failures, *(one for one in differences if one.name not in {f.name for f in failures})]

    def compare(
        self, observer: Observer, roots: Roots, *, lacks_gradients: bool = False
    ) -> tuple[int, list[Difference]]:
        """Compares the running script with what was recorded; `lacks_gradients`: it was restored without them."""
        walk = observer.walk(roots)
        found = compare_graphs(self.graph, walk, observer.launcher_port, lacks_gradients=lacks_gradients)
        walk.release()
        return found

    # --- private ----------------------------------------------------------------------------------------------------

    def _token(self, name: str) -> Any:
        token = named_token(self.graph, name)
        if token is None:
            raise NotFound(f"the checkpoint has no {name!r}; it has {', '.join(self.names()) or 'no objects'}")
        return token

    def _decoded(self, which: int) -> GraphState:
        with self._reading():
            found = GraphState.decode(self._blob(self._manifest.graph[which]), is_trusted=not self._refusal)
            if self._manifest.v >= FORMAT:
                return found
            from relive.checkpoint.io.old_tokens import with_typed_values

            return with_typed_values(found, is_trusted=not self._refusal)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Packs stay while they are read; of a checkpoint without trust, nothing is believed to be well-formed."""
        with self._packs.read_lock():
            try:
                yield
            except NeedsTrust as error:
                raise self._untrusted([str(error)]) from error
            except CannotRestore as error:
                raise ReliveError(f"it can't be restored: {error}; build the same objects first") from error
            except _MALFORMED as error:
                if not self._refusal or isinstance(error, ReliveError):
                    raise
                raise Damaged(f"the checkpoint is not as relive writes them ({error}); ask its author") from error

    def _untrusted(self, what: list[str]) -> Untrusted:
        return Untrusted(f"{', '.join(dict.fromkeys(what[:3]))} can't be read as data: {self._refusal}")

    def _built(self, token: Any) -> Any:
        with self._reading():
            value = self._building().complete_value(token)
            self._read_pending()
        return value

    def _building(self) -> GraphRestore:
        """Builds new objects: there are no live ones."""
        return self._graph_restore(LiveObjects(), Observer().folder)

    def _graph_restore(self, live: LiveObjects, folder: str) -> GraphRestore:
        kind = PlainRestore if self._refusal else GraphRestore
        return kind(self.graph, live, self._read_buffer, folder, self._read_pending)

    def _restoring(self, walk: Any, folder: str) -> GraphRestore:
        for buffer in walk.buffers.found:
            stored = self.graph.buffers.get(buffer.way)
            if stored is not None and stored.leaf is None and buffer.is_on_host:  # it must be as it was
                buffer.digest = int(walk.hash(buffer.view()))
        return self._graph_restore(LiveObjects(walk), folder)

    def _read_buffer(self, way: int, memory: Any) -> None:
        """Has the bytes of a buffer read into memory, together with others."""
        leaf = self.graph.buffers[way].leaf
        if leaf is None:
            raise CannotRestore("the checkpoint does not hold its memory")
        flat: Any = memory if isinstance(memory, np.ndarray) else np.asarray(memory)
        view = memoryview(flat).cast("B")
        at = 0
        for number in self._manifest.memory[leaf]:
            piece = self._manifest.pieces[number]
            self._pending.append((piece, view[at : at + piece.size_bytes]))
            at += piece.size_bytes

    def _read_pending(self) -> int:
        """Reads the pending pieces; returns their size in bytes."""
        pending, self._pending = self._pending, []
        if pending:
            read_pieces(self._packs, pending)
        return sum(piece.size_bytes for piece, _ in pending)

    def _blob(self, pieces: list[int]) -> bytes:
        with self._packs.read_lock():
            return b"".join(self._packs.read(self._manifest.pieces[number]) for number in pieces)


def _detached(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value
