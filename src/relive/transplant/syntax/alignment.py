"""Pairs each statement of a new version with its counterpart in the old one."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass

from relive.transplant.syntax.statement_tree import LOOPS, SCOPES, Node, Tree

_MIN_SIMILARITY = 0.35  # statements that are less similar are not counterparts
_MIN_SIMILARITY_MOVED = 0.6  # the same, where neither order nor position supports the pair
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


def align(old: Tree, new: Tree, *, without: Collection[Node] = ()) -> Alignment:
    """Pairs the statements of two versions; those of the new one in `without`, and all inside them, stay unpaired."""
    aligner = _Aligner(old, new)
    for node in without:
        aligner.is_excluded[node.order : node.after] = [True] * (node.after - node.order)
    aligner.pair_scopes(old.root, new.root)
    aligner.pair_leftover_scopes()
    aligner.pair_moved()
    aligner.pair_containers()
    return Alignment(old, new, aligner.old, aligner.new, aligner.similarity)


class _Aligner:
    """The pairs found so far."""

    def __init__(self, old: Tree, new: Tree) -> None:
        self.old_tree, self.new_tree = old, new
        self.old: list[Node | None] = [None] * len(new.nodes)
        self.new: list[Node | None] = [None] * len(old.nodes)
        self.similarity = [0.0] * len(new.nodes)
        self.is_excluded = [False] * len(new.nodes)
        self.weights: dict[str, float] = {}
        self.sums: dict[Node, float] = {}
        self.contents: dict[Node, frozenset[str]] = {}
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
                self._pair(*pair, 1.0)
                waiting.append(pair)
            self._pair_in_order(_unpaired(olds, self.new), _unpaired(news, self.old))
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
        olds = [node for node in _unpaired(self.old_tree.nodes, self.new) if node.kind in SCOPES]
        news = [node for node in _unpaired(self.new_tree.nodes, self.old) if node.kind in SCOPES]
        news = [node for node in news if not self.is_excluded[node.order]]
        for pair in self._same_scopes(olds, news):
            self._pair(*pair, 0.9)
            self.pair_scopes(*pair)
        contents = [(node, {inner.key for inner in node.descendants()}) for node in _unpaired(olds, self.new)]
        for node in _unpaired(news, self.old):
            mine = {inner.key for inner in node.descendants()}
            shares = [
                (dice_similarity(mine, theirs), -other.order, other)
                for other, theirs in contents
                if other.kind == node.kind and self.new[other.order] is None
            ]
            (share, _, best), *others = sorted(shares, reverse=True) or [(0.0, 0, node)]
            if share >= 0.4:
                doubtful = bool(others) and others[0][0] > 0.9 * share
                self._pair(best, node, share * 0.4 if doubtful else share)
                self.pair_scopes(best, node)

    # --- sequences ---------------------------------------------------------------------------------------------------

    def _pair_in_order(self, olds: Sequence[Node], news: Sequence[Node]) -> None:
        """Pairs two sequences without crossings: equal statements first, then similar ones."""
        gaps = []
        waiting = [(0, len(olds), 0, len(news))]
        while waiting:
            i, i_end, j, j_end = waiting.pop()
            while i < i_end and j < j_end and olds[i].key == news[j].key:
                self._pair(olds[i], news[j], 1.0)
                i, j = i + 1, j + 1
            while i < i_end and j < j_end and olds[i_end - 1].key == news[j_end - 1].key:
                i_end, j_end = i_end - 1, j_end - 1
                self._pair(olds[i_end], news[j_end], 1.0)
            if i == i_end or j == j_end:
                continue
            anchors = _anchors(olds[i:i_end], news[j:j_end])
            if not anchors:
                gaps.append((i, i_end, j, j_end))
                continue
            waiting += self._pair_anchors(olds, news, (i, i_end, j, j_end), anchors)
        for i, i_end, j, j_end in gaps:
            self._pair_similar(olds[i:i_end], news[j:j_end])

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
            self._pair(olds[i + a], news[j + b], 1.0)
            spans.append((first, i + a, second, j + b))
            first, second = i + a + 1, j + b + 1
        return [*spans, (first, i_end, second, j_end)]

    def _pair_similar(self, olds: Sequence[Node], news: Sequence[Node]) -> None:
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
                row[j] = max(skip, below[j + 1] + score) if score >= _MIN_SIMILARITY else skip
        i = j = 0
        while i < rows and j < columns:
            if similarities[i][j] >= _MIN_SIMILARITY and best[i][j] == best[i + 1][j + 1] + similarities[i][j]:
                self._pair(olds[i], news[j], similarities[i][j])
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
                if similarity >= _MIN_SIMILARITY:
                    found.append((similarity, -abs(i * len(news) - j * len(olds)), i, j))
        firsts: list[int] = []
        seconds: list[int] = []
        for similarity, _, i, j in sorted(found, reverse=True):
            at = bisect_left(firsts, i)
            fits = (at == len(firsts) or (firsts[at] != i and seconds[at] > j)) and (at == 0 or seconds[at - 1] < j)
            if fits:
                firsts.insert(at, i)
                seconds.insert(at, j)
                self._pair(olds[i], news[j], similarity)
        i = j = 0
        for first, second in zip([*firsts, len(olds)], [*seconds, len(news)], strict=True):
            if 0 < (first - i) * (second - j) <= _GAP_CELLS:
                self._pair_similar(olds[i:first], news[j:second])
            i, j = first + 1, second + 1

    # --- moved statements --------------------------------------------------------------------------------------------

    def pair_moved(self) -> None:
        """Pairs equal statements that moved elsewhere, and then their neighbours."""
        olds, news = _unpaired(self.old_tree.nodes, self.new), _unpaired(self.new_tree.nodes, self.old)
        news = [node for node in news if not self.is_excluded[node.order]]
        by_key: defaultdict[str, list[Node]] = defaultdict(list)
        for node in olds:
            by_key[node.key].append(node)
        counts = Counter(node.key for node in news)
        found = [
            (by_key[node.key][0], node)
            for node in news
            if len(node.words) >= 2 and counts[node.key] == 1 and len(by_key.get(node.key, ())) == 1
        ]
        for old, new in found:
            self._pair(old, new, 0.95)
        for old, new in found:
            for step in (1, -1):
                self._pair_adjacent(old, new, step)

    def _pair_adjacent(self, old: Node, new: Node, step: int) -> None:
        i, j = old.order + step, new.order + step
        while 0 <= i < len(self.new) and 0 <= j < len(self.old):
            old, new = self.old_tree.nodes[i], self.new_tree.nodes[j]
            if self.new[i] is not None or self.old[j] is not None or self.is_excluded[j]:
                return
            similarity = self.compare(old, new)
            if similarity < _MIN_SIMILARITY_MOVED:
                return
            self._pair(old, new, similarity * 0.95)
            i, j = i + step, j + step

    def pair_containers(self) -> None:
        """Pairs blocks whose headers differ too much, if most of their contents are paired."""
        for new in reversed(self.new_tree.nodes):
            if new.body is None or self.old[new.order] is not None or self.is_excluded[new.order]:
                continue
            partners = [self.old[child.order] for child in new.body]
            votes = Counter(
                partner.parent for partner in partners if partner is not None and partner.parent is not None
            )
            if not votes:
                continue
            best, count = votes.most_common(1)[0]
            if (
                best.parent is None
                or best.body is None
                or self.new[best.order] is not None
                or not _are_compatible(best, new)
            ):
                continue
            if 2 * count >= min(len(best.body), len(new.body)):
                self._pair(best, new, 0.5)

    # --- similarity --------------------------------------------------------------------------------------------------

    def compare(self, old: Node, new: Node) -> float:
        """Returns the similarity of two statements, from 0 to 1: their shared words, rare ones weighted more."""
        if old.key == new.key:
            return 1.0
        if old.name and old.name == new.name and old.kind == new.kind:
            return 0.95  # the same function or class, or a relive.loop of the same name
        if old.kind != new.kind and not _are_compatible(old, new):
            return 0.0
        ours, theirs = self._words(new), self._words(old)
        shared = ours & theirs
        if not shared:
            return 0.0
        weights = self.weights or self._compute_weights()
        return 2 * sum([weights[word] for word in shared]) / (self._weight_sum(old) + self._weight_sum(new))

    def _words(self, node: Node) -> frozenset[str]:
        """Returns the words of a header; for functions and classes, also of everything inside them."""
        if node.kind not in SCOPES:
            return node.words
        if node not in self.contents:
            self.contents[node] = node.words.union(*(inner.words for inner in node.descendants()))
        return self.contents[node]

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

    def _pair(self, old: Node, new: Node, similarity: float) -> None:
        self.old[new.order], self.new[old.order], self.similarity[new.order] = old, new, similarity


def dice_similarity(mine: Set[str], theirs: Set[str]) -> float:
    """Returns the Dice coefficient of two sets, from 0 to 1."""
    return 2 * len(mine & theirs) / (len(mine) + len(theirs) or 1)


def _unpaired(nodes: Iterable[Node], partners: Sequence[Node | None]) -> list[Node]:
    return [node for node in nodes if partners[node.order] is None]


def _are_compatible(old: Node, new: Node) -> bool:
    if old.kind == new.kind:
        return True
    pair = {old.kind, new.kind}
    return pair == LOOPS or pair == {"if", "elif"} or pair == {"elif", "else"}


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
