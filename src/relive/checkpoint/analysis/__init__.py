"""Static analysis of the project's source: which variables and attributes a loop binds, reads and mutates."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.analysis.live_variables import (
        bound_after_line,
        bound_in_function,
        escaping_from_loop,
        is_left_by_break,
        live_outs,
        modified_in_loop,
        read_in_loop,
        rebound_in_loop,
    )
    from relive.checkpoint.analysis.project_mutations import (
        escaping_from_functions,
        is_library_file,
        is_project_module,
        mutated_attributes,
        mutated_globals,
        names_read_by_functions,
        parse_file,
        project_files,
        project_modules,
        project_sources,
        rebound_attributes,
    )

__getattr__ = lazy_names(__name__)
