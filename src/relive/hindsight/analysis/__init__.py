"""Static analysis for replay: the patch of a version, and the loops in which its statements may run."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.analysis.depth import NOWHERE, PREFIX, SUFFIX, Reach
    from relive.hindsight.analysis.error_handlers import may_handle_errors
    from relive.hindsight.analysis.imported_files import ImportRecord
    from relive.hindsight.analysis.patch_cache import PatchCache, PatchFit, ScriptShape
    from relive.hindsight.analysis.patched_source import Files, Patch, make_patch, read_python_files, read_source
    from relive.hindsight.analysis.pinned_patches import PinnedPatches, patch_at_line, patch_from_files
    from relive.hindsight.analysis.program import LoopPath
    from relive.hindsight.analysis.syntax_facts import ANY_LOOP
    from relive.hindsight.analysis.virtual_tree import InsertedStatement, insert_statement, logged_names

__getattr__ = lazy_names(__name__)
