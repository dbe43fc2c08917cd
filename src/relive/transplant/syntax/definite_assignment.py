"""Whether a name has a value at a place: definite assignment over the statements of a text."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from enum import IntEnum

from relive.transplant.syntax.insertion_slots import Slot
from relive.transplant.syntax.statement_effects import effects, head_at_margin, parameters
from relive.transplant.syntax.statement_tree import LOOPS, SCOPES, Node, Tree

_ALWAYS_THERE = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "__package__", "__spec__", "__loader__", "__builtins__", "__class__",
    "unicode", "xrange", "raw_input", "long", "basestring", "reduce", "unichr",
}  # fmt: skip
_LEAVES = ("return", "raise", "continue", "break")


class Bound(IntEnum):
    """How sure it is that a name has a value."""

    NO = 0
    PERHAPS = 1
    YES = 2


class DefiniteAssignment:
    """Answers for one tree which names have values where."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._touching: dict[tuple[Node, str], list[Node]] = {}
        self._found: dict[tuple[Node, str], Bound] = {}

    def at(self, slot: Slot, name: str, *, at_once: bool = True) -> Bound:
        """Whether a name has a value when the statement in a slot begins, or when a function made there is called."""
        scope = scope_of(slot)
        owner = self.owner(scope, name)
        if owner is None:
            return self._anywhere(name)
        if owner is scope and at_once:
            return self._in_scope(slot, scope, name)
        return Bound.YES if owner.parent is not None else self._in_module(owner, name)

    def owner(self, scope: Node, name: str) -> Node | None:
        """The scope that a name belongs to, seen from a scope: itself, or one around it that is no class."""
        if self.is_of(scope, name):
            return scope
        while scope.parent is not None:
            scope = scope.scope
            if scope.kind != "class" and self.is_of(scope, name):
                return scope
        return None

    def is_of(self, scope: Node, name: str) -> bool:
        """Whether a name belongs to a scope: the scope binds it and doesn't say that it is of another."""
        if scope.kind == "def" and name in parameters(head_at_margin(self.tree, scope)):
            return True
        found = [effects(self.tree, node) for node in self.touching(scope, name)]
        return any(name in each.binds for each in found) and not any(name in each.elsewhere for each in found)

    def is_local(self, slot: Slot, name: str) -> bool:
        """Whether the function around a slot binds a name itself, not as a parameter."""
        scope = scope_of(slot)
        if scope.kind != "def" or name in parameters(head_at_margin(self.tree, scope)):
            return False
        return self.is_of(scope, name)

    def belongs_to(self, slot: Slot, name: str) -> bool:
        """Whether the scope around a slot binds a name itself, or nothing does."""
        scope = scope_of(slot)
        return self.owner(scope, name) in (scope, None)

    def is_used_in(self, scope: Node, name: str) -> bool:
        """Whether binding a name in a scope would change what the code there, or in its functions, means."""
        if scope.parent is None:
            return self.is_of(scope, name)
        return any(name in node.words for node in scope.inside()) or self.is_of(scope, name)

    def touching(self, scope: Node, name: str) -> list[Node]:
        """The statements of a scope, not of the functions in it, whose headers have the name in them."""
        key = (scope, name)
        if key not in self._touching:
            self._touching[key] = [node for node in own(scope) if name in node.words]
        return self._touching[key]

    def _anywhere(self, name: str) -> Bound:
        if name in _ALWAYS_THERE:
            return Bound.YES
        for node in self.tree.nodes:
            if "import" in node.words and effects(self.tree, node).star:
                return Bound.PERHAPS
            if name in node.words and name in effects(self.tree, node).elsewhere:
                return Bound.PERHAPS
        return Bound.NO

    def _in_module(self, root: Node, name: str) -> Bound:
        """For code of functions, which runs later: what the module binds counts wherever it stands."""
        found = any(self._binds(node, name) == Bound.YES for node in root.body or ())
        return Bound.YES if found or name in _ALWAYS_THERE else Bound.PERHAPS

    def _in_scope(self, slot: Slot, scope: Node, name: str) -> Bound:
        best = Bound.YES if scope.kind == "def" and name in parameters(head_at_margin(self.tree, scope)) else Bound.NO
        block, siblings = slot.block, (slot.block.body or [])[: slot.index]
        while True:
            state = self._after(siblings, name)
            if state == Bound.YES:
                return Bound.YES
            best = max(best, state)
            if block is scope:
                break
            best = max(best, self._from_header(block, name), self._from_next_rounds(block, name))
            if best == Bound.YES:
                return best
            assert block.parent is not None
            outer = block.parent
            if block.is_clause:
                best = max(best, self._from_clauses_before(outer, block, name))
                block, outer = outer, outer.parent or outer
            siblings = (outer.body or [])[: block.index]
            block = outer
        if best != Bound.YES and scope.parent is None and self._anywhere(name):
            return max(best, self._anywhere(name))
        return best

    def _after(self, siblings: list[Node], name: str) -> Bound:
        """What a run of statements leaves: the last that binds the name surely, or unbinds it, decides."""
        best = Bound.NO
        for node in reversed(siblings):
            if name in node.words and not node.kind and name in effects(self.tree, node).unbinds:
                return best
            state = self._binds(node, name)
            if state == Bound.YES:
                return Bound.YES
            best = max(best, state)
        return best

    def _from_header(self, block: Node, name: str) -> Bound:
        if block.kind in SCOPES or name not in block.words or name not in effects(self.tree, block).binds:
            return Bound.NO
        return Bound.PERHAPS if block.kind == "while" and block.is_clause else Bound.YES

    def _from_next_rounds(self, block: Node, name: str) -> Bound:
        """In a loop, what is bound further down has its value from the second round on."""
        if block.kind not in LOOPS:
            return Bound.NO
        return Bound.PERHAPS if any(self._binds(node, name) for node in block.body or ()) else Bound.NO

    def _from_clauses_before(self, owner: Node, clause: Node, name: str) -> Bound:
        """What the statement did before it came to a clause of it."""
        header = self._from_header(owner, name)
        if owner.kind == "if" or owner.kind == "match":
            walrus = [self._from_header(other, name) for other in owner.clauses[: owner.clauses.index(clause)]]
            return max([header if owner.kind == "match" else min(header, Bound.YES), *walrus])
        inside = self._after(owner.body or [], name)
        if owner.kind == "try" and clause.kind == "else":
            return inside
        return Bound.PERHAPS if inside or header else Bound.NO

    def _binds(self, node: Node, name: str) -> Bound:
        """Whether a statement, with all that is inside it, gives a name its value."""
        key = (node, name)
        if key not in self._found:  # asked twice on each level, which would double with every level
            self._found[key] = self._find(node, name)
        return self._found[key]

    def _find(self, node: Node, name: str) -> Bound:
        if name in node.words and name in effects(self.tree, node).binds:
            if node.kind != "for":
                return Bound.YES if not node.is_clause else Bound.PERHAPS
            return Bound.PERHAPS
        if node.kind in SCOPES or node.body is None:
            return Bound.NO
        blocks = [node, *node.clauses]
        if not any(self._after(block.body or [], name) or self._from_header(block, name) for block in blocks):
            return Bound.NO
        return self._of_blocks(node, [self._through(block, name) for block in blocks])

    def _of_blocks(self, node: Node, blocks: list[Bound]) -> Bound:
        if node.kind == "with" or node.key == "if__name__=='__main__':":
            return blocks[0]
        kinds = [clause.kind for clause in node.clauses]
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

    def _through(self, block: Node, name: str) -> Bound:
        """What a block leaves; one that never comes to its end leaves nothing undone."""
        body = block.body or []
        state = self._after(body, name)
        if state != Bound.YES and body and _leaves(body[-1]):
            return Bound.YES if block.kind not in LOOPS else state
        return state


def scope_of(slot: Slot) -> Node:
    """The function, class or root whose code a slot is in."""
    return slot.block if slot.block.kind in SCOPES or slot.block.parent is None else slot.block.scope


def _leaves(node: Node) -> bool:
    return not node.kind and (node.key.startswith(_LEAVES) or node.key.startswith(("sys.exit(", "exit(", "quit(")))


def own(scope: Node) -> Iterator[Node]:
    """The nodes of a scope, headers of functions and classes in it included, but not what is inside those."""
    for node in [*(scope.body or ()), *scope.clauses]:
        yield node
        if node.kind not in SCOPES:
            yield from own(node)
