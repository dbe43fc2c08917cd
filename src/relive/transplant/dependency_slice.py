"""What a statement needs to run: where its names come from in the new version, and which of that is new."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from relive.transplant.syntax import (
    SCOPES,
    Alignment,
    DefiniteAssignment,
    Node,
    Tree,
    effects,
    free_names,
    head_at_margin,
    own,
    parameters,
)

_METHOD = re.compile(r"\.(\w+)\(")
_FILLS = frozenset("append appendleft add extend insert update setdefault put push accumulate collect reset".split())


@dataclass(frozen=True, slots=True)
class SliceUnit:
    """A statement to be carried; of what is inside it only `kept` comes along, or all if that is None."""

    path: str
    node: Node
    kept: frozenset[Node] | None = None
    source: str | None = None  # what is written instead of its own text: one name of a long import

    def nodes(self) -> Iterator[Node]:
        yield self.node
        for inner in self.node.inside():
            if self.kept is None or inner in self.kept:
                yield inner


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a name comes from: the scope it belongs to and the statements that give it its value there."""

    scope: Node
    is_parameter: bool
    statements: list[Node]


def origin(names: DefiniteAssignment, node: Node, name: str) -> Origin | None:
    """Where a name that a statement uses comes from; None if that can't be seen."""
    scope = names.owner(node.scope, name)
    if scope is None:
        return None
    tree = names.tree
    if scope.kind == "def" and name in parameters(head_at_margin(tree, scope)):
        return Origin(scope, True, [])
    touching = [other for other in names.touching(scope, name) if not node.order <= other.order < node.after]
    giving = [other for other in touching if name in effects(tree, other).binds or _only_changes(tree, other, name)]
    if scope is node.scope:
        loops = [outer for outer in node.around() if outer.kind in ("for", "while")]
        giving = [
            other
            for other in giving
            if other.order < node.order or any(loop.order < other.order < loop.after for loop in loops)
        ]
    return Origin(scope, False, giving)


def _only_changes(tree: Tree, node: Node, name: str) -> bool:
    """`scores.append(x)`, `table[key] = x`: statements that are there to fill what the name stands for."""
    told = effects(tree, node)
    if node.kind or name not in told.changes or told.binds - {name} or not node.key.startswith(name):
        return False
    method = _METHOD.match(node.key, len(name))
    return method is None or method.group(1) in _FILLS


def with_new_wrappers(alignment: Alignment, path: str, node: Node, left_out: Collection[Node]) -> SliceUnit:
    """A statement with the blocks around it that the old version has nothing of, and nothing else of theirs."""
    top = node
    while (outer := _owner(top)) is not None and _is_new(alignment, outer, left_out):
        top = outer
    if top is node:
        return SliceUnit(path, node)
    kept = {node, *node.inside(), *_between(node, top)}
    while more := _givers_inside(alignment.new_tree, SliceUnit(path, top, frozenset(kept))):
        kept |= more
    return SliceUnit(path, top, frozenset(kept))


def _between(node: Node, top: Node) -> set[Node]:
    """The blocks around a node that are inside another."""
    return set(itertools.takewhile(lambda outer: outer is not top, node.around()))


def _givers_inside(tree: Tree, unit: SliceUnit) -> set[Node]:
    """Statements of the block that a unit is made of that give names their values which it needs, and it lacks."""
    there = set(unit.nodes())
    needed = free_names(tree, unit.nodes())
    found: set[Node] = set()
    for node in own(unit.node):
        names = [name for name in needed if name in node.words and node not in there]
        if any(name in effects(tree, node).binds or _only_changes(tree, node, name) for name in names):
            found |= {node, *node.inside(), *_between(node, unit.node)}
    return found


def _owner(node: Node) -> Node | None:
    """The compound statement around a node, if that is no function, class or root."""
    outer = node.parent
    while outer is not None and outer.is_clause:
        outer = outer.parent
    return outer if outer is not None and outer.parent is not None and outer.kind not in SCOPES else None


