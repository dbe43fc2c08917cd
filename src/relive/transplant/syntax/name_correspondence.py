"""Which names a statement needs, and what the old version calls the same variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from difflib import SequenceMatcher

from relive.transplant.syntax.alignment import Alignment
from relive.transplant.syntax.statement_effects import dedented_head, effects, parameter_names
from relive.transplant.syntax.statement_tree import SCOPES, STRING, Node, Tree

_TOKEN = re.compile(rf"{STRING}|#[^\r\n]*|\w+|[^\w\s]", re.DOTALL)
_MAX_TOKENS = 120  # longer headers, such as tables of constants, are no evidence about names
_MAX_VOTERS = 40  # statements that vote on a name


def free_names(tree: Tree, nodes: Iterable[Node]) -> dict[str, bool]:
    """Returns the names that statements need from outside; True for those needed at once, not only in a later call."""
    needed: dict[str, bool] = {}
    bound: set[str] = set()
    enclosing: list[tuple[Node, set[str]]] = []  # the enclosing functions and classes, with the names they bind
    for node in nodes:
        while enclosing and node.order >= enclosing[-1][0].after:
            enclosing.pop()
        found = effects(tree, node)
        own = set().union(*(names for _, names in enclosing))
        at_once = all(scope.kind == "class" for scope, _ in enclosing)
        for name in sorted(found.reads - bound - own):
            needed[name] = needed.get(name, False) or at_once
        if not enclosing:
            bound |= found.binds
        if node.kind in SCOPES:
            enclosing.append((node, _bound_in(tree, node)))
    return needed


def _bound_in(tree: Tree, scope: Node) -> set[str]:
    found = {name for node in scope.descendants() for name in effects(tree, node).binds}
    return found | (parameter_names(dedented_head(tree, scope)) if scope.kind == "def" else set())


def count_old_names(alignment: Alignment, name: str, scope: Node) -> Counter[str]:
    """Counts what the partners of statements with a name call it in the old version, including the name itself."""
    votes: Counter[str] = Counter()
    voters = [node for node in alignment.new_tree.nodes if name in node.words and alignment.old[node.order] is not None]
    near = [node for node in voters if scope.order <= node.order < scope.after] if scope.parent is not None else voters
    for node in (near or voters)[:_MAX_VOTERS]:
        old = alignment.old[node.order]
        assert old is not None
        if node.key == old.key:
            votes[name] += 2
            continue
        weight = 2 if name in effects(alignment.new_tree, node).binds else 1
        found = _names_opposite(alignment.new_tree.head(node), alignment.old_tree.head(old), name)
        for other in found:
            votes[other] += weight
    return votes


def _names_opposite(new: str, old: str, name: str) -> set[str]:
    """Returns the names at the positions in the old header where the new one has `name`."""
    ours, theirs = _TOKEN.findall(new), _TOKEN.findall(old)
    if len(ours) > _MAX_TOKENS or len(theirs) > _MAX_TOKENS:
        return set()
    if len(ours) == len(theirs):
        pairs = list(zip(ours, theirs, strict=True))
        if sum(a == b for a, b in pairs) * 2 < len(pairs):
            return set()
    else:
        pairs = []
        for tag, i, i_end, j, j_end in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
            if tag == "equal" or (tag == "replace" and i_end - i == j_end - j):
                pairs += zip(ours[i:i_end], theirs[j:j_end], strict=True)
    return {b for a, b in pairs if a == name and b.isidentifier()}


def rename_variables(source: str, names: Mapping[str, str]) -> str:
    """Renames variables in a statement, also inside f-strings; attributes, keywords of calls and texts stay."""
    if not names:
        return source
    pieces, at = [], 0
    for start, end, name in _name_spans(source, names):
        pieces += [source[at:start], names[name]]
        at = end
    return "".join([*pieces, source[at:]])


def _name_spans(source: str, names: Collection[str]) -> list[tuple[int, int, str]]:
    """Returns the spans of the names that a statement reads or binds."""
    import ast

    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError):
        parsed = None
    texts = source.split("\n")
    lines = [0]
    for line in texts:
        lines.append(lines[-1] + len(line) + 1)
    if parsed is None:
        pattern = re.compile(rf"{STRING}|#[^\r\n]*|(?<![\w.])(\w+)\b(?!\s*=[^=])", re.DOTALL)
        return [(*found.span(1), found.group(1)) for found in pattern.finditer(source) if found.group(1) in names]
    found = []
    for node in ast.walk(parsed):
        if isinstance(node, ast.Name) and node.id in names:
            prefix = texts[node.lineno - 1].encode()[: node.col_offset].decode(errors="ignore")
            start = lines[node.lineno - 1] + len(prefix)
            found.append((start, start + len(node.id), node.id))
    exact = [place for place in found if source[place[0] : place[1]] == place[2]]
    if len(exact) < len(found):  # Python 3.11 has no exact positions inside f-strings
        exact = _with_fstrings(source, names, exact)
    return sorted(set(exact))


def _with_fstrings(
    source: str, names: Collection[str], exact: list[tuple[int, int, str]]
) -> list[tuple[int, int, str]]:
    kept = list(exact)
    for string in re.finditer(rf"\b(?:[fF][rR]?|[rR][fF])({STRING})", source, re.DOTALL):
        kept = [place for place in kept if not string.start() <= place[0] < string.end()]
        for hole in re.finditer(r"(?<!\{)\{([^{}]*)\}", string.group()):
            expression = re.split(r"![rsa]|:", hole.group(1))[0]
            for found in re.finditer(r"(?<![\w.\"'])([^\W\d]\w*)\b(?!\s*=[^=])", expression):
                if found.group(1) in names:
                    start = string.start() + hole.start(1) + found.start(1)
                    kept.append((start, start + len(found.group(1)), found.group(1)))
    return kept
