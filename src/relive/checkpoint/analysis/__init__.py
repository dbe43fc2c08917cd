"""Static analysis of the user's source: which variables a loop defines, reads and changes."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.analysis.live_variables import (
        bound_in_function,
        falls_through,
        given_in,
        live_outs,
        rebound_in,
        set_in,
        set_later,
        used_in,
    )
    from relive.checkpoint.analysis.project_mutations import (
        changed_globals,
        changing_attributes,
        given_by_functions,
        is_foreign,
        is_projects,
        project_files,
        project_modules,
        project_texts,
        read_by_functions,
        rebound_attributes,
        tree_of,
    )

__getattr__ = lazy_names(__name__)
