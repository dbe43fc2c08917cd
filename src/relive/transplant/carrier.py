"""Carries one statement into the old version: its slot, its names there, and definitions that the old version lacks."""

from __future__ import annotations

import ast
import itertools

from relive.transplant.call_arguments import default_value, module_argument, passed_expression
from relive.transplant.carry_limits import forbid_copies, forbid_rebinding, forbid_renamed_targets, missing_reason
from relive.transplant.carry_result import CarryRefused, CarryResult, PlacedUnit
from relive.transplant.commutativity import is_equivalent_slot
from relive.transplant.dependency_slice import (
    Origin,
    SliceUnit,
    attribute_accesses,
    child_of,
    is_first_value,
    merge_units,
    origin,
    parse_import,
    single_import,
    with_new_wrappers,
)
from relive.transplant.old_variables import OldVariables
from relive.transplant.placement import RankedSlot, has_evidence, neighbour_certainty, rank_slots, scope_certainty
from relive.transplant.project_pair import ProjectPair
from relive.transplant.syntax import (
    LOOPS,
    SCOPES,
    Alignment,
    Bound,
    DefiniteAssignment,
    Node,
    Slot,
    can_insert,
    effects,
    find_companions,
    find_neighbours,
    find_new_users,
    free_names,
    slot_scope,
)

_MAX_TRIED = 4  # slots that are tried for one in which all names are assigned
_MIN_PROBABILITY = 0.1  # slots that are less probable than this share of the best are not tried
_MAX_UNITS = 40  # a statement that needs more new code belongs to another program


