"""Restores checkpoints in a worker, and compares the state of its script with the recorded one where it is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from relive.checkpoint.graph import Difference, GraphState, Observer, Roots, differing_nodes, differing_variables
from relive.checkpoint.io import Checkpoint, open_checkpoint, restore_script, running_roots
from relive.errors import Damaged, NotFound
from relive.hindsight.workers.wire import Job, StateCheck, WorkerReport
from relive.store.chunks import Chunks, Packs

MAX_NAMED = 20  # differences that are named
RESTORED, ENTRY = "restored", "entry"


class StateProof:
    """The state of one worker's script, beside what was recorded."""

    def __init__(
        self, job: Job, chunks: Chunks, packs: Packs, report: WorkerReport, position: Callable[[], int]
    ) -> None:
        self._moments = {(one.loop, one.iteration, one.place): one for one in job.moments}
        self._by_manifest = {one.manifest: one for one in job.moments}
        self._digests = {(loop, iteration): (digest, leaves) for loop, iteration, digest, leaves in job.digests}
        self._chunks = chunks
        self._packs = packs
        self._report = report
        self._position = position  # in the worker's journal
        self._port = job.port, os.environ.get("MASTER_PORT", "")
        self._observer = self._new_observer()
        self._has_hashes = job.has_hashes
        self._keeps_entry = job.keeps_entry
        self._loop = 0
        self._is_entry_compared = False
        self._lacks_gradients = False  # the state was restored from a checkpoint without them
        self.before_check: Callable[[], None] = lambda: None
        self.on_restored: Callable[[str, float | None], None] | None = None  # gets when it was taken

    def enter_loop(
        self, loop: int, frame: FrameType | None, objects: Mapping[str, Any], items: Any, *, is_run: bool
    ) -> None:
        """A main loop begins: compares the state with that of the recording process.

        `is_run`: its first iteration is run. If the script was not seeded, it continues from the recorded state.
        """
        self._observer = self._new_observer()
        self._loop, self._is_entry_compared = loop, False
        self._observer.begin(running_roots(frame, objects), elapsed_s=float("inf"), items=items)
        checkpoint = self._checkpoint_of(loop)
        if checkpoint is not None and self._compare_entry(checkpoint) and is_run and not self._keeps_entry:
            self._observer.with_gradients = checkpoint.start.has_gradients
            agreed, differences = restore_script(checkpoint.entry(), self._observer, frame, objects)
            self._note(loop, -1, RESTORED, agreed, differences)

    def _checkpoint_of(self, loop: int) -> Checkpoint | None:
        """Returns a checkpoint of a loop that can be read."""
        for moment in self._moments.values():
            if moment.loop == loop:
                try:
                    return open_checkpoint(moment.manifest, self._chunks, self._packs)
                except (Damaged, NotFound):
                    continue
        return None

    def restore(self, manifest: str, frame: FrameType | None, objects: Mapping[str, Any], line: int) -> Checkpoint:
        """Restores a checkpoint into the script, and notes whatever is not as it was."""
        checkpoint = open_checkpoint(manifest, self._chunks, self._packs)
        if not self._observer.is_started:
            self._observer.begin(running_roots(frame, objects), elapsed_s=float("inf"))
        self._observer.with_gradients = checkpoint.graph.has_gradients
        self._compare_entry(checkpoint)
        agreed, differences = restore_script(checkpoint, self._observer, frame, objects, line=line)
        self._lacks_gradients = not checkpoint.graph.has_gradients
        at = self._by_manifest.get(manifest)
        if self.on_restored is not None:
            self.on_restored(manifest, (at.taken_s if at is not None else 0.0) or None)
        self._note(at.loop if at else self._loop, at.iteration if at else -1, RESTORED, agreed, differences)
        self._note_unknown(checkpoint.graph)
        return checkpoint

    def pass_moment(
        self, loop: int, iteration: int, place: str, frame: FrameType | None, objects: Mapping[str, Any], line: int
    ) -> None:
        """The script is at a moment of which a checkpoint may exist: compares its state with that."""
        moment = self._moments.get((loop, iteration, place))
        if not self._observer.is_started:
            return
        if self._has_hashes and place == "iteration":
            self._report.memory.append((loop, iteration, self._memory_hashes(running_roots(frame, objects, line))))
        if moment is None:
            self._compare_digest(loop, iteration)
            return
        try:
            checkpoint = open_checkpoint(moment.manifest, self._chunks, self._packs)
            self._observer.with_gradients = checkpoint.graph.has_gradients
        except Damaged:
            return  # nothing to compare with
        self._compare_entry(checkpoint)
        agreed, differences = checkpoint.compare(
            self._observer, running_roots(frame, objects, line), lacks_gradients=self._lacks_gradients
        )
        self._note(loop, iteration, place, agreed, differences)
        self._note_unknown(checkpoint.graph)

    def pass_end(self, loop: int, last: int, frame: FrameType | None, objects: Mapping[str, Any]) -> None:
        """The visits of a main loop are over, `last` being the last one: that may be where the loop ended."""
        moment = self._moments.get((loop, -1, "end"))
        if moment is not None and moment.last == last:
            self.pass_moment(loop, -1, "end", frame, objects, 0)

    def _compare_digest(self, loop: int, iteration: int) -> None:
        recorded, leaves = self._digests.get((loop, iteration), (None, 0))
        # Earlier releases included arrays.
        is_comparable = recorded is not None and leaves == self._observer.memory_digest.leaves
        now = self._observer.memory_digest.take() if is_comparable else None
        if now is not None:
            differences = [Difference("parameters", "other numbers")] if now != recorded else []
            self._note(loop, iteration, "iteration", self._observer.memory_digest.leaves, differences)

    def _memory_hashes(self, roots: Roots) -> dict[str, int]:
        """The hashes of all memory on the host, by the paths of what holds it."""
        walk = self._observer.walk(roots)
        names: Any = GraphState({node.way: node for node in walk.nodes}, {one.way: one for one in walk.buffers.found})  # type: ignore[misc]
        found = {names.name(one.way): int(walk.hash(one.view())) for one in walk.buffers.found if one.is_on_host}
        walk.release()
        return found

    def _new_observer(self) -> Observer:
        observer = Observer()
        observer.launcher_port = self._port
        return observer

    # --- private ----------------------------------------------------------------------------------------------------

    def _compare_entry(self, checkpoint: Checkpoint) -> list[Difference]:
        """Compares the state at the entry of the loop with the recorded one, once; returns the differences."""
        if self._is_entry_compared:
            return []
        self._is_entry_compared = True
        now, then = self._observer.start or GraphState(), checkpoint.start  # files are not compared at the start
        differences = [*differing_nodes(then, now), *differing_variables(then, now.roots, self._port)]
        differences += [
            Difference(then.name(way), "other numbers")
            for way, one in then.buffers.items()
            if way in now.buffers and None not in (one.digest, now.buffers[way].digest)
            and now.buffers[way].digest != one.digest
        ]  # fmt: skip
        self._note(self._loop, -1, ENTRY, len(then.nodes) - len(differences), differences)
        return differences

    def _note(self, loop: int, iteration: int, place: str, agreed: int, differences: list[Difference]) -> None:
        named = list(dict.fromkeys(map(str, differences)))
        self.before_check()
        self._report.checks.append(
            StateCheck(loop, iteration, place, max(0, agreed), named[:MAX_NAMED], len(named), self._position())
        )

    def _note_unknown(self, graph: GraphState) -> None:
        for way, why in graph.unknown.items():
            text = f"{graph.name(way)}: {why}"
            if text not in self._report.unknown and len(self._report.unknown) < MAX_NAMED * 5:
                self._report.unknown.append(text)
