"""Carrying one statement over: its place, its names, and whatever it needs that the old version lacks."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from relive.transplant.commutativity import makes_no_difference
from relive.transplant.dependency_slice import SliceUnit, import_of, join, origin, parsed_import, with_new_wrappers
from relive.transplant.placement import ScoredPlace, places
from relive.transplant.project_pair import Project
from relive.transplant.syntax import (
    LOOPS,
    SCOPES,
    Alignment,
    Bound,
    Node,
    Slot,
    effects,
    free_names,
    other_names,
    scope_of,
    surroundings,
)

_TRIED = 4  # places that are tried for one at which all names have values
_LEAST = 0.02  # less probable places are not
_NEARBY = 10  # statements before and after, of any block, of which one must have a partner
_ATTRIBUTE = re.compile(r"(?<![\w.])([^\W\d]\w*)\.([^\W\d]\w*)")
_MOST_UNITS = 40  # a statement that needs more new code than this is another program


class CarryRefused(Exception):
    """A statement can't be carried over; the message says why."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A unit, the file and slot it goes to, and what its names are there."""

    unit: SliceUnit
    old_path: str
    slot: Slot
    names: dict[str, str]


@dataclass(slots=True)
class Carried:
    """All that one statement brings along, itself last."""

    placed: list[Placed] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # whole files that the old version lacks
    probability: float = 1.0
    equivalent: bool = False
    notes: list[str] = field(default_factory=list)
    node: Node | None = None  # the statement itself
    where: Placed | None = None  # and its place, known also when it is refused later


