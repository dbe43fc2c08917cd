"""Which names a statement needs, and what the old version calls the same variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from relive.transplant.syntax.head_tokens import HeadToken, VariablePath, head_tokens, is_same_token, path_opposite
from relive.transplant.syntax.statement_effects import dedented_head, effects, parameter_names
from relive.transplant.syntax.statement_pairs import Alignment
from relive.transplant.syntax.statement_tree import SCOPES, Node, Tree

_ANNOTATIONS_AS_TEXT = "from __future__ import annotations"
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
        is_read = bool(found.annotations) and node.scope.kind != "def" and _ANNOTATIONS_AS_TEXT not in tree.text
        for name in sorted((found.reads | (found.annotations if is_read else set())) - bound - own):
            needed[name] = needed.get(name, False) or at_once
        if not enclosing:
            bound |= found.binds
        if node.kind in SCOPES:
            enclosing.append((node, _bound_in(tree, node)))
    return needed


def _bound_in(tree: Tree, scope: Node) -> set[str]:
    found = {name for node in scope.descendants() for name in effects(tree, node).binds}
    return found | (parameter_names(dedented_head(tree, scope)) if scope.kind == "def" else set())


def count_old_names(
    alignment: Alignment, name: str, scope: Node, *, among: Sequence[Node] | None = None
) -> Counter[str]:
    """Counts what the partners of statements with a variable call it in the old version, including the name itself.

    A variable is a name or an attribute of one: `net`, `self.net`. `among` are the only statements to count, if given.
    """
    path = tuple(name.split("."))
    if among is not None:
        return _count_votes(alignment, path, [node for node in among if alignment.old[node.order] is not None])
    words = set(path)
    voters = [
        node for node in alignment.new_tree.nodes if words <= node.words and alignment.old[node.order] is not None
    ]
    near = [node for node in voters if scope.order <= node.order < scope.after] if scope.parent is not None else voters
    return _count_votes(alignment, path, near[:_MAX_VOTERS]) or _count_votes(alignment, path, voters[:_MAX_VOTERS])


def _count_votes(alignment: Alignment, path: VariablePath, voters: Iterable[Node]) -> Counter[str]:
    votes: Counter[str] = Counter()
    for node in voters:
        old = alignment.old[node.order]
        assert old is not None
        ours = head_tokens(alignment.new_tree.head(node))
        if node.key == old.key:
            votes[".".join(path)] += 2 * any(token.path[: len(path)] == path for token in ours)
            continue
        found = _paths_opposite(ours, head_tokens(alignment.old_tree.head(old)), path)
        weight = 2 if ".".join(path) in assigned_paths(alignment.new_tree, node) else 1
        for other in found:
            votes[".".join(other)] += weight
    return votes


def _paths_opposite(ours: Sequence[HeadToken], theirs: Sequence[HeadToken], path: VariablePath) -> set[VariablePath]:
    """Returns the variables at the positions in the old header where the new one has `path`."""
    if len(ours) > _MAX_TOKENS or len(theirs) > _MAX_TOKENS:
        return set()
    if len(ours) == len(theirs):
        pairs = list(zip(ours, theirs, strict=True))
        if sum(is_same_token(a, b) for a, b in pairs) * 2 < len(pairs):
            return set()
    else:
        pairs = []
        texts = [token.text for token in ours], [token.text for token in theirs]
        for tag, i, i_end, j, j_end in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
            if tag == "equal" or (tag == "replace" and i_end - i == j_end - j):
                pairs += zip(ours[i:i_end], theirs[j:j_end], strict=True)
    found = (path_opposite(path, a, b) for a, b in pairs if a.path[: len(path)] == path and b.path)
    return {other for other in found if other is not None}


def count_old_bases(alignment: Alignment, name: str, scope: Node) -> Counter[str]:
    """Counts the names of the old version whose attributes are opposite attributes of a name: `args` for `cfg`."""
    votes: Counter[str] = Counter()
    for node in alignment.new_tree.nodes:
        old = alignment.old[node.order]
        if name not in node.words or old is None or node.key == old.key or old.kind != node.kind:
            continue
        inside = scope.order <= node.order < scope.after or scope.parent is None
        ours, theirs = head_tokens(alignment.new_tree.head(node)), head_tokens(alignment.old_tree.head(old))
        attributes = {token.path[-1] for token in ours if token.path[:1] == (name,) and len(token.path) > 1}
        for token in theirs[:_MAX_TOKENS]:
            if len(token.path) > 1 and token.path[-1] in attributes:
                votes[token.path[0]] += 2 if inside else 1
    return votes


def assigned_paths(tree: Tree, node: Node) -> frozenset[str]:
    """Returns the variables that a header assigns, attributes included: `net`, `self.net`."""
    return effects(tree, node).binds | effects(tree, node).attributes
