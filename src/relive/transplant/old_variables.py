"""Finds the variables of the old version that correspond to those a statement of the new one uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from relive.transplant.carry_result import CarryRefused, PlacedUnit
from relive.transplant.dependency_slice import imported_target, is_module, unit_source
from relive.transplant.project_pair import ProjectPair
from relive.transplant.syntax import (
    Alignment,
    Bound,
    Node,
    Tree,
    assigned_paths,
    attributes_of,
    count_old_bases,
    count_old_names,
    dedented_head,
    effects,
    free_names,
    parse_quietly,
    paths_of,
    slot_scope,
)

# The certainty of a name that paired statements show, of one that is spelled alike, and of one with like attributes.
_BY_VOTES, _BY_NAME, _BY_ATTRIBUTES = 0.97, 0.9, 0.7
_BY_DEFINITION = 0.85  # of a variable that is computed in the same way
_MIN_SHARED_ATTRIBUTES = 2


class OldVariables:
    """The variables of the old version for one unit in its slot; what is found is added to `placed.names`."""

    def __init__(self, project: ProjectPair, alignment: Alignment, placed: PlacedUnit) -> None:
        self.alignment, self.placed = alignment, placed
        self.old_names, self.new_names = project.names(alignment.old_tree), project.names(alignment.new_tree)
        self.scope, self.old_scope = placed.unit.node.scope, slot_scope(placed.slot)
        self.receivers = _receivers(alignment.new_tree, self.scope)
        self.old_receivers = _receivers(alignment.old_tree, self.old_scope)

    def forbid_foreign_relive(self) -> None:
        """Raises CarryRefused if a name that the new version imports from relive is something else in the old one."""
        for name in free_names(self.alignment.new_tree, self.placed.unit.nodes()):
            target = imported_target(self.new_names, self.scope, name)
            if not _is_of_relive(target) or self.old_names.owner(self.old_scope, name) is None:
                continue
            if imported_target(self.old_names, self.old_scope, name) != target:
                raise CarryRefused(
                    f"{name} is not {target} in the old version; call {target} in the statement by a name that is free"
                )

    def rename(self, name: str, state: Bound) -> float | None:
        """Finds what the old version calls a name, or each attribute that is used of it; returns the certainty."""
        found = self._find(name, state)
        if found is not None:
            self.placed.names[name], certainty = found
            return certainty * self._rename_inner_attributes(name, found[0])
        used = attributes_of(self._source(), name)
        attributes = {f"{name}.{each}": self._find_attribute(name, each, state) for each in used or ()}
        if not attributes or any(each is None for each in attributes.values()):
            return self._rename_base(name, state) if used else None
        certainty = 1.0
        for attribute, each in attributes.items():
            assert each is not None
            self.placed.names[attribute] = each[0]
            certainty *= each[1]
        return certainty

    def rename_by_definition(self, name: str, state: Bound, statements: Sequence[Node]) -> float | None:
        """Takes the variable that the old version assigns where the new one assigns a name; returns the certainty."""
        tree = self.alignment.new_tree
        defining = [node for node in statements if name in effects(tree, node).binds]
        votes = count_old_names(self.alignment, name, self.scope, among=defining)
        votes.update(path for node in defining for path in self._targets_opposite(node))
        for other, _ in votes.most_common(1):
            partners = [self.alignment.old[node.order] for node in defining]
            assigned = {
                path for old in partners if old is not None for path in assigned_paths(self.alignment.old_tree, old)
            }
            if other != name and other in assigned and self._state(other) > state:
                self.placed.names[name] = other
                return _BY_DEFINITION
        return None

    def _targets_opposite(self, node: Node) -> frozenset[str]:
        """Returns the variable that the partner of an assignment to one name assigns, if it is one."""
        old = self.alignment.old[node.order]
        targets = assigned_paths(self.alignment.old_tree, old) if old is not None else frozenset()
        is_one = len(assigned_paths(self.alignment.new_tree, node)) == 1 == len(targets)
        return targets if is_one and not node.kind else frozenset()

    def _find_attribute(self, name: str, attribute: str, state: Bound) -> tuple[str, float] | None:
        """Returns what the old version has for an attribute; without `self`, a variable if the unit assigns it."""
        path = f"{name}.{attribute}"
        found = self._find(path, state)
        if found is not None or name not in self.receivers or self.old_receivers:
            return found
        tree = self.alignment.new_tree
        is_assigned = any(path in assigned_paths(tree, node) for node in self.placed.unit.nodes())
        is_import = imported_target(self.old_names, self.old_scope, attribute) is not None
        return (attribute, _BY_NAME) if is_assigned and not is_import else None

    def _rename_base(self, name: str, state: Bound) -> float | None:
        """Takes another name with the same attributes: `args.workers` for `cfg.dataset.workers`."""
        for base, count in count_old_bases(self.alignment, name, self.scope).most_common(2):
            if base == name or self._state(base) <= state or base in self.old_receivers or name in self.receivers:
                continue
            if count < _MIN_SHARED_ATTRIBUTES or not self._can_be(name, base):
                continue
            self._rename_inner_attributes(name, base)
            self.placed.names[name] = base
            return _BY_ATTRIBUTES
        return None

    def _rename_inner_attributes(self, name: str, other: str) -> float:
        """Finds attributes of attributes directly in the other object: `args.workers` for `cfg.dataset.workers`."""
        text = self.alignment.old_tree.text
        certainty = 1.0
        for path in paths_of(self._source(), name):
            first, last = path.split(".")[1], path.split(".")[-1]
            if first == last or f"{other}.{first}" in text:
                continue
            certainty = _BY_ATTRIBUTES
            if re.search(rf"(?<![\w.]){re.escape(f'{other}.{last}')}\b", text):
                self.placed.names[path] = f"{other}.{last}"
        return certainty

    def rename_new_attributes(self, missing: dict[str, Bound]) -> list[str]:
        """Finds other names of attributes that the old version doesn't mention; returns notes on those not found."""
        notes = []
        for name in free_names(self.alignment.new_tree, self.placed.unit.nodes()):
            if name in missing or name not in self.receivers:
                continue
            for attribute in sorted(_attributes_used(self._source(), name)):
                path = f"{name}.{attribute}"
                if not _is_assigned(self.alignment.new_tree, path) or _is_mentioned(self.alignment.old_tree, attribute):
                    continue
                found = self._find(path, Bound.NO)
                if found is not None:
                    self.placed.names[path] = found[0]
                else:
                    notes.append(f"{path} may have no value there")
        return notes

    def _source(self) -> str:
        return unit_source(self.alignment.new_tree, self.placed.unit)

    def _find(self, name: str, state: Bound) -> tuple[str, float] | None:
        """Returns the variable that the old version has for one of the new, and the certainty."""
        target = imported_target(self.new_names, self.scope, name.split(".")[0])
        if _is_of_relive(target) or (target is not None and "." in name):
            return None
        votes = count_old_names(self.alignment, name, self.scope)
        for other, count in votes.most_common(3):
            if other == name or count <= votes[name] or self._state(other) <= state:
                continue
            if (name in self.receivers) != (other in self.old_receivers):
                continue  # an object is no variable of itself
            if count_old_names(self.alignment, other, self.scope)[other] >= count:
                continue
            base, old_base = name.partition("."), other.partition(".")
            if target is None and base[2] == old_base[2] and not self._can_be(base[0], old_base[0]):
                continue  # `entropy.mean()` is not `torch.mean()`
            if target is None or imported_target(self.old_names, self.old_scope, other) == target:
                return other, _BY_VOTES
        return self._namesake(name, state) if target is None else None

    def _namesake(self, name: str, state: Bound) -> tuple[str, float] | None:
        """Returns the attribute `self.net` of the old version for a variable `net` of the new one, or the reverse."""
        base, _, attribute = name.rpartition(".")
        if base:
            is_free = self.old_names.owner(self.old_scope, attribute) is None
            if is_free or base not in self.receivers or not self._is_object(attribute):
                return None
            return (attribute, _BY_NAME) if self._state(attribute) > state else None
        for receiver in self.old_receivers:
            if self._state(receiver) > state and _is_assigned(self.alignment.old_tree, f"{receiver}.{attribute}"):
                return f"{receiver}.{attribute}", _BY_NAME
        bases = set(
            re.findall(
                rf"(?<![\w.])([^\W\d]\w*)\.{re.escape(name)}\b(?!\s*(?:\(|=(?!=)))", self.alignment.old_tree.text
            )
        )
        objects = [base for base in sorted(bases) if self._state(base) > state and self._is_object(base)]
        if len(objects) == 1:
            return f"{objects[0]}.{name}", _BY_DEFINITION
        spelled = {word for node in self.alignment.old_tree.nodes for word in node.words if _is_alike(word, name)}
        bound = [word for word in sorted(spelled) if self._state(word) > state]
        return (bound[0], _BY_NAME) if len(bound) == 1 else None

    def _is_object(self, name: str) -> bool:
        return imported_target(self.old_names, self.old_scope, name) is None and name not in self.old_receivers

    def _can_be(self, name: str, old: str) -> bool:
        """Whether an object can be a name of the old version: a module, if only values are taken from it."""
        calls_or_passes = rf"(?<![\w.]){re.escape(name)}\b(?!\.\w+\b(?!\s*\())"
        return not is_module(self.old_names, self.old_scope, old) or not re.search(calls_or_passes, self._source())

    def _state(self, name: str) -> Bound:
        base = name.split(".")[0]
        is_owned = self.old_names.owner(self.old_scope, base) is not None
        return self.old_names.state_at(self.placed.slot, base) if is_owned else Bound.NO


