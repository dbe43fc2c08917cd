"""How a question fits one version: the patch, and where in the loops its statements may run; worked out once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from relive.hashing import stable_hash
from relive.hindsight.analysis.depth import Reach, find_reach, leaving_loops
from relive.hindsight.analysis.heavy_imports import heavy_imports
from relive.hindsight.analysis.patched_source import Files, Patch, make_patch
from relive.hindsight.analysis.program import Path as LoopPath
from relive.instrument import RULES
from relive.store import Home

_RULES = 4  # counts up whenever the same sources would fit otherwise
_KEPT = 2_000  # files of this kind in a home; the oldest go


class PatchFit(msgspec.Struct, frozen=True):
    """A version with the statements in it, and what that means for replaying a run that `entry` started."""

    patch: Patch
    reach: Reach
    leaving: frozenset[str]  # loops that may be left by another way than to what follows them
    modules: tuple[str, ...] = ()  # libraries that may be loaded before the script is


class PatchCache:
    """Fits a question to versions. What was found out is kept in the home, since sources never change.

    `instrumented`: the runs are of scripts that knew nothing of relive.
    """

    def __init__(self, home: Home, names: Sequence[str], *, instrumented: bool = False) -> None:
        self._folder = home.path / "fits"
        self._instrumented = instrumented
        self._names = list(names)
        self._digests: dict[int, str] = {}

    def find(self, tree: str, new: Files, entry: str, mains: Collection[LoopPath], *, is_led: bool) -> PatchFit | None:
        """What is known already; `tree` is the id of the version's content."""
        with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(self._path(tree, new, entry, mains, is_led=is_led).read_bytes(), type=PatchFit)
        return None

    def make(
        self, tree: str, old: Files, new: Files, entry: str, mains: Collection[LoopPath], *,
        between: Callable[[], Sequence[Files]], is_led: bool,
    ) -> PatchFit:  # fmt: skip
        """Fit the question to a version; those `between` it and the newest are asked when in doubt."""
        patch = make_patch(old, new, self._names, any_logger=self._instrumented)
        if not patch.is_certain and (known := between()):
            by_way = make_patch(old, new, self._names, any_logger=self._instrumented, between=known)
            patch = max(patch, by_way, key=lambda one: one.rank)
        fit = self.of_patch(patch, old, entry, mains, is_led=is_led)
        with contextlib.suppress(OSError):  # a home that can't be written to is asked anew each time
            self._keep(self._path(tree, new, entry, mains, is_led=is_led), msgspec.json.encode(fit))
        return fit

    def of_patch(self, patch: Patch, old: Files, entry: str, mains: Collection[LoopPath], *, is_led: bool) -> PatchFit:
        """What a patch means, whoever made it. `is_led`: a library runs a main loop."""
        files = {**old, **patch.files}
        reach = find_reach(files, entry, patch.added, mains, instrumented=self._instrumented, is_led=is_led)
        return PatchFit(patch, reach, leaving_loops(old, entry if self._instrumented else None), heavy_imports(files))

    def _path(self, tree: str, new: Files, entry: str, mains: Collection[LoopPath], *, is_led: bool) -> Path:
        if id(new) not in self._digests:
            self._digests[id(new)] = stable_hash(dict(new))
        rules = [_RULES, RULES if self._instrumented else 0]
        key = [rules, tree, self._digests[id(new)], self._names, entry, sorted(map(list, mains)), is_led]
        return self._folder / f"{stable_hash(key)[:32]}.json"

    def _keep(self, path: Path, content: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        part.rename(path)
        if len(os.listdir(self._folder)) > _KEPT * 1.1:
            files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
            for old in files[:-_KEPT]:
                old.unlink(missing_ok=True)
