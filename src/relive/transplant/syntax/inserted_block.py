"""Statements that were inserted together with another one, and that affect it by what they do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from relive.transplant.syntax.statement_effects import effects
from relive.transplant.syntax.statement_tree import SCOPES, Node, Tree

if TYPE_CHECKING:
    from relive.transplant.syntax.statement_pairs import Alignment

LOGGING_PREFIXES = ("print(", "logger.", "logging.", "log(", "relive.log(", "wandb.log(", "writer.add_", "tqdm.write(")


def find_companions(
    alignment: Alignment, node: Node, inside: Iterable[Node], carried: Collection[Node]
) -> list[Node]:  # fmt: skip
    """Returns the statements beside one that came with it and change, set or use what it reads, in their order.

    `net.eval()` before `relive.log("acc", accuracy(net))`, and `net.train()` behind it, belong to the question. Only
    statements that were inserted count, where the old version has nothing instead: others may be what became of old
    ones, which would then run twice.
    """
    assert node.parent is not None
    assert node.parent.body is not None
    beside, first, last = node.parent.body, node.index, node.index
    while first > 0 and is_new(alignment, beside[first - 1], carried):
        first -= 1
    while last + 1 < len(beside) and is_new(alignment, beside[last + 1], carried):
        last += 1
    if first == last or not _is_insertion(alignment, beside, first, last):
        return []
    tree = alignment.new_tree
    left = [one for one in beside[first : last + 1] if one is not node and one not in carried]
    left = [one for one in left if not _calls_dead_code(alignment.old_tree, one)]
    names = {name for one in inside for name in effects(tree, one).reads}
    found: list[Node] = []
    while more := [one for one in left if affects(tree, one, names)]:
        found += more
        left = [one for one in left if one not in more]
        names |= {name for top in more for one in (top, *top.descendants()) for name in effects(tree, one).reads}
    return sorted(found, key=lambda one: one.order)


def find_new_users(alignment: Alignment, scope: Node, name: str, carried: Collection[Node]) -> list[Node]:
    """Returns the new statements of a scope that act on a variable which comes along.

    They mention it, or a new function that does: `net.register_forward_hook(hook)`, where `hook` fills it.
    """
    tree, names = alignment.new_tree, {name}
    new = [one for one in scope.descendants() if is_new(alignment, one, carried)]
    definitions = [one for one in new if one.kind in SCOPES and one.scope is scope and one.name]
    while more := {
        str(one.name)
        for one in definitions
        if one.name not in names and any(names.intersection(inner.words) for inner in one.descendants())
    }:
        names |= more
    tops = [one for one in new if one.scope is scope and (one.parent is None or one.parent not in new)]
    return [one for one in tops if affects(tree, one, names) and not one.key.startswith(LOGGING_PREFIXES)]


def is_new(alignment: Alignment, node: Node, carried: Collection[Node]) -> bool:
    """Whether nothing of a statement has a partner in the old version, apart from what is carried."""
    orders = {order for one in carried for order in range(one.order, one.after)}
    return all(order in orders or alignment.old[order] is None for order in range(node.order, node.after))


def affects(tree: Tree, node: Node, names: Collection[str]) -> bool:
    """Whether a statement, or one inside it, sets or changes one of these variables, or calls something with it."""
    if node.kind in SCOPES or "import" in node.words:
        return False  # definitions are carried by name
    for one in (node, *node.descendants()):
        found = effects(tree, one)
        if one.key.startswith(LOGGING_PREFIXES):
            continue
        is_bare_call = not one.kind and not found.binds and "(" in one.key
        if (found.binds | found.changes).intersection(names) or (is_bare_call and found.reads.intersection(names)):
            return True
    return False


def _calls_dead_code(old: Tree, node: Node) -> bool:
    """Whether a statement calls a function that the old version has and never calls: there it may not even work."""
    called = node.key.partition("(")[0]
    mentions = [one for one in old.nodes if called in one.words] if called.isidentifier() and "(" in node.key else []
    return bool(mentions) and all(one.kind == "def" and one.name == called for one in mentions)


def _is_insertion(alignment: Alignment, beside: list[Node], first: int, last: int) -> bool:
    """Whether the old version has nothing where some new statements stand."""
    before = alignment.old[beside[first - 1].order] if first > 0 else None
    after = alignment.old[beside[last + 1].order] if last + 1 < len(beside) else None
    if first > 0 and last + 1 < len(beside):
        return before is not None and after is not None and _follows(before, after)
    if first > 0:
        return before is not None and before.parent is not None and before.index + 1 == len(before.parent.body or ())
    return after is not None and after.index == 0


def _follows(before: Node, after: Node) -> bool:
    return before.parent is after.parent and after.index == before.index + 1