class Carrier:
    """Carries statements from the new version of a project into the old one."""

    def __init__(self, project: ProjectPair) -> None:
        self.project = project
        self.carried = CarryResult()
        self.provided: set[tuple[str, str]] = set()  # (old path, name) of definitions that are carried along
        self.units: list[SliceUnit] = []
        self.beside: list[Node] = []  # statements of the same file that were inserted together with it

    def carry(self, path: str, node: Node) -> CarryResult:
        """Finds the places of a statement and of everything it needs; raises CarryRefused."""
        found = self.project.alignment(path, node)
        if found is None:
            raise CarryRefused(f"the old version has no file like {path}")
        old_path, alignment = found
        unit = with_new_wrappers(alignment, path, node, self.project.carried_nodes.get(path, ()))
        self._find_companions(unit, old_path, alignment)
        ranked = self._rank_slots(unit, alignment)
        if not ranked or not has_evidence(alignment, unit.node):
            raise CarryRefused("none of the code around it is in the old version")
        if unit.node.kind in LOOPS:
            self.carried.probability *= 0.8  # a loop that is new, and without most of its body
        chosen, missing = self._choose_slot(unit, old_path, alignment, ranked)
        certainty = sum(place.probability for place in ranked if self._is_equivalent(unit, alignment, chosen, place))
        neighbours = find_neighbours(alignment.new_tree, unit.node, self.project.carried_flags(path, self.beside))
        certainty *= scope_certainty(alignment, node) * neighbour_certainty(alignment, neighbours, chosen.slot)
        self.carried.probability *= certainty
        next_best = next((place for place in ranked if place is not chosen), None)
        self.carried.equivalent = next_best is not None and self._is_equivalent(unit, alignment, chosen, next_best)
        placed = PlacedUnit(unit, old_path, chosen.slot, {})
        self.carried.node, self.carried.where = node, placed
        self._place_companions(placed, alignment)
        self._resolve_names(placed, alignment, missing)
        self.carried.placed.append(placed)
        return self.carried

    def _find_companions(self, unit: SliceUnit, old_path: str, alignment: Alignment) -> None:
        """Finds the statements that were inserted with a unit and affect it."""
        carried = self.project.carried_nodes.get(unit.path, ())
        self.beside = find_companions(alignment, unit.node, unit.nodes(), carried)
        every = [one for node in self.beside if node.order < unit.node.order for one in (node, *node.descendants())]
        self.provided |= {(old_path, name) for one in every for name in effects(alignment.new_tree, one).binds}

    def _place_companions(self, user: PlacedUnit, alignment: Alignment) -> None:
        for unit in [SliceUnit(user.unit.path, node) for node in self.beside]:
            placed = PlacedUnit(unit, user.old_path, user.slot, {})
            forbid_rebinding(self.project.names(alignment.old_tree), unit, user.slot, alignment)
            missing = self._missing_names(unit, user.old_path, alignment, user.slot)
            self._resolve_names(placed, alignment, missing)
            self.carried.placed.append(placed)
            self.carried.notes.append(f"`{alignment.new_tree.head(unit.node).split(chr(10))[0].strip()}` comes along")

    def _rank_slots(self, unit: SliceUnit, alignment: Alignment) -> list[RankedSlot]:
        flags = self.project.carried_flags(unit.path, self.beside)
        return rank_slots(alignment, find_neighbours(alignment.new_tree, unit.node, flags))

    def _is_equivalent(self, unit: SliceUnit, alignment: Alignment, chosen: RankedSlot, other: RankedSlot) -> bool:
        return is_equivalent_slot(alignment.old_tree, chosen.slot, other.slot, alignment.new_tree, unit)

    def _choose_slot(
        self, unit: SliceUnit, old_path: str, alignment: Alignment, ranked: list[RankedSlot]
    ) -> tuple[RankedSlot, dict[str, Bound]]:
        """Returns the most probable slot in which all names are assigned, else the most probable, and missing names."""
        first = None
        for place in ranked[:_MAX_TRIED]:
            if first is not None and place.probability < _MIN_PROBABILITY * first[0].probability:
                break
            missing = self._missing_names(unit, old_path, alignment, place.slot)
            first = first or (place, missing)
            if not missing or not self._occurs_in_old(alignment, list(missing)):
                return place, missing
        assert first is not None
        return first

    def _occurs_in_old(self, alignment: Alignment, lacking: list[str]) -> bool:
        """Whether the old version mentions the names anywhere, so that another slot could help."""
        return any(name in node.words for node in alignment.old_tree.nodes for name in lacking)

    def _missing_names(self, unit: SliceUnit, old_path: str, alignment: Alignment, slot: Slot) -> dict[str, Bound]:
        """Returns the names that are less surely assigned in a slot than in the new version."""
        new_names, old_names = self.project.names(alignment.new_tree), self.project.names(alignment.old_tree)
        assert unit.node.parent is not None
        new_slot = Slot(unit.node.parent, unit.node.index)
        missing = {}
        for name, at_once in free_names(alignment.new_tree, unit.nodes()).items():
            state = old_names.state_of_running(slot, name, at_once=at_once)
            if new_names.is_local(new_slot, name) and not old_names.is_local_or_unowned(slot, name):
                state = Bound.NO  # a different variable of the same name, which the function doesn't own
            if state < new_names.state_at(new_slot, name, at_once=at_once) and (old_path, name) not in self.provided:
                missing[name] = state
        return missing

    # --- missing names -----------------------------------------------------------------------------------------------

    def _resolve_names(self, placed: PlacedUnit, alignment: Alignment, missing: dict[str, Bound]) -> None:
        """Finds the old name of each missing variable, or carries its definition along."""
        variables = OldVariables(self.project, alignment, placed)
        variables.forbid_foreign_relive()
        for name, state in missing.items():
            renamed = variables.rename(name, state)
            if renamed is not None:
                self.carried.probability *= renamed
            elif not self._bring_definition(placed, alignment, name, state):
                if not self._is_assigned_if_loops_run(placed.slot, alignment, name):
                    raise CarryRefused(f"{name} has its value there only on some paths through the old version")
                self.carried.probability *= 0.75
                self.carried.notes.append(f"{name} may have no value there")
        for note in variables.rename_new_attributes(missing):
            self.carried.probability *= 0.7
            self.carried.notes.append(note)
        self._bring_attributes(placed, alignment)

    def _is_assigned_if_loops_run(self, slot: Slot, alignment: Alignment, name: str) -> bool:
        """Whether a name has its value at a place if all loops before it run, or the function doesn't own it."""
        if not self.project.names(alignment.old_tree).owns(slot_scope(slot), name):
            return True
        return DefiniteAssignment(alignment.old_tree, loops_run=True).state_at(slot, name) == Bound.YES

    def _bring_definition(self, placed: PlacedUnit, alignment: Alignment, name: str, state: Bound) -> bool:
        """Carries the definition of a name along; False if the old version may have one after all."""
        definition = origin(self.project.names(alignment.new_tree), placed.unit.node, name)
        if definition is None or definition.is_parameter or not definition.statements:
            if state == Bound.PERHAPS:
                return False
            new_names = self.project.names(alignment.new_tree)
            if definition is not None and self._bring_default(placed, alignment, name, definition):
                return True
            passed = module_argument(new_names, definition, name)
            if passed is None and self._bring_argument(placed, alignment, name, definition):
                return True
            if passed is None:
                raise CarryRefused(missing_reason(definition, name))
            self.carried.probability *= 0.9  # a call in another file may pass something else
            definition = passed
        is_import = all("import" in node.words for node in definition.statements)
        if state == Bound.PERHAPS and not is_import:
            return self._bring_first_value(placed, alignment, name, definition)
        if not is_import:
            renamed = OldVariables(self.project, alignment, placed).rename_by_definition(
                name, state, definition.statements
            )
            if renamed is not None:
                self.carried.probability *= renamed
                return True
            forbid_copies(alignment, name, definition.statements)
        self.provided.add((placed.old_path, name))
        carried = self.project.carried_nodes.get(placed.unit.path, ())
        users = [] if is_import else find_new_users(alignment, definition.scope, name, carried)
        for unit in self._units_for(placed, alignment, name, [*dict.fromkeys([*definition.statements, *users])]):
            self._bring_unit(unit, placed, alignment)
        self.carried.notes.append(f"{name} comes along")
        return True

    def _bring_default(self, placed: PlacedUnit, alignment: Alignment, name: str, definition: Origin) -> bool:
        """Carries the default of a parameter that the function doesn't have in the old version."""
        value = default_value(alignment.new_tree, definition.scope, name) if definition.is_parameter else None
        if value is None or self._is_read_there(placed, alignment, name):
            return False
        self._bring_value(self._value_unit(placed, definition, f"{name} = {value}"), name)
        self.carried.notes.append(f"{name} comes along with its default")
        return True

    def _bring_argument(self, placed: PlacedUnit, alignment: Alignment, name: str, definition: Origin | None) -> bool:
        """Carries what the calls pass for a parameter that the function doesn't have in the old version."""
        value = passed_expression(self.project.names(alignment.new_tree), definition, name)
        if value is None or definition is None or self._is_read_there(placed, alignment, name):
            return False
        unit = self._value_unit(placed, definition, f"{name} = {value}")
        variables, old_names = OldVariables(self.project, alignment, unit), self.project.names(alignment.old_tree)
        for used in sorted({each.id for each in ast.walk(ast.parse(value)) if isinstance(each, ast.Name)}):
            state = old_names.state_at(placed.slot, used)
            if state < Bound.YES and variables.rename(used, state) is None:
                return False
        self._bring_value(unit, name)
        self.carried.notes.append(f"{name} comes along as {value}")
        return True

    @staticmethod
    def _value_unit(placed: PlacedUnit, definition: Origin, source: str) -> PlacedUnit:
        return PlacedUnit(
            SliceUnit(placed.unit.path, definition.scope, source=source), placed.old_path, placed.slot, {}
        )

    def _bring_value(self, placed: PlacedUnit, name: str) -> None:
        self.carried.placed.append(placed)
        self.provided.add((placed.old_path, name))
        self.carried.probability *= 0.8

    @staticmethod
    def _is_read_there(placed: PlacedUnit, alignment: Alignment, name: str) -> bool:
        """Whether the old function reads a name, which an assignment would change."""
        nodes = (node for node in slot_scope(placed.slot).descendants() if name in node.words)
        return any(name in effects(alignment.old_tree, node).reads for node in nodes)

    def _bring_first_value(self, placed: PlacedUnit, alignment: Alignment, name: str, definition: Origin) -> bool:
        """Carries `best = None` along if the old version assigns the name on some paths, and later only."""
        tree, scope, node = alignment.new_tree, slot_scope(placed.slot), placed.unit.node
        old_names = self.project.names(alignment.old_tree)
        if definition.scope is not node.scope or old_names.owner(scope, name) is not scope:
            return False
        first = next((each for each in definition.statements if is_first_value(tree, each, name)), None)
        if first is None or alignment.old[first.order] is not None or first.order > node.order:
            return False
        if any(
            outer.kind in LOOPS for outer in itertools.takewhile(lambda each: each is not node.scope, first.ancestors())
        ):
            return False
        users = [each for each in old_names.mentioning(scope, name) if name in effects(alignment.old_tree, each).binds]
        places = [child_of(scope, each) for each in (*users, placed.slot.after or placed.slot.block)]
        slot = Slot(scope, min(each.index for each in places if each is not None))
        if not can_insert(slot, compound=False):
            return False
        self.carried.placed.append(PlacedUnit(SliceUnit(placed.unit.path, first), placed.old_path, slot, {}))
        self.provided.add((placed.old_path, name))
        self.carried.probability *= 0.9
        self.carried.notes.append(f"{name} comes along with its first value")
        return True

    def _units_for(
        self, placed: PlacedUnit, alignment: Alignment, name: str, statements: list[Node]
    ) -> list[SliceUnit]:
        path, tree, units = placed.unit.path, alignment.new_tree, []
        for node in statements:
            if node.kind and node.kind not in SCOPES and node.order < placed.unit.node.order < node.after:
                raise CarryRefused(f"{name} isn't in the old version: `{tree.head(node).strip()}` binds it")
            source = single_import(tree, node, name)
            if source is not None:
                units.append(SliceUnit(path, node, source=source))
                self._follow_import(path, node, name)
                continue
            owner = node.parent if node.is_clause and node.parent is not None else node
            units.append(with_new_wrappers(alignment, path, owner, self.project.carried_nodes.get(path, ())))
        return merge_units(units)

    def _bring_unit(self, unit: SliceUnit, user: PlacedUnit, alignment: Alignment) -> None:
        if unit in self.units or any(placed.unit.covers(unit) for placed in self.carried.placed):
            return
        self.units.append(unit)
        if len(self.units) > _MAX_UNITS:
            raise CarryRefused(f"it needs more than {_MAX_UNITS} statements that the old version lacks")
        slot = self._slot_for(unit, user, alignment)
        placed = PlacedUnit(unit, user.old_path, slot, {})
        if unit.source is None:
            forbid_rebinding(self.project.names(alignment.old_tree), unit, slot, alignment)
            if unit.node.kind not in SCOPES and "(" in unit.node.key:
                self.carried.probability *= 0.9  # the call may have side effects
        missing = self._missing_names(unit, user.old_path, alignment, slot)
        if unit.source is None:
            self._resolve_names(placed, alignment, missing)
            forbid_renamed_targets(self.project.names(alignment.old_tree), placed, alignment)
        self.carried.placed.append(placed)

    def _slot_for(self, unit: SliceUnit, user: PlacedUnit, alignment: Alignment) -> Slot:
        """Returns a slot of its own before the statement that uses it, or the slot of that statement."""
        partner = alignment.old[unit.node.order]
        same_scope = user.unit.node.scope is unit.node.scope
        if unit.source is not None and partner is not None and partner.parent is not None:
            slot = Slot(partner.parent, partner.index + 1)
            is_in_time = slot.order <= user.slot.order or not same_scope
            if is_in_time and slot.block in (user.slot.block, *user.slot.block.ancestors()):
                return slot  # not in a block that may be skipped
        ranked = self._rank_slots(unit, alignment)
        for place in ranked[:_MAX_TRIED]:
            slot = place.slot
            if not same_scope:
                if slot.block.parent is None or unit.node.scope.parent is not None:
                    return slot
            elif slot.order <= user.slot.order and slot.block in (user.slot.block, *user.slot.block.ancestors()):
                return slot
            elif unit.node.parent is not user.unit.node.parent and effects(alignment.new_tree, unit.node).changes:
                return slot  # a statement that fills a list in a loop stays in that loop
        if not same_scope and unit.node.scope.parent is None:
            root = alignment.old_tree.root
            top = next((node for node in (user.slot.block, *user.slot.block.ancestors()) if node.parent is root), None)
            return Slot(root, top.index if top is not None else 0)
        return user.slot

    # --- other files -------------------------------------------------------------------------------------------------

    def _bring_attributes(self, placed: PlacedUnit, alignment: Alignment) -> None:
        """Carries used attributes of project modules along, such as `f1` in `metrics.f1(…)`, if they are new."""
        tree, unit = alignment.new_tree, placed.unit
        for node in unit.nodes():
            for module, attribute in attribute_accesses(tree.head(node)):
                definition = origin(self.project.names(tree), unit.node, module)
                for statement in definition.statements if definition else ():
                    self._follow_import(unit.path, statement, module, attribute)

    def _follow_import(self, path: str, node: Node, name: str, attribute: str | None = None) -> None:
        """Carries the file that an import refers to along, or a definition in it, if the old version lacks it."""
        found = parse_import(self.project.new_tree(path), node)
        for alias in found.names if found is not None else ():
            if name not in (alias.asname, alias.name, alias.name.split(".")[0]):
                continue
            if isinstance(found, ast.Import):
                target, imported_name = self.project.module_path(path, alias.name), attribute
            else:
                assert found is not None
                module, level = found.module or "", found.level
                target, imported_name = (
                    self.project.module_path(path, f"{module}.{alias.name}".strip("."), level),
                    attribute,
                )
                if target is None:  # a name defined in the module, not a submodule
                    target, imported_name = self.project.module_path(path, module, level), alias.name
            if target is not None:
                self._bring_from_file(target, imported_name)

    def _bring_from_file(self, path: str, name: str | None) -> None:
        if path not in self.project.new or path in self.carried.files:
            return
        if path not in self.project.old and self.project.alignment(path) is None:
            self.carried.files[path] = self.project.new[path]
            self.carried.notes.append(f"the file {path} comes along")
            self._bring_imports_of(path)
            return
        if name is None or path not in self.project.old or (path, name) in self.provided:
            return
        new_names, old_names = (
            self.project.names(tree) for tree in (self.project.new_tree(path), self.project.old_tree(path))
        )
        if old_names.owns(old_names.tree.root, name) or not new_names.owns(new_names.tree.root, name):
            return
        self.provided.add((path, name))
        found = self.project.alignment(path)
        assert found is not None
        old_path, alignment = found
        for node in new_names.mentioning(new_names.tree.root, name):
            if name in effects(new_names.tree, node).binds:
                self._bring_top_level(
                    SliceUnit(path, node, source=single_import(new_names.tree, node, name)), old_path, alignment
                )
        self.carried.notes.append(f"{name} comes along in {path}")

    def _bring_top_level(self, unit: SliceUnit, old_path: str, alignment: Alignment) -> None:
        root = alignment.old_tree.root
        ranked = self._rank_slots(unit, alignment)
        slot = next((place.slot for place in ranked if place.slot.block is root), Slot(root, len(root.body or ())))
        placed = PlacedUnit(unit, old_path, slot, {})
        if unit.source is None:
            self._resolve_names(placed, alignment, self._missing_names(unit, old_path, alignment, slot))
        self.carried.placed.append(placed)

    def _bring_imports_of(self, path: str) -> None:
        tree = self.project.new_tree(path)
        for node in tree.nodes:
            found = parse_import(tree, node)
            for alias in found.names if found is not None else ():
                self._follow_import(path, node, alias.asname or alias.name)