def _is_new(alignment: Alignment, block: Node, left_out: Collection[Node]) -> bool:
    carried = {order for node in left_out for order in range(node.order, node.after)}
    orders = range(block.order, block.after)
    return all(order in carried or alignment.old[order] is None for order in orders)


def join(units: list[SliceUnit]) -> list[SliceUnit]:
    """Units of one statement become one, and what is inside another unit goes with it."""
    by_node: dict[tuple[str, Node, str | None], frozenset[Node] | None] = {}
    for unit in units:
        key = (unit.path, unit.node, unit.source)
        kept = by_node.get(key, frozenset())
        by_node[key] = None if kept is None or unit.kept is None else kept | unit.kept
    found = [SliceUnit(path, node, kept, source) for (path, node, source), kept in by_node.items()]
    return [unit for unit in found if not any(_holds(other, unit) for other in found)]


def _holds(outer: SliceUnit, inner: SliceUnit) -> bool:
    if outer.path != inner.path or outer.node is inner.node:
        return False
    inside = outer.node.order < inner.node.order < outer.node.after
    return inside and (outer.kept is None or inner.node in outer.kept)


def import_of(tree: Tree, node: Node, name: str) -> str | None:
    """The import statement that binds one name only, out of one that binds several; None if it is no import."""
    found = parsed_import(tree, node)
    if found is None:
        return None
    for alias in found.names:
        if name == (alias.asname or (alias.name.split(".")[0] if isinstance(found, ast.Import) else alias.name)):
            kept = type(found)(**{**dict(ast.iter_fields(found)), "names": [alias]})
            return ast.unparse(kept)
    return None


def parsed_import(tree: Tree, node: Node) -> ast.Import | ast.ImportFrom | None:
    if "import" not in node.words:
        return None
    try:
        (found,) = ast.parse(tree.head(node)).body
    except (SyntaxError, ValueError):
        return None
    return found if isinstance(found, ast.Import | ast.ImportFrom) else None


def render(tree: Tree, unit: SliceUnit, dedent: str) -> str:
    """The text of a unit at the margin, given the text of its whole statement there."""
    if unit.source is not None:
        return unit.source
    if unit.kept is None:
        return dedent
    lines = dedent.split("\n")
    keep = [False] * len(lines)
    empty: list[Node] = []
    _mark(unit.node, unit.kept, keep, unit.node.line, empty)
    for block in empty:
        assert block.body is not None
        indent = block.body[0].indent.removeprefix(unit.node.indent)
        lines[block.head_line - unit.node.line] += f"\n{indent}pass"
    return "\n".join(line for line, wanted in zip(lines, keep, strict=True) if wanted)


def lines_before(unit: SliceUnit, node: Node) -> int:
    """How many lines of a unit's text come before one of its nodes."""
    if unit.kept is None or node is unit.node:
        return node.line - unit.node.line if unit.source is None else 0
    keep = [False] * (unit.node.last_line - unit.node.line + 1)
    empty: list[Node] = []
    _mark(unit.node, unit.kept, keep, unit.node.line, empty)
    return sum(keep[: node.line - unit.node.line]) + sum(block.line < node.line for block in empty)


def _mark(node: Node, kept: frozenset[Node], keep: list[bool], first: int, empty: list[Node]) -> None:
    """Mark the lines of a header and of what is kept below it."""
    keep[node.line - first : node.head_line - first + 1] = [True] * (node.head_line - node.line + 1)
    for block in (node, *node.clauses):
        inside = [child for child in block.body or () if child in kept]
        if block is not node and not inside and block not in kept and node.kind != "try":
            continue
        if block is not node:
            keep[block.line - first : block.head_line - first + 1] = [True] * (block.head_line - block.line + 1)
        for child in inside:
            if child.body is None:
                keep[child.line - first : child.last_line - first + 1] = [True] * (child.last_line - child.line + 1)
            else:
                _mark(child, kept, keep, first, empty)
        if not inside and block.body and not block.inline:
            empty.append(block)
