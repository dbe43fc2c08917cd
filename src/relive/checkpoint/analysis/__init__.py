"""Static analysis of the project's source: which variables a loop binds, reads and mutates."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.analysis.library_variables import assigned_library_variables
    from relive.checkpoint.analysis.live_variables import (
        is_left_by_break,
        live_outs,
        read_in_loop,
        rebound_in_loop,
    )
    from relive.checkpoint.analysis.project_mutations import (
        is_library_file,
        is_project_module,
        parse_file,
        project_files,
        project_modules,
        project_sources,
    )
    from relive.checkpoint.analysis.volatile_names import has_volatile_name, is_timing

__getattr__ = lazy_names(__name__)
