"""Finds the statements of a version that log certain names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relive.transplant.results import LogStatement
from relive.transplant.syntax import Node, Tree, align, parse, parse_quietly

_MENTIONS_RELIVE = re.compile(r"\brelive\b")


@dataclass(frozen=True, slots=True)
class _Aliases:
    """The names that a file binds to `relive` and to `relive.log`."""

    modules: frozenset[str]
    functions: frozenset[str]


Also = Callable[[ast.Call], Sequence[re.Pattern[str]]]  # returns patterns for the names that a call of any logger logs


def find_log_statements(
    old: Mapping[str, str], new: Mapping[str, str], names: Collection[str], *, also: Also | None = None
) -> list[LogStatement]:
    """Returns the statements of the new version that log one of the names, and whether the old version has them.

    `relive.log("loss", …)`, `from relive import log`, and both under other names are found; an f-string counts if it
    can become one of the names. `also` returns patterns for the names that calls of other loggers log.
    """
    found = []
    for path in sorted(new):
        if not path.endswith(".py") or (also is None and not _MENTIONS_RELIVE.search(new[path])):
            continue
        tree = parse(new[path])
        logging = [
            (node, name) for node, pattern in _log_calls(tree, also) for name in names if pattern.fullmatch(name)
        ]
        if logging:
            in_old = _nodes_in_old(old.get(path), tree, [node for node, _ in logging], also)
            found += [LogStatement(path, node.line, name, node in in_old) for node, name in logging]
    return found


def _nodes_in_old(old: str | None, tree: Tree, nodes: list[Node], also: Also | None) -> set[Node]:
    """Returns the nodes whose partner in the old file logs the same names."""
    if old is None or (also is None and not _MENTIONS_RELIVE.search(old)):
        return set()
    old_tree = parse(old)
    old_patterns = {node: pattern.pattern for node, pattern in _log_calls(old_tree, also)}
    alignment = align(old_tree, tree)
    new_patterns = {node: pattern.pattern for node, pattern in _log_calls(tree, also)}
    partners = {node: alignment.old[node.order] for node in nodes}
    return {
        node
        for node, partner in partners.items()
        if partner is not None and old_patterns.get(partner) == new_patterns[node]
    }


def statements_on_line(tree: Tree, line: int, also: Also | None = None) -> list[Node]:
    """Returns the statement of a line; of several on one line, those that log, if any do, else the first."""
    node = tree.at_line(line)
    if node is None:
        return []
    sharing = [each for each in tree.nodes if each.line == line and not each.is_clause]
    if len(sharing) > 1:
        logging = {each for each, _ in _log_calls(tree, also)}
        return [each for each in sharing if each in logging] or [node]
    return [node]


def _log_calls(tree: Tree, also: Also | None) -> Iterator[tuple[Node, re.Pattern[str]]]:
    """Yields statements with a logger call in their header, and a pattern for the names it may log."""
    aliases = _find_aliases(tree)
    callers = aliases.modules | aliases.functions
    for node in tree.nodes:
        if (also is None and not callers & node.words) or "(" not in node.key:
            continue
        for call in _calls(tree.head(node), node.kind):
            patterns = list(also(call)) if also is not None else []
            if _is_log(call, aliases) and (pattern := _name_pattern(call)) is not None:
                patterns = [pattern]
            if patterns:
                yield node, re.compile("|".join(f"(?:{pattern.pattern})" for pattern in patterns))
                break


def _find_aliases(tree: Tree) -> _Aliases:
    modules, functions = set(), set()
    for node in tree.nodes:
        if "import" not in node.words or "relive" not in node.words:
            continue
        for found in parse_quietly(tree.head(node)) or ():
            if isinstance(found, ast.Import):
                modules |= {alias.asname or alias.name for alias in found.names if alias.name == "relive"}
            elif isinstance(found, ast.ImportFrom) and found.module == "relive":
                functions |= {alias.asname or alias.name for alias in found.names if alias.name == "log"}
    return _Aliases(frozenset(modules), frozenset(functions))


def _calls(head: str, kind: str) -> Iterator[ast.Call]:
    source = f"if{head[4:]} pass" if kind == "elif" else f"{head} pass" if kind else head
    for statement in parse_quietly(source) or ():
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _is_log(call: ast.Call, aliases: _Aliases) -> bool:
    match call.func:
        case ast.Name(name):
            return name in aliases.functions
        case ast.Attribute(value=ast.Name(name), attr="log"):
            return name in aliases.modules
    return False


def _name_pattern(call: ast.Call) -> re.Pattern[str] | None:
    """Returns a pattern for the names that a call may log; None if its name is not a literal."""
    first = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg == "name"), None)
    match first:
        case ast.Constant(str(text)):
            return re.compile(re.escape(text))
        case ast.JoinedStr(parts):
            known = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts]
            return re.compile("".join(known))
    return None
