"""Finding the log statements of a version by the names that they log."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relive.transplant.results import Statement
from relive.transplant.syntax import Node, Tree, align, parse

_SAYS_LOG = re.compile(r"\brelive\b")


@dataclass(frozen=True, slots=True)
class _Aliases:
    """What a file calls `relive` and `relive.log`."""

    modules: frozenset[str]
    functions: frozenset[str]


Also = Callable[[ast.Call], Sequence[re.Pattern[str]]]  # the names that a call of somebody else's logger tells


def added_statements(
    old: Mapping[str, str], new: Mapping[str, str], names: Collection[str], *, also: Also | None = None
) -> list[Statement]:
    """The statements of the new version that log one of the names, and whether the old version has each of them.

    `relive.log("loss", …)`, `from relive import log`, and both under other names are found; a name that is put together
    by an f-string counts if it can become one of those wanted. `also` tells which names other calls log.
    """
    found = []
    for path in sorted(new):
        if not path.endswith(".py") or (also is None and not _SAYS_LOG.search(new[path])):
            continue
        tree = parse(new[path])
        logging = [(node, name) for node, said in _log_calls(tree, also) for name in _wanted(said, names)]
        if logging:
            there = _in_old(old.get(path), tree, [node for node, _ in logging], also)
            found += [Statement(path, node.line, name, node in there) for node, name in logging]
    return found


def _wanted(said: re.Pattern[str], names: Collection[str]) -> list[str]:
    return [name for name in names if said.fullmatch(name)]


def _in_old(old: str | None, tree: Tree, nodes: list[Node], also: Also | None) -> set[Node]:
    """Those of the nodes whose partner in the old file logs the same."""
    if old is None or (also is None and not _SAYS_LOG.search(old)):
        return set()
    old_tree = parse(old)
    said = {node: pattern.pattern for node, pattern in _log_calls(old_tree, also)}
    alignment = align(old_tree, tree)
    mine = {node: pattern.pattern for node, pattern in _log_calls(tree, also)}
    partners = {node: alignment.old[node.order] for node in nodes}
    return {node for node, partner in partners.items() if partner is not None and said.get(partner) == mine[node]}


def on_line(tree: Tree, line: int, also: Also | None = None) -> list[Node]:
    """The statements that a line stands for: of several on one line those that log, if any do, else the first."""
    node = tree.at_line(line)
    if node is None:
        return []
    sharing = [each for each in tree.nodes if each.line == line and not each.is_clause]
    if len(sharing) > 1:
        logging = {each for each, _ in _log_calls(tree, also)}
        return [each for each in sharing if each in logging] or [node]
    return [node]


def _log_calls(tree: Tree, also: Also | None) -> Iterator[tuple[Node, re.Pattern[str]]]:
    """Statements with a call of a logger in their header, and what names it may log."""
    aliases = _aliases(tree)
    callers = aliases.modules | aliases.functions
    for node in tree.nodes:
        if (also is None and not callers & node.words) or "(" not in node.key:
            continue
        for call in _calls(tree.head(node), node.kind):
            patterns = list(also(call)) if also is not None else []
            if _is_log(call, aliases) and (own := _pattern(call)) is not None:
                patterns = [own]
            if patterns:
                yield node, re.compile("|".join(f"(?:{pattern.pattern})" for pattern in patterns))
                break


def _aliases(tree: Tree) -> _Aliases:
    modules, functions = set(), set()
    for node in tree.nodes:
        if "import" not in node.words or "relive" not in node.words:
            continue
        for found in _parsed(tree.head(node)):
            if isinstance(found, ast.Import):
                modules |= {alias.asname or alias.name for alias in found.names if alias.name == "relive"}
            elif isinstance(found, ast.ImportFrom) and found.module == "relive":
                functions |= {alias.asname or alias.name for alias in found.names if alias.name == "log"}
    return _Aliases(frozenset(modules), frozenset(functions))


def _parsed(source: str) -> list[ast.stmt]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _calls(head: str, kind: str) -> Iterator[ast.Call]:
    source = f"if{head[4:]} pass" if kind == "elif" else f"{head} pass" if kind else head
    for statement in _parsed(source):
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _is_log(call: ast.Call, aliases: _Aliases) -> bool:
    match call.func:
        case ast.Name(name):
            return name in aliases.functions
        case ast.Attribute(value=ast.Name(name), attr="log"):
            return name in aliases.modules
    return False


def _pattern(call: ast.Call) -> re.Pattern[str] | None:
    """The names that a call may log; None if that is decided elsewhere."""
    first = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg == "name"), None)
    match first:
        case ast.Constant(str(text)):
            return re.compile(re.escape(text))
        case ast.JoinedStr(parts):
            known = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts]
            return re.compile("".join(known))
    return None