class Carrier:
    """Carries statements from the new version of a project into the old one."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.carried = Carried()
        self.provided: set[tuple[str, str]] = set()  # (old path, name) of what comes along
        self.units: list[SliceUnit] = []

    def carry(self, path: str, node: Node) -> Carried:
        """Find the place of a statement and of all that it needs; raises Refused."""
        found = self.project.alignment(path, node)
        if found is None:
            raise CarryRefused(f"the old version has no file like {path}")
        old_path, alignment = found
        unit = with_new_wrappers(alignment, path, node, self.project.left_out.get(path, ()))
        ranked = self._places(unit, alignment)
        if not ranked or not _is_grounded(alignment, unit.node):
            raise CarryRefused("nothing that stands around it is in the old version")
        if unit.node.kind in LOOPS:
            self.carried.probability *= 0.8  # a loop that the old version doesn't have, less most of its body
        chosen, missing = self._best(unit, old_path, alignment, ranked)
        around = sum(place.probability for place in ranked if self._same(unit, alignment, chosen, place))
        self.carried.probability *= around * _sure_of_functions(alignment, node)
        self.carried.equivalent = len(ranked) > 1 and self._same(unit, alignment, chosen, _second(ranked, chosen))
        placed = Placed(unit, old_path, chosen.slot, {})
        self.carried.node, self.carried.where = node, placed
        self._supply(placed, alignment, missing)
        self.carried.placed.append(placed)
        return self.carried

    def _places(self, unit: SliceUnit, alignment: Alignment) -> list[ScoredPlace]:
        flags = self.project.is_left_out(unit.path)
        return places(alignment, surroundings(alignment.new_tree, unit.node, flags))

    def _same(self, unit: SliceUnit, alignment: Alignment, chosen: ScoredPlace, other: ScoredPlace) -> bool:
        return makes_no_difference(alignment.old_tree, chosen.slot, other.slot, alignment.new_tree, unit)

    def _best(
        self, unit: SliceUnit, old_path: str, alignment: Alignment, ranked: list[ScoredPlace]
    ) -> tuple[ScoredPlace, dict[str, Bound]]:
        """The most probable place at which no name lacks its value; if there is none, the most probable."""
        first = None
        for place in ranked[:_TRIED]:
            if first is not None and place.probability < _LEAST:
                break
            missing = self._missing(unit, old_path, alignment, place.slot)
            lacking = [name for name, state in missing.items() if state == Bound.NO]
            if first is None:
                first = (place, missing)
            if not lacking or not self._bound_elsewhere(alignment, lacking):
                return place, missing
        assert first is not None
        return first

    def _bound_elsewhere(self, alignment: Alignment, lacking: list[str]) -> bool:
        """Whether another place could help: the old version binds the names somewhere."""
        return any(name in node.words for node in alignment.old_tree.nodes for name in lacking)

    def _missing(self, unit: SliceUnit, old_path: str, alignment: Alignment, slot: Slot) -> dict[str, Bound]:
        """Names that are less surely bound in a slot than they were in the new version."""
        new_names, old_names = self.project.names(alignment.new_tree), self.project.names(alignment.old_tree)
        assert unit.node.parent is not None
        own_slot = Slot(unit.node.parent, unit.node.index)
        missing = {}
        for name, at_once in free_names(alignment.new_tree, unit.nodes()).items():
            state = old_names.at(slot, name, at_once=at_once)
            if new_names.is_local(own_slot, name) and not old_names.belongs_to(slot, name):
                state = Bound.NO  # another thing of the same name, which the function doesn't own
            if state < new_names.at(own_slot, name, at_once=at_once) and (old_path, name) not in self.provided:
                missing[name] = state
        return missing

    # --- what is missing ---------------------------------------------------------------------------------------------

    def _supply(self, placed: Placed, alignment: Alignment, missing: dict[str, Bound]) -> None:
        """Find the old name of each missing thing, or bring the thing along."""
        for name, state in missing.items():
            other = self._old_name(alignment, placed, name, state)
            if other is not None:
                placed.names[name] = other
                self.carried.probability *= 0.97
            elif not self._bring(placed, alignment, name, state):
                if self.project.names(alignment.old_tree).is_of(scope_of(placed.slot), name):
                    raise CarryRefused(f"{name} has its value there only on some ways through the old version")
                self.carried.probability *= 0.75
                self.carried.notes.append(f"{name} may have no value there")
        self._check_modules(placed, alignment)

    def _old_name(self, alignment: Alignment, placed: Placed, name: str, state: Bound) -> str | None:
        votes = other_names(alignment, name, placed.unit.node.scope)
        for other, count in votes.most_common(3):
            if other == name or count <= votes[name]:
                continue
            bound = self.project.names(alignment.old_tree).at(placed.slot, other)
            if bound <= state or other_names(alignment, other, placed.unit.node.scope)[other] >= count:
                continue
            return other
        return None

    def _bring(self, placed: Placed, alignment: Alignment, name: str, state: Bound) -> bool:
        """Bring along what gives a name its value; False if the old version may have it after all."""
        came_from = origin(self.project.names(alignment.new_tree), placed.unit.node, name)
        if came_from is None or came_from.is_parameter or not came_from.statements:
            if state == Bound.PERHAPS:
                return False
            raise CarryRefused(self._why(came_from, name))
        is_import = all("import" in node.words for node in came_from.statements)
        if state == Bound.PERHAPS and not is_import:
            return False
        self.provided.add((placed.old_path, name))
        for unit in self._units_for(placed, alignment, name, came_from.statements):
            self._bring_unit(unit, placed, alignment)
        self.carried.notes.append(f"{name} comes along")
        return True

    @staticmethod
    def _why(came_from: object, name: str) -> str:
        scope = getattr(came_from, "scope", None)
        if scope is not None and getattr(came_from, "is_parameter", False):
            return f"{name} isn't in the old version: it is a parameter of {scope.name}()"
        return f"{name} has no value there in the old version, and where it comes from can't be seen"

    def _units_for(self, placed: Placed, alignment: Alignment, name: str, statements: list[Node]) -> list[SliceUnit]:
        path, tree, units = placed.unit.path, alignment.new_tree, []
        for node in statements:
            if node.kind and node.kind not in SCOPES and node.order < placed.unit.node.order < node.after:
                raise CarryRefused(f"{name} isn't in the old version: `{tree.head(node).strip()}` binds it")
            source = import_of(tree, node, name)
            if source is not None:
                units.append(SliceUnit(path, node, source=source))
                self._check_import(path, node, name)
                continue
            owner = node.parent if node.is_clause and node.parent is not None else node
            units.append(with_new_wrappers(alignment, path, owner, self.project.left_out.get(path, ())))
        return join(units)

    def _bring_unit(self, unit: SliceUnit, user: Placed, alignment: Alignment) -> None:
        if unit in self.units or any(_covers(placed.unit, unit) for placed in self.carried.placed):
            return
        self.units.append(unit)
        if len(self.units) > _MOST_UNITS:
            raise CarryRefused(f"it needs more than {_MOST_UNITS} statements that the old version lacks")
        slot = self._slot_for(unit, user, alignment)
        placed = Placed(unit, user.old_path, slot, {})
        if unit.source is None:
            self._forbid_rebinding(unit, slot, alignment)
            if unit.node.kind not in SCOPES and "(" in unit.node.key:
                self.carried.probability *= 0.9  # what it calls may change more than can be seen
        missing = self._missing(unit, user.old_path, alignment, slot)
        if unit.source is None:
            self._supply(placed, alignment, missing)
        self.carried.placed.append(placed)

    def _slot_for(self, unit: SliceUnit, user: Placed, alignment: Alignment) -> Slot:
        """A place of its own that comes before the user's, or the user's own."""
        partner = alignment.old[unit.node.order]
        if unit.source is not None and partner is not None and partner.parent is not None:
            return Slot(partner.parent, partner.index + 1)
        ranked = self._places(unit, alignment)
        same_scope = user.unit.node.scope is unit.node.scope
        for place in ranked[:_TRIED]:
            slot = place.slot
            if not same_scope:
                if slot.block.parent is None or unit.node.scope.parent is not None:
                    return slot
            elif slot.order <= user.slot.order and slot.block in (user.slot.block, *user.slot.block.around()):
                return slot
            elif unit.node.parent is not user.unit.node.parent and effects(alignment.new_tree, unit.node).changes:
                return slot  # what fills a list in a loop stays in that loop
        if not same_scope and unit.node.scope.parent is None:
            root = alignment.old_tree.root
            top = next((node for node in (user.slot.block, *user.slot.block.around()) if node.parent is root), None)
            return Slot(root, top.index if top is not None else 0)
        return user.slot

    def _forbid_rebinding(self, unit: SliceUnit, slot: Slot, alignment: Alignment) -> None:
        """New code must not give new values to what old code uses."""
        old_names, scope = self.project.names(alignment.old_tree), scope_of(slot)
        bound = {name for node in unit.nodes() for name in effects(alignment.new_tree, node).binds}
        if unit.node.kind in SCOPES:
            bound = {unit.node.name}
        taken = sorted(name for name in bound if old_names.is_used_in(scope, name))
        if taken:
            head = alignment.new_tree.head(unit.node).split("\n")[0].strip()
            raise CarryRefused(
                f"`{head}` would have to come along, but it also binds {taken[0]}, which the old version has"
            )

    # --- other files -------------------------------------------------------------------------------------------------

    def _check_modules(self, placed: Placed, alignment: Alignment) -> None:
        """`metrics.f1(…)`: what is asked of a module of the project must be in the old one too."""
        tree, unit = alignment.new_tree, placed.unit
        for node in unit.nodes():
            for module, attribute in _attributes(tree.head(node)):
                came_from = origin(self.project.names(tree), unit.node, module)
                for statement in came_from.statements if came_from else ():
                    self._check_import(unit.path, statement, module, attribute)

    def _check_import(self, path: str, node: Node, name: str, attribute: str | None = None) -> None:
        """Bring along the file, or the function in it, that an import leads to."""
        found = parsed_import(self.project.new_tree(path), node)
        for alias in found.names if found is not None else ():
            if name not in (alias.asname, alias.name, alias.name.split(".")[0]):
                continue
            if isinstance(found, ast.Import):
                target, wanted = self.project.module_path(path, alias.name), attribute
            else:
                assert found is not None
                module, level = found.module or "", found.level
                target, wanted = self.project.module_path(path, f"{module}.{alias.name}".strip("."), level), attribute
                if target is None:  # a name of the module, and no module of a package
                    target, wanted = self.project.module_path(path, module, level), alias.name
            if target is not None:
                self._bring_from(target, wanted)

    def _bring_from(self, path: str, name: str | None) -> None:
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
        if old_names.is_of(old_names.tree.root, name) or not new_names.is_of(new_names.tree.root, name):
            return
        self.provided.add((path, name))
        found = self.project.alignment(path)
        assert found is not None
        old_path, alignment = found
        for node in new_names.touching(new_names.tree.root, name):
            if name in effects(new_names.tree, node).binds:
                self._bring_top_level(
                    SliceUnit(path, node, source=import_of(new_names.tree, node, name)), old_path, alignment
                )
        self.carried.notes.append(f"{name} comes along in {path}")

    def _bring_top_level(self, unit: SliceUnit, old_path: str, alignment: Alignment) -> None:
        root = alignment.old_tree.root
        ranked = self._places(unit, alignment)
        slot = next((place.slot for place in ranked if place.slot.block is root), Slot(root, len(root.body or ())))
        placed = Placed(unit, old_path, slot, {})
        if unit.source is None:
            self._supply(placed, alignment, self._missing(unit, old_path, alignment, slot))
        self.carried.placed.append(placed)

    def _bring_imports_of(self, path: str) -> None:
        tree = self.project.new_tree(path)
        for node in tree.nodes:
            found = parsed_import(tree, node)
            for alias in found.names if found is not None else ():
                self._check_import(path, node, alias.asname or alias.name)


def _covers(placed: SliceUnit, unit: SliceUnit) -> bool:
    """Whether the same statement is there already: the whole of it, or the import of the same name out of it."""
    return unit.node is placed.node and placed.source in (None, unit.source)


def _is_grounded(alignment: Alignment, node: Node) -> bool:
    """Whether anything speaks for a place: a partner of the function, of a sibling, or of a statement nearby."""
    if node.scope.parent is not None and alignment.old[node.scope.order] is not None:
        return True
    siblings = [each.order for each in (node.parent.body if node.parent else None) or ()]
    nearby = [*range(max(0, node.order - _NEARBY), node.order), *range(node.after, node.after + _NEARBY)]
    return any(alignment.old[order] is not None for order in (*siblings, *nearby) if order < len(alignment.old))


def _sure_of_functions(alignment: Alignment, node: Node) -> float:
    """How sure it is that the functions around a statement are those of the old version: less if paired by looks."""
    scopes = [outer for outer in node.around() if outer.kind in SCOPES and alignment.old[outer.order] is not None]
    return min([1.0, *(0.5 + alignment.likeness[scope.order] for scope in scopes)])


def _second(ranked: list[ScoredPlace], chosen: ScoredPlace) -> ScoredPlace:
    return next(place for place in ranked if place is not chosen)


def _attributes(head: str) -> list[tuple[str, str]]:
    return _ATTRIBUTE.findall(head)
