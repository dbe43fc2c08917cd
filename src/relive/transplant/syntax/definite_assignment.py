"""Whether a name is assigned at a given place: definite-assignment analysis over the statements of a text."""

from __future__ import annotations

import builtins
from enum import IntEnum

from relive.transplant.syntax.insertion_slots import Slot
from relive.transplant.syntax.statement_effects import dedented_head, effects, parameter_names
from relive.transplant.syntax.statement_tree import LOOPS, SCOPES, Node, Tree

_PREDEFINED = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__", "__class__",
    "unicode", "xrange", "raw_input", "long", "basestring", "reduce", "unichr",
}  # fmt: skip
_CONDITIONAL_WORDS = frozenset(("and", "or", "else", "lambda", "del"))  # what follows may not be evaluated
_JUMPS = ("return", "raise", "continue", "break")


class Bound(IntEnum):
    """Whether a name is assigned at a place: on no path, on some paths, or on all paths."""

    NO = 0
    PERHAPS = 1
    YES = 2


class DefiniteAssignment:
    """Definite-assignment analysis of one tree; with `loops_run`, as if loops ran and an `if` took one of its cases."""

    def __init__(self, tree: Tree, *, loops_run: bool = False) -> None:
        self.tree, self.loops_run = tree, loops_run
        self._touching: dict[tuple[Node, str], list[Node]] = {}
        self._bindings: dict[tuple[Node, str], Bound] = {}

    def state_at(self, slot: Slot, name: str, *, at_once: bool = True) -> Bound:
        """Returns whether a name is assigned when a statement in the slot starts.

        With `at_once=False`, the name is needed only when a function defined in the slot is called.
        """
        scope = slot_scope(slot)
        owner = self.owner(scope, name)
        if owner is None:
            return self._state_without_owner(name)
        if owner is scope and at_once:
            return self._state_in_scope(slot, scope, name)
        return Bound.YES if owner.parent is not None else self._state_in_module(owner, name)

    def state_of_running(self, slot: Slot, name: str, *, at_once: bool = True) -> Bound:
        """Returns the state like `state_at`, given that the program runs: what a neighbour reads is assigned.

        If each case of an `if` assigns a name, one of the cases is taken.
        """
        state = self.state_at(slot, name, at_once=at_once)
        return Bound.YES if state == Bound.PERHAPS and self._is_read_nearby(slot, name) else state

    def _is_read_nearby(self, slot: Slot, name: str) -> bool:
        """Whether a statement surely reads a name before the slot, or after it with no binding in between."""
        for node in (slot.block.body or [])[slot.index :]:
            if self._surely_reads(node, name):
                return True
            if leaves_block(node) or self._binding(node, name):
                break
        scope, block, index = slot_scope(slot), slot.block, slot.index
        while True:
            before = (block.body or [])[:index]
            if any(self._surely_reads(node, name) or self._binds_in_each_case(node, name) for node in before):
                return True
            if block is scope or block.parent is None:
                return False
            outer = block.parent if not block.is_clause else block.parent.parent
            index = block.index if not block.is_clause else block.parent.index
            block = outer or block

    def _surely_reads(self, node: Node, name: str) -> bool:
        if name not in node.words or node.kind in SCOPES or node.words & _CONDITIONAL_WORDS:
            return False
        return name in effects(self.tree, node).reads

    def _binds_in_each_case(self, node: Node, name: str) -> bool:
        """Whether an `if` with several cases, and no `else`, binds a name in each of them."""
        if node.kind != "if" or not node.clauses:
            return False
        return all(self._state_through(block, name) == Bound.YES for block in (node, *node.clauses))

    def owner(self, scope: Node, name: str) -> Node | None:
        """Returns the scope that owns a name used in a scope: this scope, or an enclosing one that isn't a class."""
        if self.owns(scope, name):
            return scope
        while scope.parent is not None:
            scope = scope.scope
            if scope.kind != "class" and self.owns(scope, name):
                return scope
        return None

    def owns(self, scope: Node, name: str) -> bool:
        """Whether a scope owns a name: it binds the name and doesn't declare it global or nonlocal."""
        if scope.kind == "def" and name in parameter_names(dedented_head(self.tree, scope)):
            return True
        found = [effects(self.tree, node) for node in self.mentioning(scope, name)]
        return any(name in each.binds for each in found) and not any(name in each.elsewhere for each in found)

    def is_local(self, slot: Slot, name: str) -> bool:
        """Whether the function around a slot binds a name other than as a parameter."""
        scope = slot_scope(slot)
        if scope.kind != "def" or name in parameter_names(dedented_head(self.tree, scope)):
            return False
        return self.owns(scope, name)

    def is_local_or_unowned(self, slot: Slot, name: str) -> bool:
        """Whether the scope around a slot owns a name, or assigns it as a global or nonlocal one, or no scope does."""
        scope = slot_scope(slot)
        if self.owner(scope, name) in (scope, None):
            return True
        return any(name in effects(self.tree, node).elsewhere for node in self.mentioning(scope, name))

    def is_used_in(self, scope: Node, name: str) -> bool:
        """Whether binding a name in a scope could change the meaning of code there or in its functions."""
        if scope.parent is None:
            return self.owns(scope, name)
        found = (effects(self.tree, node) for node in scope.descendants() if name in node.words)
        used = any(name in each.reads | each.binds | each.changes | each.elsewhere for each in found)
        return used or self.owns(scope, name)

    def mentioning(self, scope: Node, name: str) -> list[Node]:
        """Returns the statements of a scope, without its functions, whose headers contain the name."""
        key = (scope, name)
        if key not in self._touching:
            self._touching[key] = [node for node in scope.scope_nodes() if name in node.words]
        return self._touching[key]

    def _state_without_owner(self, name: str) -> Bound:
        """Returns the state of a name that no scope owns: predefined, perhaps from a star import or a global."""
        if name in _PREDEFINED:
            return Bound.YES
        for node in self.tree.nodes:
            if "import" in node.words and effects(self.tree, node).star:
                return Bound.PERHAPS
            if name in node.words and name in effects(self.tree, node).elsewhere:
                return Bound.PERHAPS
        return Bound.NO

    def _state_in_module(self, root: Node, name: str) -> Bound:
        """Returns the state for code of functions, which runs later: any binding of the module counts."""
        found = any(self._binding(node, name) == Bound.YES for node in root.body or ())
        return Bound.YES if found or name in _PREDEFINED else Bound.PERHAPS

    def _state_in_scope(self, slot: Slot, scope: Node, name: str) -> Bound:
        best = (
            Bound.YES if scope.kind == "def" and name in parameter_names(dedented_head(self.tree, scope)) else Bound.NO
        )
        block, siblings = slot.block, (slot.block.body or [])[: slot.index]
        while True:
            state = self._state_after(siblings, name)
            if state == Bound.YES:
                return Bound.YES
            best = max(best, state)
            if block is scope:
                break
            best = max(best, self._from_header(block, name), self._from_later_iterations(block, name))
            if best == Bound.YES:
                return best
            assert block.parent is not None
            outer = block.parent
            if block.is_clause:
                best = max(best, self._from_earlier_clauses(outer, block, name))
                block, outer = outer, outer.parent or outer
            siblings = (outer.body or [])[: block.index]
            block = outer
        if best != Bound.YES and scope.parent is None and self._state_without_owner(name):
            return max(best, self._state_without_owner(name))
        return best

    def _state_after(self, siblings: list[Node], name: str) -> Bound:
        """Returns the state after consecutive statements; the last that surely binds or unbinds the name decides."""
        best = Bound.NO
        for node in reversed(siblings):
            if name in node.words and not node.kind and name in effects(self.tree, node).unbinds:
                return best
            state = self._binding(node, name)
            if state == Bound.YES:
                return Bound.YES
            best = max(best, state)
        return best

    def _from_header(self, block: Node, name: str) -> Bound:
        if block.kind in SCOPES or name not in block.words or name not in effects(self.tree, block).binds:
            return Bound.NO
        return Bound.PERHAPS if block.kind == "while" and block.is_clause else Bound.YES

    def _from_later_iterations(self, block: Node, name: str) -> Bound:
        """In a loop, names bound further down are assigned from the second iteration on."""
        if block.kind not in LOOPS:
            return Bound.NO
        return Bound.PERHAPS if any(self._binding(node, name) for node in block.body or ()) else Bound.NO

    def _from_earlier_clauses(self, owner: Node, clause: Node, name: str) -> Bound:
        """Returns the state when control reaches a clause of a statement."""
        header = self._from_header(owner, name)
        if owner.kind == "if" or owner.kind == "match":
            walrus = [self._from_header(other, name) for other in owner.clauses[: owner.clauses.index(clause)]]
            return max([header if owner.kind == "match" else min(header, Bound.YES), *walrus])
        inside = self._state_after(owner.body or [], name)
        if owner.kind == "try" and clause.kind == "else":
            return inside
        return Bound.PERHAPS if inside or header else Bound.NO

    def _binding(self, node: Node, name: str) -> Bound:
        """Returns whether a statement, with everything inside it, binds a name."""
        key = (node, name)
        if key not in self._bindings:  # computed twice per level, so the cost would double with every level
            self._bindings[key] = self._compute_binding(node, name)
        return self._bindings[key]

    def _compute_binding(self, node: Node, name: str) -> Bound:
        if name in node.words and name in effects(self.tree, node).binds:
            if node.kind != "for" or self.loops_run:
                return Bound.YES if not node.is_clause else Bound.PERHAPS
            return Bound.PERHAPS
        if node.kind in SCOPES or node.body is None:
            return Bound.NO
        blocks = [node, *node.clauses]
        if not any(self._state_after(block.body or [], name) or self._from_header(block, name) for block in blocks):
            return Bound.NO
        return self._combine_blocks(node, [self._state_through(block, name) for block in blocks])

    def _combine_blocks(self, node: Node, blocks: list[Bound]) -> Bound:
        if node.kind == "with" or node.key == "if__name__=='__main__':":
            return blocks[0]
        kinds = [clause.kind for clause in node.clauses]
        if self.loops_run and (node.kind in LOOPS or (node.kind == "if" and kinds)):
            return blocks[0] if node.kind in LOOPS else min(blocks)
        if node.kind == "if" and "else" in kinds:
            return Bound.YES if min(blocks) == Bound.YES else Bound.PERHAPS
        if node.kind == "try":
            if "finally" in kinds and blocks[1 + kinds.index("finally")] == Bound.YES:
                return Bound.YES
            handlers = [state for kind, state in zip(kinds, blocks[1:], strict=True) if kind == "except"]
            tried = max([blocks[0], *(state for kind, state in zip(kinds, blocks[1:], strict=True) if kind == "else")])
            return Bound.YES if min([tried, *handlers]) == Bound.YES else Bound.PERHAPS
        if node.kind == "while" and node.key in ("whileTrue:", "while1:"):
            return blocks[0]
        if node.kind == "match" and any(clause.key == "case_:" for clause in node.clauses):
            return Bound.YES if min(blocks[1:]) == Bound.YES else Bound.PERHAPS
        return Bound.PERHAPS

    def _state_through(self, block: Node, name: str) -> Bound:
        """Returns the state after a block; a block that never reaches its end counts as binding the name."""
        body = block.body or []
        state = self._state_after(body, name)
        if state != Bound.YES and body and leaves_block(body[-1]):
            return Bound.YES if block.kind not in LOOPS else state
        return state


def slot_scope(slot: Slot) -> Node:
    """Returns the function, class or root that a slot is in."""
    return slot.block if slot.block.kind in SCOPES or slot.block.parent is None else slot.block.scope


def leaves_block(node: Node) -> bool:
    """Whether what follows a statement in its block is never reached."""
    if node.kind:
        return False
    jumps = any(word in node.words and node.key.startswith(word) for word in _JUMPS)
    return jumps or node.key.startswith(("sys.exit(", "exit(", "quit("))
