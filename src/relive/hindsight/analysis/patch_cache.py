"""The patch of a question for one version and where its statements may run, computed once and cached in the home."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from relive.errors import Damaged
from relive.hashing import stable_hash
from relive.hindsight.analysis.depth import AddedStatement, Reach, find_reach, leaving_loops, with_reruns
from relive.hindsight.analysis.heavy_imports import heavy_imports
from relive.hindsight.analysis.imported_files import ImportRecord, choose_imported
from relive.hindsight.analysis.patched_source import Files, Patch, make_patch
from relive.hindsight.analysis.program import LoopPath, read_program
from relive.hindsight.analysis.reads import find_added_state
from relive.hindsight.analysis.syntax_facts import ANY_LOOP
from relive.instrument import RULES_VERSION
from relive.store import Home, read_sealed, write_sealed

_CACHE_VERSION = 9  # is incremented whenever the same sources would give another result
_MAX_FILES = 2_000  # cached results in a home; the oldest are deleted


class PatchFit(msgspec.Struct, frozen=True):
    """The patch of a version, and what it means for replaying a run of that version."""

    patch: Patch
    reach: Reach
    leaving: frozenset[str]  # loops that may be left by `return`, or by `break` past an `else`
    modules: tuple[str, ...] = ()  # libraries that a fork server may load
    kept: tuple[str, ...] = ()  # variables that the added code keeps from one iteration to the next


@dataclass(frozen=True, slots=True)
class ScriptShape:
    """What decides where a statement runs, besides the source: the script and its main loops."""

    entry: str
    mains: frozenset[LoopPath]
    loops: frozenset[LoopPath]  # all that the run entered
    has_framework_loop: bool = False  # a framework runs a main loop: the source does not show it
    imports: ImportRecord | None = None  # older runs did not record them
    rerun_loop: str | None = None  # of a notebook: the loop whose iterations are cells that were executed again

    @property
    def source_loops(self) -> frozenset[LoopPath]:
        """The loops that the run entered, by their paths in the source."""
        return self.loops | {path[1:] for path in self.loops if path[:1] == (self.rerun_loop,) and len(path) > 1}


class PatchCache:
    """Makes the patches of a question. Results are cached in the home: the sources of a version never change.

    `instrumented`: the runs are of scripts that do not import relive.
    """

    def __init__(self, home: Home, names: Sequence[str], *, instrumented: bool = False) -> None:
        self._folder = home.path / "fits"
        self._instrumented = instrumented
        self._names = list(names)
        self._digests: dict[int, str] = {}

    def find(self, tree: str, new: Files, shape: ScriptShape) -> PatchFit | None:
        """Returns the cached result for a version, if any; `tree` is the id of the version's content."""
        with contextlib.suppress(OSError, ValueError, Damaged):  # a damaged result is computed again
            return msgspec.json.decode(read_sealed(self._path(tree, new, shape)), type=PatchFit)
        return None

    def make(
        self, tree: str, old: Files, new: Files, shape: ScriptShape, *, between: Callable[[], Sequence[Files]]
    ) -> PatchFit:  # fmt: skip
        """Makes and caches the patch for a version; versions `between` it and the newest help when in doubt."""
        patch = make_patch(old, new, self._names, any_logger=self._instrumented)
        if not patch.is_certain and (known := between()):
            through = make_patch(old, new, self._names, any_logger=self._instrumented, between=known)
            patch = max(patch, through, key=lambda one: one.rank)
        fit = self.of_patch(patch, old, shape)
        with contextlib.suppress(OSError):  # a read-only home computes it each time
            self._write(self._path(tree, new, shape), msgspec.json.encode(fit))
        return fit

    def of_patch(self, patch: Patch, old: Files, shape: ScriptShape) -> PatchFit:
        """Analyses a given patch."""
        patch = replace(patch, originals={file: old.get(file) for file in patch.files})
        files = choose_imported({**old, **patch.files}, old, shape.entry, shape.imports)
        kept, others, is_anywhere = self._find_state(patch, files, shape)
        reach = find_reach(
            files, shape.entry, [*patch.added, *others], shape.mains, loops=shape.source_loops,
            instrumented=self._instrumented, has_framework_loop=shape.has_framework_loop, recorded=patch.originals,
        )  # fmt: skip
        if shape.rerun_loop is not None:
            reach = with_reruns(reach, shape.mains, shape.rerun_loop)
        if is_anywhere:
            reach = replace(reach, kept=reach.kept | {ANY_LOOP}, is_anywhere=True)
        # Added statements leave no loop, so this reads what was read already.
        leaving = leaving_loops(files, shape.entry if self._instrumented else None)
        return PatchFit(patch, reach, leaving, heavy_imports(files), kept)

    def _find_state(
        self, patch: Patch, files: Files, shape: ScriptShape
    ) -> tuple[tuple[str, ...], list[AddedStatement], bool]:  # fmt: skip
        """Returns the variables that added code keeps between iterations, and its statements in loops and functions.

        And whether its functions may be called anywhere.
        """
        names = {path[-1] for path in shape.mains if path}
        program = read_program(files, shape.entry if self._instrumented else None, patch.originals)
        sites = [(unit.file, site) for unit in program.units for site in unit.loops]
        kept: dict[str, None] = {}
        others: list[AddedStatement] = []
        callbacks: list[str] = []
        for file, text in patch.files.items():
            mains = {site.line for owner, site in sites if owner == file and site.name in names}
            found = find_added_state(patch.originals.get(file), text, mains)
            kept |= dict.fromkeys((*found.kept, *found.callbacks))
            callbacks += found.callbacks
            others += [AddedStatement(file, line, "") for line in found.lines]
        return tuple(kept), others, bool(callbacks)

    def _path(self, tree: str, new: Files, shape: ScriptShape) -> Path:
        if id(new) not in self._digests:
            self._digests[id(new)] = stable_hash(dict(new))
        rules = [_CACHE_VERSION, RULES_VERSION if self._instrumented else 0]
        mains = sorted(map(list, shape.mains))
        loops = sorted(map(list, shape.loops))
        imports = [sorted(shape.imports.files), shape.imports.is_complete] if shape.imports is not None else None
        key = [
            rules, tree, self._digests[id(new)], self._names, shape.entry, mains, loops, shape.has_framework_loop,
            imports, *([shape.rerun_loop] if shape.rerun_loop is not None else []),
        ]  # fmt: skip
        return self._folder / f"{stable_hash(key)[:32]}.json"

    def _write(self, path: Path, content: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        write_sealed(path, content, durable=False)
        if len(os.listdir(self._folder)) > _MAX_FILES * 1.1:
            files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
            for old in files[:-_MAX_FILES]:
                old.unlink(missing_ok=True)
