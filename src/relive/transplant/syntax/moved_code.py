"""Pairs statements that moved to another function, into a method or out of one, and blocks by what is in them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from relive.transplant.syntax.head_tokens import head_tokens
from relive.transplant.syntax.statement_pairs import StatementPairs, are_compatible, unpaired
from relive.transplant.syntax.statement_tree import SCOPES, Node

_MIN_SIMILARITY_MOVED = 0.6  # statements that are less similar are no counterparts, unless both neighbours are
_DOUBTFUL = 0.55  # pairs that are less similar give way to equal statements elsewhere
_MIN_VALUE = 12  # letters of an assigned value by which an assignment is recognized
_ASSIGNMENT = re.compile(r"[\w.]+=(?!=)(.*\(.*)")
_MAX_TOKENS = 60  # longer headers are no evidence about names


def pair_moved_code(pairs: StatementPairs) -> None:
    """Pairs equal statements that moved elsewhere, and then their neighbours; then again with the names learned."""
    _pair_unique(pairs, lambda node: node.key)
    _pair_unique(pairs, lambda node: node.key.replace("self.", ""))
    _pair_unique(pairs, _assigned_value, similarity=0.8)
    _pair_between(pairs)
    renames = _learn_renames(pairs)
    if renames:
        pairs.rename_words(renames)
        _pair_unique(pairs, lambda node: _renamed_key(pairs, node), similarity=0.9)
    pair_containers(pairs)
    _pair_between(pairs)


def _pair_unique(pairs: StatementPairs, key: Callable[[Node], str], *, similarity: float = 0.95) -> None:
    """Pairs statements that occur once on each side, and then their neighbours; such pairs replace doubtful ones."""
    by_key: defaultdict[str, list[Node]] = defaultdict(list)
    for node in pairs.old_tree.nodes:
        partner = pairs.new[node.order]
        if partner is None or _is_doubtful(pairs, partner):
            by_key[key(node)].append(node)
    news = [
        (key(node), node)
        for node in pairs.new_tree.nodes
        if not pairs.is_excluded[node.order] and (pairs.old[node.order] is None or _is_doubtful(pairs, node))
    ]
    counts = Counter(each for each, _ in news)
    found = [
        (by_key[each][0], node)
        for each, node in news
        if each and len(node.words) >= 2 and counts[each] == 1 and len(by_key.get(each, ())) == 1
    ]
    for old, new in found:
        pairs.repair(old, new, similarity)
    for old, new in found:
        for step in (1, -1):
            _pair_adjacent(pairs, old, new, step)


def _is_doubtful(pairs: StatementPairs, new: Node) -> bool:
    return new.kind not in SCOPES and pairs.similarity[new.order] < _DOUBTFUL


def _assigned_value(node: Node) -> str:
    """Returns the right side of an assignment to one variable, if it says enough to recognize it."""
    found = _ASSIGNMENT.match(node.key) if not node.kind else None
    return found.group(1).replace("self.", "") if found and len(found.group(1)) >= _MIN_VALUE else ""


def _renamed_key(pairs: StatementPairs, node: Node) -> str:
    """Returns a header without `self`, a new one with the words that the old version uses."""
    is_new = pairs.is_new(node)
    tree = pairs.new_tree if is_new else pairs.old_tree
    tokens = head_tokens(tree.head(node))
    if not is_new:
        return "".join(token.text for token in tokens)
    renames = pairs.renames
    return "".join(
        ".".join(renames.get(word, word) for word in token.text.split(".")) if token.path else token.text
        for token in tokens
    )


def _pair_adjacent(pairs: StatementPairs, old: Node, new: Node, step: int) -> None:
    i, j = old.order + step, new.order + step
    while 0 <= i < len(pairs.new) and 0 <= j < len(pairs.old):
        old, new = pairs.old_tree.nodes[i], pairs.new_tree.nodes[j]
        if pairs.new[i] is not None or pairs.old[j] is not None or pairs.is_excluded[j]:
            return
        similarity = pairs.compare(old, new)
        if similarity < _MIN_SIMILARITY_MOVED:
            return
        pairs.pair(old, new, similarity * 0.95)
        i, j = i + step, j + step


def _pair_between(pairs: StatementPairs) -> None:
    """Pairs similar statements of two blocks between others that are paired."""
    for block in (pairs.new_tree.root, *pairs.new_tree.nodes):
        for olds, news in list(_gaps(pairs, block)) if block.body else ():
            pairs.pair_similar(olds, news)


def _gaps(pairs: StatementPairs, block: Node) -> Iterator[tuple[list[Node], list[Node]]]:
    """Yields the unpaired statements of a block, and those of an old block, that are between the same neighbours."""
    run: list[Node] = []
    before: Node | None = None
    for node in [*(block.body or ()), None]:
        if node is not None and pairs.is_excluded[node.order]:
            continue
        partner = pairs.old[node.order] if node is not None else None
        if node is not None and partner is None:
            run.append(node)
            continue
        if run and (olds := _between(pairs, block, before, node)):
            yield olds, run
        before, run = node, []


def _between(pairs: StatementPairs, block: Node, before: Node | None, after: Node | None) -> list[Node]:
    """Returns the unpaired old statements between the partners of two statements, or of the ends of a block."""
    first = pairs.old[before.order] if before is not None else None
    last = pairs.old[after.order] if after is not None else None
    owner = first.parent if first is not None else last.parent if last is not None else None
    own = pairs.old[block.order] if block.parent is not None else pairs.old_tree.root
    if owner is None or owner.body is None or (last is not None and last.parent is not owner):
        return []
    if (first is None or last is None) and owner is not own:
        return []  # only the ends of paired blocks correspond
    start = first.index + 1 if first is not None else 0
    end = last.index if last is not None else len(owner.body)
    return unpaired(owner.body[start:end], pairs.new)


def _learn_renames(pairs: StatementPairs) -> dict[str, str]:
    """Returns words of the new version that the old one calls otherwise, as pairs of statements show."""
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for new in pairs.new_tree.nodes:
        old = pairs.old[new.order]
        if new.kind in SCOPES:
            continue
        if old is None or old.key == new.key:
            for word in new.words if old is not None else ():
                votes[word][word] += 1
            continue
        ours, theirs = (head_tokens(tree.head(node)) for tree, node in ((pairs.new_tree, new), (pairs.old_tree, old)))
        if len(ours) != len(theirs) or len(ours) > _MAX_TOKENS:
            continue
        for mine, their in zip(ours, theirs, strict=True):
            if mine.path and their.path:
                names = mine.text.split("."), their.text.split(".")
                for one, other in zip(*names, strict=False) if len(names[0]) == len(names[1]) else ():
                    votes[one][other] += 1
    chosen = {word: counts.most_common(1)[0] for word, counts in votes.items()}
    return {
        word: other
        for word, (other, count) in chosen.items()
        if word != other and count > votes[word][word] and votes[other][other] < count
    }


def pair_containers(pairs: StatementPairs) -> None:
    """Pairs blocks whose headers differ too much, if most of their contents are paired."""
    for new in reversed(pairs.new_tree.nodes):
        if new.body is None or pairs.is_excluded[new.order]:
            continue
        if pairs.old[new.order] is not None and not _is_elsewhere(pairs, new):
            continue
        if _pair_by_clauses(pairs, new):
            continue
        partners = [pairs.old[child.order] for child in new.body]
        votes = Counter(partner.parent for partner in partners if partner is not None and partner.parent is not None)
        if not votes:
            continue
        best, count = votes.most_common(1)[0]
        if (
            best.parent is None
            or best.body is None
            or pairs.new[best.order] is not None
            or not are_compatible(best, new)
        ):
            continue
        if 2 * count >= min(len(best.body), len(new.body)):
            pairs.repair(best, new, 0.5)


def _is_elsewhere(pairs: StatementPairs, new: Node) -> bool:
    """Whether a block has a doubtful partner, and all of its statements that have partners have them elsewhere."""
    partners = [old for child in new.body or () if (old := pairs.old[child.order]) is not None]
    own = pairs.old[new.order]
    return bool(partners) and _is_doubtful(pairs, new) and all(old.parent is not own for old in partners)


def _pair_by_clauses(pairs: StatementPairs, new: Node) -> bool:
    """Pairs a statement with the one whose `elif`, `else` or `except` is the partner of its own."""
    owners = [old.parent for clause in new.clauses if (old := pairs.old[clause.order]) is not None and old.is_clause]
    for old in owners:
        if old is not None and old.kind == new.kind and pairs.new[old.order] is None:
            pairs.repair(old, new, 0.5)
            return True
    return False
