"""What forbids to carry a definition along: the old version has the object elsewhere, or uses the name otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from relive.transplant.carry_result import CarryRefused, PlacedUnit
from relive.transplant.dependency_slice import Origin, SliceUnit, only_computes
from relive.transplant.syntax import (
    SCOPES,
    Alignment,
    DefiniteAssignment,
    Node,
    Slot,
    assigned_paths,
    effects,
    slot_scope,
)

_SAME_OBJECT = 0.6  # the similarity of two statements that make the same object


def forbid_copies(alignment: Alignment, name: str, statements: Sequence[Node]) -> None:
    """Raises CarryRefused if the old version makes the object elsewhere: a second one would be another.

    A plain value, such as the length of a list, is no object of its own: it can be computed twice.
    """
    for node in statements:
        partner = alignment.old[node.order]
        if partner is None or node.kind in SCOPES or not (node.kind or "(" in node.key):
            continue
        if name not in effects(alignment.new_tree, node).binds or only_computes(alignment.new_tree, node):
            continue
        if alignment.similarity[node.order] >= _SAME_OBJECT:
            head = alignment.old_tree.head(partner).split("\n")[0].strip()
            raise CarryRefused(f"{name} has no value there in the old version, which has it as `{head}` elsewhere")


def forbid_rebinding(old_names: DefiniteAssignment, unit: SliceUnit, slot: Slot, alignment: Alignment) -> None:
    """Raises CarryRefused if the unit binds names that old code uses."""
    bound = {name for node in unit.nodes() for name in effects(alignment.new_tree, node).binds}
    if unit.node.kind in SCOPES:
        bound = {unit.node.name}
    taken = sorted(name for name in bound - {"_"} if old_names.is_used_in(slot_scope(slot), name))
    if taken:
        _refuse_binding(alignment, unit, taken[0])


def forbid_renamed_targets(old_names: DefiniteAssignment, placed: PlacedUnit, alignment: Alignment) -> None:
    """Raises CarryRefused if the unit assigns attributes that became variables which old code uses."""
    assigned = {path for node in placed.unit.nodes() for path in assigned_paths(alignment.new_tree, node)}
    for new, old in sorted(placed.names.items()):
        if "." in new and "." not in old and new in assigned and old_names.is_used_in(slot_scope(placed.slot), old):
            _refuse_binding(alignment, placed.unit, old)


def _refuse_binding(alignment: Alignment, unit: SliceUnit, name: str) -> None:
    head = alignment.new_tree.head(unit.node).split("\n")[0].strip()
    raise CarryRefused(f"`{head}` would have to come along, but it also binds {name}, which the old version has")


def missing_reason(definition: Origin | None, name: str) -> str:
    """Returns why a name without a definition can't be carried."""
    if definition is not None and definition.is_parameter:
        return f"{name} isn't in the old version: it is a parameter of {definition.scope.name}()"
    return f"{name} has no value there in the old version, and its definition can't be found"
