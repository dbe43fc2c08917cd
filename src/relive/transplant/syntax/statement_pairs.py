"""Pairs of statements of two versions, and how similar two statements are."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from relive.transplant.syntax.statement_tree import LOOPS, RECEIVERS, SCOPES, Node, Tree

MIN_SIMILARITY = 0.35  # statements that are less similar are not counterparts
_GAP_CELLS = 1500  # gaps with more possible pairs are first divided by pairs that share rare words
_RARE_COUNT = 6


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Pairs of statements: `old[i]` is the node of the old version for the i-th of the new one, or None."""

    old_tree: Tree
    new_tree: Tree
    old: list[Node | None]
    new: list[Node | None]  # the same pairs, seen from the old version
    similarity: list[float]  # of the i-th node of the new version and its partner


class StatementPairs:
    """The pairs found so far."""

    def __init__(self, old: Tree, new: Tree) -> None:
        self.old_tree, self.new_tree = old, new
        self.old: list[Node | None] = [None] * len(new.nodes)
        self.new: list[Node | None] = [None] * len(old.nodes)
        self.similarity = [0.0] * len(new.nodes)
        self.is_excluded = [False] * len(new.nodes)
        self.weights: dict[str, float] = {}
        self.sums: dict[Node, float] = {}
        self.words: dict[Node, frozenset[str]] = {}
        self.renames: Mapping[str, str] = {}  # words of the new version to those of the old one

    def pair(self, old: Node, new: Node, similarity: float) -> None:
        self.old[new.order], self.new[old.order], self.similarity[new.order] = old, new, similarity

    def repair(self, old: Node, new: Node, similarity: float) -> None:
        """Pairs two nodes instead of what they are paired with."""
        before, rival = self.old[new.order], self.new[old.order]
        if before is not None:
            self.new[before.order] = None
        if rival is not None:
            self.old[rival.order], self.similarity[rival.order] = None, 0.0
        self.pair(old, new, similarity)

    def is_new(self, node: Node) -> bool:
        return node.order < len(self.new_tree.nodes) and self.new_tree.nodes[node.order] is node

    def rename_words(self, renames: Mapping[str, str]) -> None:
        """Compares statements of the new version from now on as if words of it were called otherwise."""
        self.renames, self.sums, self.words = renames, {}, {}

    def pair_similar(self, olds: Sequence[Node], news: Sequence[Node]) -> None:
        """Pairs similar statements of a gap, without crossings, so that the sum of similarities is maximal."""
        if len(olds) * len(news) > _GAP_CELLS:
            self._divide_gap(olds, news)
            return
        rows, columns = len(olds), len(news)
        best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
        similarities = [[self.compare(a, b) for b in news] for a in olds]
        for i in range(rows - 1, -1, -1):
            row, below, scores = best[i], best[i + 1], similarities[i]
            for j in range(columns - 1, -1, -1):
                skip = max(below[j], row[j + 1])
                score = scores[j]
                row[j] = max(skip, below[j + 1] + score) if score >= MIN_SIMILARITY else skip
        i = j = 0
        while i < rows and j < columns:
            if similarities[i][j] >= MIN_SIMILARITY and best[i][j] == best[i + 1][j + 1] + similarities[i][j]:
                self.pair(olds[i], news[j], similarities[i][j])
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                i += 1
            else:
                j += 1

    def _divide_gap(self, olds: Sequence[Node], news: Sequence[Node]) -> None:
        """Pairs a large gap by rare words, the most similar first, then the rest between those pairs."""
        positions: defaultdict[str, list[int]] = defaultdict(list)
        for i, node in enumerate(olds):
            for word in node.words:
                positions[word].append(i)
        found = []
        for j, node in enumerate(news):
            near = {
                i for word in node.words if len(positions.get(word, ())) <= _RARE_COUNT for i in positions.get(word, ())
            }
            for i in near:
                similarity = self.compare(olds[i], node)
                if similarity >= MIN_SIMILARITY:
                    found.append((similarity, -abs(i * len(news) - j * len(olds)), i, j))
        firsts: list[int] = []
        seconds: list[int] = []
        for similarity, _, i, j in sorted(found, reverse=True):
            at = bisect_left(firsts, i)
            fits = (at == len(firsts) or (firsts[at] != i and seconds[at] > j)) and (at == 0 or seconds[at - 1] < j)
            if fits:
                firsts.insert(at, i)
                seconds.insert(at, j)
                self.pair(olds[i], news[j], similarity)
        i = j = 0
        for first, second in zip([*firsts, len(olds)], [*seconds, len(news)], strict=True):
            if 0 < (first - i) * (second - j) <= _GAP_CELLS:
                self.pair_similar(olds[i:first], news[j:second])
            i, j = first + 1, second + 1

    # --- similarity --------------------------------------------------------------------------------------------------

    def compare(self, old: Node, new: Node) -> float:
        """Returns the similarity of two statements, from 0 to 1: their shared words, rare ones weighted more."""
        if old.key == new.key:
            return 1.0
        if old.name and old.name == new.name and old.kind == new.kind:
            return 0.95  # the same function or class, or a relive.loop of the same name
        if old.kind != new.kind and not are_compatible(old, new):
            return 0.0
        ours, theirs = self._words(new), self._words(old)
        shared = ours & theirs
        if not shared:
            return 0.0
        weights = self.weights or self._compute_weights()
        return 2 * sum([weights[word] for word in shared]) / (self._weight_sum(old) + self._weight_sum(new))

    def _words(self, node: Node) -> frozenset[str]:
        """Returns the words of a header; for functions and classes, also of everything inside them."""
        found = self.words.get(node)
        if found is None:
            inside = node.descendants() if node.kind in SCOPES else ()
            found = node.words.union(*(inner.words for inner in inside)) - RECEIVERS
            if self.renames and self.is_new(node):
                found = frozenset(self.renames.get(word, word) for word in found)
            self.words[node] = found
        return found

    def _weight_sum(self, node: Node) -> float:
        if node not in self.sums:
            weights = self.weights
            self.sums[node] = sum([weights[word] for word in self._words(node)])
        return self.sums[node]

    def _compute_weights(self) -> dict[str, float]:
        counts: Counter[str] = Counter()
        for tree in (self.old_tree, self.new_tree):
            for node in tree.nodes:
                counts.update(node.words)
        total = len(self.old_tree.nodes) + len(self.new_tree.nodes)
        self.weights = {word: math.log(1 + total / count) for word, count in counts.items()}
        return self.weights


def dice_similarity(mine: Set[str], theirs: Set[str]) -> float:
    """Returns the Dice coefficient of two sets, from 0 to 1."""
    return 2 * len(mine & theirs) / (len(mine) + len(theirs) or 1)


def unpaired(nodes: Iterable[Node], partners: Sequence[Node | None]) -> list[Node]:
    return [node for node in nodes if partners[node.order] is None]


def are_compatible(old: Node, new: Node) -> bool:
    if old.kind == new.kind:
        return True
    pair = {old.kind, new.kind}
    return pair == LOOPS or pair == {"if", "elif"} or pair == {"elif", "else"}
