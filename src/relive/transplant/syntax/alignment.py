"""Pairs each statement of a new version with its counterpart in the old one."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from relive.transplant.syntax.moved_code import pair_containers, pair_moved_code
from relive.transplant.syntax.statement_pairs import Alignment, StatementPairs, dice_similarity, unpaired
from relive.transplant.syntax.statement_tree import SCOPES, Node, Tree

_MIN_LEFTOVER = 4  # statements without partners that make a block worth pairing
_MIN_SHARE = 0.5  # the share of words that two such blocks have in common
_MAX_RIVAL = 0.6  # the share of another block, as a part of that of the best one
_MAX_BLOCK_PAIRS = 2500


def align(old: Tree, new: Tree, *, without: Collection[Node] = ()) -> Alignment:
    """Pairs the statements of two versions; those of the new one in `without`, and all inside them, stay unpaired."""
    aligner = _Aligner(old, new)
    for node in without:
        aligner.is_excluded[node.order : node.after] = [True] * (node.after - node.order)
    aligner.pair_scopes(old.root, new.root)
    aligner.pair_leftover_scopes()
    pair_moved_code(aligner)
    aligner.pair_leftover_blocks()
    pair_containers(aligner)
    return Alignment(old, new, aligner.old, aligner.new, aligner.similarity)


@dataclass(frozen=True, slots=True)
class _Leftover:
    """A block, the statements in it that have no partners, and their words."""

    block: Node
    nodes: list[Node]
    words: frozenset[str]


class _Aligner(StatementPairs):
    """Pairs the statements of corresponding functions, in order."""

    def __init__(self, old: Tree, new: Tree) -> None:
        super().__init__(old, new)
        self.paired_scopes: set[Node] = set()

    # --- scopes ------------------------------------------------------------------------------------------------------

    def pair_scopes(self, old: Node, new: Node) -> None:
        """Pairs the statements directly in two scopes, then the scopes inside them."""
        waiting = [(old, new)]
        while waiting:
            old, new = waiting.pop()
            self.paired_scopes |= {old, new}
            olds, news = old.scope_nodes(), [node for node in new.scope_nodes() if not self.is_excluded[node.order]]
            for pair in self._same_scopes(olds, news):
                self.pair(*pair, 1.0)
                waiting.append(pair)
            self._pair_in_order(unpaired(olds, self.new), unpaired(news, self.old))
            waiting += [
                (partner, node)
                for node in news
                if node.kind in SCOPES and node not in self.paired_scopes and (partner := self.old[node.order])
            ]

    def _same_scopes(self, olds: Sequence[Node], news: Sequence[Node]) -> list[tuple[Node, Node]]:
        """Returns pairs of functions and classes of the same name; of several, the first with the first."""
        by_name: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
        for node in olds:
            if node.kind in SCOPES and self.new[node.order] is None:
                by_name[node.kind, node.name].append(node)
        return [
            (by_name[node.kind, node.name].pop(0), node)
            for node in news
            if node.kind in SCOPES and self.old[node.order] is None and by_name[node.kind, node.name]
        ]

    def pair_leftover_scopes(self) -> None:
        """Pairs functions and classes that were renamed or moved, by name or by their contents."""
        olds = [node for node in unpaired(self.old_tree.nodes, self.new) if node.kind in SCOPES]
        news = [node for node in unpaired(self.new_tree.nodes, self.old) if node.kind in SCOPES]
        news = [node for node in news if not self.is_excluded[node.order]]
        for pair in self._same_scopes(olds, news):
            self.pair(*pair, 0.9)
            self.pair_scopes(*pair)
        contents = [(node, {inner.key for inner in node.descendants()}) for node in unpaired(olds, self.new)]
        for node in unpaired(news, self.old):
            mine = {inner.key for inner in node.descendants()}
            shares = [
                (dice_similarity(mine, theirs), -other.order, other)
                for other, theirs in contents
                if other.kind == node.kind and self.new[other.order] is None
            ]
            (share, _, best), *others = sorted(shares, reverse=True) or [(0.0, 0, node)]
            if share >= 0.4:
                doubtful = bool(others) and others[0][0] > 0.9 * share
                self.pair(best, node, share * 0.4 if doubtful else share)
                self.pair_scopes(best, node)

    # --- blocks ------------------------------------------------------------------------------------------------------

    def pair_leftover_blocks(self) -> None:
        """Pairs blocks that moved or changed their kind, such as a script's main block that became a function.

        Two blocks correspond if the statements in them without partners are alike, and no two separate blocks are:
        a function that replaced twins has no single counterpart.
        """
        olds = [block for node in self.old_tree.nodes if (block := self._leftover(node, self.new)) is not None]
        news = [block for node in self.new_tree.nodes if (block := self._leftover(node, self.old)) is not None]
        found = []
        for block in news if len(olds) * len(news) <= _MAX_BLOCK_PAIRS else ():
            shares = [(dice_similarity(block.words, other.words), other) for other in olds]
            share, best = max(shares, key=lambda each: each[0], default=(0.0, block))
            near = [other.block for each, other in shares if each >= _MAX_RIVAL * share]
            if share >= _MIN_SHARE and all(_is_nested(one, other) for one in near for other in near):
                found.append((share, best, block))
        for _, old, new in sorted(found, key=lambda each: -each[0]):
            ours, theirs = unpaired(new.nodes, self.old), unpaired(old.nodes, self.new)
            self._pair_in_order(theirs, [node for node in ours if not self.is_excluded[node.order]])

    def _leftover(self, node: Node, partners: Sequence[Node | None]) -> _Leftover | None:
        """Returns the statements of a block without partners, if they are several."""
        if node.body is None or node.after - node.order <= _MIN_LEFTOVER:
            return None
        nodes = unpaired(node.scope_nodes() if node.kind in SCOPES else list(node.descendants()), partners)
        if len(nodes) < _MIN_LEFTOVER:
            return None
        return _Leftover(node, nodes, frozenset(word for each in nodes for word in each.words))

    # --- sequences ---------------------------------------------------------------------------------------------------

    def _pair_in_order(self, olds: Sequence[Node], news: Sequence[Node]) -> None:
        """Pairs two sequences without crossings: equal statements first, then similar ones."""
        gaps = []
        waiting = [(0, len(olds), 0, len(news))]
        while waiting:
            i, i_end, j, j_end = waiting.pop()
            while i < i_end and j < j_end and olds[i].key == news[j].key:
                self.pair(olds[i], news[j], 1.0)
                i, j = i + 1, j + 1
            while i < i_end and j < j_end and olds[i_end - 1].key == news[j_end - 1].key:
                i_end, j_end = i_end - 1, j_end - 1
                self.pair(olds[i_end], news[j_end], 1.0)
            if i == i_end or j == j_end:
                continue
            anchors = _anchors(olds[i:i_end], news[j:j_end])
            if not anchors:
                gaps.append((i, i_end, j, j_end))
                continue
            waiting += self._pair_anchors(olds, news, (i, i_end, j, j_end), anchors)
        for i, i_end, j, j_end in gaps:
            self.pair_similar(olds[i:i_end], news[j:j_end])

    def _pair_anchors(
        self,
        olds: Sequence[Node],
        news: Sequence[Node],
        span: tuple[int, int, int, int],
        anchors: Iterable[tuple[int, int]],
    ) -> list[tuple[int, int, int, int]]:
        i, i_end, j, j_end = span
        first, second = i, j
        spans = []
        for a, b in anchors:
            self.pair(olds[i + a], news[j + b], 1.0)
            spans.append((first, i + a, second, j + b))
            first, second = i + a + 1, j + b + 1
        return [*spans, (first, i_end, second, j_end)]


def _is_nested(one: Node, other: Node) -> bool:
    """Whether one block is the other, or inside it, or around it."""
    return one.order <= other.order < one.after or other.order <= one.order < other.after


def _anchors(olds: Sequence[Node], news: Sequence[Node]) -> list[tuple[int, int]]:
    """Returns index pairs of statements that are unique on both sides, in the longest common order."""
    old_at = _unique_keys(olds)
    new_at = _unique_keys(news)
    pairs = [(old_at[key], j) for key, j in new_at.items() if key in old_at]  # in the order of the new version
    tails: list[int] = []
    tail_pairs: list[int] = []
    before: list[int] = []
    for number, (i, _) in enumerate(pairs):
        at = bisect_left(tails, i)
        before.append(tail_pairs[at - 1] if at else -1)
        if at == len(tails):
            tails.append(i)
            tail_pairs.append(number)
        else:
            tails[at], tail_pairs[at] = i, number
    chosen = []
    number = tail_pairs[-1] if tail_pairs else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _unique_keys(nodes: Sequence[Node]) -> dict[str, int]:
    positions: dict[str, int] = {}
    repeated = set()
    for i, node in enumerate(nodes):
        if node.key in positions:
            repeated.add(node.key)
        positions[node.key] = i
    return {key: i for key, i in positions.items() if key not in repeated}
