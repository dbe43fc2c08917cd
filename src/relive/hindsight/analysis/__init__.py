"""Static analysis for replay: where the added statement lands, and in which loops it can run."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.analysis.depth import NOWHERE, PREFIX, SUFFIX, Reach
    from relive.hindsight.analysis.patch_cache import PatchCache, PatchFit
    from relive.hindsight.analysis.patched_source import Files, Patch, make_patch, read_tree
    from relive.hindsight.analysis.pinned_places import Pins, from_text, put_at
    from relive.hindsight.analysis.program import Path
    from relive.hindsight.analysis.syntax_facts import ANY

__getattr__ = lazy_names(__name__)