def _is_of_relive(target: str | None) -> bool:
    return target is not None and target.split(".")[0] == "relive"


def _is_alike(one: str, other: str) -> bool:
    """Whether two names differ in case and underscores only: `batch_size`, `BATCH_SIZE`."""
    return one != other and one.replace("_", "").lower() == other.replace("_", "").lower() and len(other) > 2


def _receivers(tree: Tree, scope: Node) -> list[str]:
    """Returns the first parameters of the methods around a place: `self`."""
    found = []
    for outer in (scope, *scope.ancestors()):
        if outer.kind == "def" and outer.parent is not None and outer.scope.kind == "class":
            match parse_quietly(f"{dedented_head(tree, outer)} pass"):
                case [ast.FunctionDef() | ast.AsyncFunctionDef() as function] if function.args.args:
                    found.append(function.args.args[0].arg)
    return found


def _attributes_used(source: str, name: str) -> set[str]:
    return set(attributes_of(source, name) or ())


def _is_assigned(tree: Tree, path: str) -> bool:
    """Whether a file assigns an attribute anywhere."""
    words = set(path.split("."))
    return any(path in assigned_paths(tree, node) for node in tree.nodes if words <= node.words)


def _is_mentioned(tree: Tree, attribute: str) -> bool:
    """Whether a file takes an attribute of anything, or defines it in the body of a class."""
    if re.search(rf"\.\s*{attribute}\b(?![^\"'\n]*[\"']\s*[,)\]])", tree.text):
        return True
    return any(
        attribute in effects(tree, node).binds
        for node in tree.nodes
        if attribute in node.words and node.scope.kind == "class"
    )
