"""Python source as statements: trees, effects, bindings, alignment of versions, and patches."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.transplant.syntax.alignment import align
    from relive.transplant.syntax.definite_assignment import Bound, DefiniteAssignment, leaves_block, slot_scope
    from relive.transplant.syntax.inserted_block import (
        LOGGING_PREFIXES,
        affects,
        find_companions,
        find_new_users,
        is_new,
    )
    from relive.transplant.syntax.insertion_slots import (
        SIBLINGS,
        Slot,
        SlotNeighbours,
        candidate_slots,
        find_neighbours,
        gap_text,
    )
    from relive.transplant.syntax.name_correspondence import (
        assigned_paths,
        count_old_bases,
        count_old_names,
        free_names,
    )
    from relive.transplant.syntax.statement_effects import dedented_head, effects, parameter_names, parse_quietly
    from relive.transplant.syntax.statement_pairs import Alignment, dice_similarity
    from relive.transplant.syntax.statement_rewrite import attributes_of, paths_of, rename_variables
    from relive.transplant.syntax.statement_tree import LOOPS, SCOPES, Node, Tree, parse
    from relive.transplant.syntax.text_patch import (
        Insertion,
        TextGap,
        apply_insertions,
        can_insert,
        dedent_source,
        make_insertion,
    )

__getattr__ = lazy_names(__name__)
