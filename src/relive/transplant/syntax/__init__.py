"""Python text as statements: trees, effects, bindings, alignment and patches."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.transplant.syntax.alignment import Alignment, align
    from relive.transplant.syntax.definite_assignment import Bound, DefiniteAssignment, own, scope_of
    from relive.transplant.syntax.insertion_slots import SIBLINGS, Slot, SlotNeighbours, candidates, gap, surroundings
    from relive.transplant.syntax.name_correspondence import free_names, other_names, with_names
    from relive.transplant.syntax.statement_effects import effects, head_at_margin, parameters
    from relive.transplant.syntax.statement_tree import LOOPS, SCOPES, Node, Tree, parse
    from relive.transplant.syntax.text_patch import Insertion, TextGap, apply, dedented, fits, insertion

__getattr__ = lazy_names(__name__)
