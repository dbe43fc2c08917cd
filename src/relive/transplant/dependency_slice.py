"""What a statement depends on: where its names are defined in the new version, and the units to carry along."""

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
    affects,
    dedent_source,
    dedented_head,
    effects,
    free_names,
    is_new,
    parameter_names,
    parse_quietly,
)

_PURE_FUNCTIONS = frozenset(
    "abs bool dict float int isinstance len list max min range round set sorted str sum tuple".split()
)
_PURE_METHODS = frozenset("size dim item keys values items get format mean max min sum numel lower upper split".split())
_ATTRIBUTE = re.compile(r"(?<![\w.])([^\W\d]\w*)\.([^\W\d]\w*)")
_METHOD = re.compile(r"\.(\w+)\(")
_FILLING_METHODS = frozenset(
    "append appendleft add extend insert update setdefault put push accumulate collect reset".split()
)


@dataclass(frozen=True, slots=True)
class SliceUnit:
    """A statement to carry; of the nodes inside it, only those in `kept` are carried, or all if that is None."""

    path: str
    node: Node
    kept: frozenset[Node] | None = None
    source: str | None = None  # the text to write instead of its own: one name of a longer import

    def covers(self, other: SliceUnit) -> bool:
        """Whether it has all of another one: it is the complete statement, or the import of the same name."""
        return other.node is self.node and self.source in (None, other.source)

    def nodes(self) -> Iterator[Node]:
        yield self.node
        for inner in self.node.descendants():
            if self.kept is None or inner in self.kept:
                yield inner


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a name is defined: the scope that owns it and the statements that assign or fill it there."""

    scope: Node
    is_parameter: bool
    statements: list[Node]


def origin(names: DefiniteAssignment, node: Node, name: str) -> Origin | None:
    """Returns where a name that a statement uses is defined; None if no scope owns it."""
    scope = names.owner(node.scope, name)
    if scope is None:
        return None
    tree = names.tree
    if scope.kind == "def" and name in parameter_names(dedented_head(tree, scope)):
        return Origin(scope, True, [])
    mentions = [other for other in names.mentioning(scope, name) if not node.order <= other.order < node.after]
    defining = [other for other in mentions if name in effects(tree, other).binds]
    if not any("import" in other.words for other in defining):  # `np.random.seed(…)` fills no module
        defining = [other for other in mentions if other in defining or _only_fills(tree, other, name)]
    if scope is node.scope:
        loops = [outer for outer in node.ancestors() if outer.kind in ("for", "while")]
        defining = [
            other
            for other in defining
            if other.order < node.order or any(loop.order < other.order < loop.after for loop in loops)
        ]
    return Origin(scope, False, defining)


def _only_fills(tree: Tree, node: Node, name: str) -> bool:
    """Whether a statement only fills the object of a name: `scores.append(x)`, `table[key] = x`."""
    found = effects(tree, node)
    if node.kind or name not in found.changes or found.binds - {name} or not node.key.startswith(name):
        return False
    method = _METHOD.match(node.key, len(name))
    return method is None or method.group(1) in _FILLING_METHODS


def with_new_wrappers(alignment: Alignment, path: str, node: Node, carried_nodes: Collection[Node]) -> SliceUnit:
    """Returns a statement with the enclosing blocks that are entirely new, and only what it needs of these."""
    top = node
    while (outer := _owner(top)) is not None and is_new(alignment, outer, carried_nodes):
        top = outer
    if top is node:
        return SliceUnit(path, node)
    kept = {node, *node.descendants(), *_between(node, top)}
    while more := _definitions_inside(alignment.new_tree, SliceUnit(path, top, frozenset(kept))):
        kept |= more
    return SliceUnit(path, top, frozenset(kept))


def _between(node: Node, top: Node) -> set[Node]:
    """Returns the ancestors of a node up to another, which is excluded."""
    return set(itertools.takewhile(lambda outer: outer is not top, node.ancestors()))


def _definitions_inside(tree: Tree, unit: SliceUnit) -> set[Node]:
    """Returns the statements of a unit's block that define names the unit needs but doesn't contain yet."""
    included = set(unit.nodes())
    needed = free_names(tree, unit.nodes())
    found: set[Node] = set()
    for node in unit.node.scope_nodes():
        names = [name for name in needed if name in node.words and node not in included]
        is_definition = any(name in effects(tree, node).binds or _only_fills(tree, node, name) for name in names)
        if is_definition or (node not in included and affects(tree, node, needed)):
            found |= {node, *node.descendants(), *_between(node, unit.node)}
    return found


def _owner(node: Node) -> Node | None:
    """Returns the compound statement around a node, unless that is a function, a class or the root."""
    outer = node.parent
    while outer is not None and outer.is_clause:
        outer = outer.parent
    return outer if outer is not None and outer.parent is not None and outer.kind not in SCOPES else None


def is_first_value(tree: Tree, node: Node, name: str) -> bool:
    """Whether a statement assigns a literal to a name, and nothing else: `best = None`."""
    match parse_quietly(tree.head(node)) if not node.kind else None:
        case [ast.Assign(targets=[ast.Name(target)], value=value)]:
            return target == name and is_literal(value)
    return False


def only_computes(tree: Tree, node: Node) -> bool:
    """Whether a statement only computes plain values, which can be computed twice: `n = len(images)`."""
    parsed = parse_quietly(tree.head(node)) if not node.kind else None
    if parsed is None:
        return False
    for call in (each.func for statement in parsed for each in ast.walk(statement) if isinstance(each, ast.Call)):
        if not (isinstance(call, ast.Name) and call.id in _PURE_FUNCTIONS) and not (
            isinstance(call, ast.Attribute) and call.attr in _PURE_METHODS
        ):
            return False
    return True


def is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def merge_units(units: list[SliceUnit]) -> list[SliceUnit]:
    """Merges units of the same statement, and drops units that another one contains."""
    by_node: dict[tuple[str, Node, str | None], frozenset[Node] | None] = {}
    for unit in units:
        key = (unit.path, unit.node, unit.source)
        kept = by_node.get(key, frozenset())
        by_node[key] = None if kept is None or unit.kept is None else kept | unit.kept
    found = [SliceUnit(path, node, kept, source) for (path, node, source), kept in by_node.items()]
    return [unit for unit in found if not any(_contains(other, unit) for other in found)]


def _contains(outer: SliceUnit, inner: SliceUnit) -> bool:
    if outer.path != inner.path or outer.node is inner.node:
        return False
    inside = outer.node.order < inner.node.order < outer.node.after
    return inside and (outer.kept is None or inner.node in outer.kept)


def single_import(tree: Tree, node: Node, name: str) -> str | None:
    """Returns an import statement for this name only, out of one that may import several; None if it imports none."""
    found = parse_import(tree, node)
    if found is None:
        return None
    for alias in found.names:
        if name == (alias.asname or (alias.name.split(".")[0] if isinstance(found, ast.Import) else alias.name)):
            kept = type(found)(**{**dict(ast.iter_fields(found)), "names": [alias]})
            return ast.unparse(kept)
    return None


def parse_import(tree: Tree, node: Node) -> ast.Import | ast.ImportFrom | None:
    """Parses a node if it is an import statement."""
    if "import" not in node.words:
        return None
    try:
        (found,) = ast.parse(tree.head(node)).body
    except (SyntaxError, ValueError):
        return None
    return found if isinstance(found, ast.Import | ast.ImportFrom) else None


def imported_target(names: DefiniteAssignment, scope: Node, name: str) -> str | None:
    """Returns what an import gives a name that is used in a scope: `torch.nn`, `relive.log`; None if no import does."""
    owner = names.owner(scope, name)
    for node in names.mentioning(owner, name) if owner is not None else ():
        found = parse_import(names.tree, node)
        for alias in found.names if found is not None else ():
            if isinstance(found, ast.ImportFrom) and name == (alias.asname or alias.name):
                return f"{'.' * found.level}{found.module or ''}.{alias.name}"
            if isinstance(found, ast.Import) and name == (alias.asname or alias.name.split(".")[0]):
                return alias.name if alias.asname else name
    return None


def is_module(names: DefiniteAssignment, scope: Node, name: str) -> bool:
    """Whether `import …` binds a name that is used in a scope; what `from … import` binds may be anything."""
    owner = names.owner(scope, name)
    found = [parse_import(names.tree, node) for node in names.mentioning(owner, name)] if owner is not None else []
    return any(
        name == (alias.asname or alias.name.split(".")[0])
        for each in found
        if isinstance(each, ast.Import)
        for alias in each.names
    )


def child_of(scope: Node, node: Node) -> Node | None:
    """Returns the statement directly in a scope that contains a node."""
    return next((each for each in (node, *node.ancestors()) if each.parent is scope and not each.is_clause), None)


def attribute_accesses(head: str) -> list[tuple[str, str]]:
    """Returns the variables of which a header reads attributes, with these."""
    return _ATTRIBUTE.findall(head)


def unit_source(tree: Tree, unit: SliceUnit) -> str:
    """Returns the text of a unit without indentation."""
    return render(tree, unit, dedent_source(tree, unit.node))


def render(tree: Tree, unit: SliceUnit, statement: str) -> str:
    """Returns the text of a unit without indentation, given such a text of its whole statement."""
    if unit.source is not None:
        return unit.source
    if unit.kept is None:
        return statement
    lines = statement.split("\n")
    keep = [False] * len(lines)
    empty: list[Node] = []
    _mark_lines(unit.node, unit.kept, keep, unit.node.line, empty)
    for block in empty:
        assert block.body is not None
        indent = block.body[0].indent.removeprefix(unit.node.indent)
        lines[block.head_line - unit.node.line] += f"\n{indent}pass"
    return "\n".join(line for line, is_kept in zip(lines, keep, strict=True) if is_kept)


def lines_before(unit: SliceUnit, node: Node) -> int:
    """Returns how many lines of a unit's text precede one of its nodes."""
    if unit.kept is None or node is unit.node:
        return node.line - unit.node.line if unit.source is None else 0
    keep = [False] * (unit.node.last_line - unit.node.line + 1)
    empty: list[Node] = []
    _mark_lines(unit.node, unit.kept, keep, unit.node.line, empty)
    return sum(keep[: node.line - unit.node.line]) + sum(block.line < node.line for block in empty)


def _mark_lines(node: Node, kept: frozenset[Node], keep: list[bool], first: int, empty: list[Node]) -> None:
    """Marks the lines of a header and of the kept nodes below it; collects blocks that are left empty."""
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
                _mark_lines(child, kept, keep, first, empty)
        if not inside and block.body and not block.inline:
            empty.append(block)
