"""Two versions of a project: their trees, which files correspond, and what an import refers to."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence

from relive.transplant.syntax import SCOPES, Alignment, DefiniteAssignment, Node, Tree, align, dice_similarity, parse

_SAME_FILE = 0.3  # the share of statements that two files of different paths must have in common
_ONLY_FILE = 0.1  # the same, if there is only one candidate
_SAME_FUNCTION = 0.5  # the same, for a function that moved to another file
_INTERMEDIATE_SIMILARITY = 0.6  # of pairs found through the versions in between; they replace less similar pairs


class ProjectPair:
    """The old and the new version of a project, parsed and aligned on demand."""

    def __init__(self, old: Mapping[str, str], new: Mapping[str, str], chain: Sequence[Mapping[str, str]] = ()) -> None:
        self.old, self.new, self.chain = old, new, chain
        self.carried_nodes: dict[str, list[Node]] = {}
        self._alignments: dict[tuple[str, str], Alignment] = {}
        self._names: dict[Tree, DefiniteAssignment] = {}

    def mark_carried(self, path: str, nodes: Iterable[Node]) -> None:
        """Marks statements of the new version as carried, so that they are not paired with old ones."""
        self.carried_nodes.setdefault(path, []).extend(nodes)

    def new_tree(self, path: str) -> Tree:
        return parse(self.new[path])

    def old_tree(self, path: str) -> Tree:
        return parse(self.old[path])

    def names(self, tree: Tree) -> DefiniteAssignment:
        if tree not in self._names:
            self._names[tree] = DefiniteAssignment(tree)
        return self._names[tree]

    def carried_flags(self, path: str, beside: Collection[Node] = ()) -> list[bool]:
        """Returns for each node of a file of the new version whether it is carried, or `beside` one that is."""
        flags = [False] * len(self.new_tree(path).nodes)
        for node in (*self.carried_nodes.get(path, ()), *beside):
            flags[node.order : node.after] = [True] * (node.after - node.order)
        return flags

    # --- corresponding files -----------------------------------------------------------------------------------------

    def alignment(self, path: str, node: Node | None = None) -> tuple[str, Alignment] | None:
        """Returns the old file that corresponds to a new one, or to the function around a node, and their alignment."""
        partner = path if path in self.old else self._find_renamed_file(path)
        found = self._align(partner, path) if partner is not None else None
        if node is not None and (moved := self._find_moved_function(path, node, found)) is not None:
            return moved, self._align(moved, path)
        return (partner, found) if partner is not None and found is not None else None

    def _align(self, old_path: str, path: str) -> Alignment:
        key = (old_path, path)
        if key not in self._alignments:
            carried_nodes = self.carried_nodes.get(path, ())
            direct = align(self.old_tree(old_path), self.new_tree(path), without=carried_nodes)
            middle = [parse(version[path]) for version in self.chain if path in version]
            self._alignments[key] = _align_through(direct, middle, carried_nodes) if middle else direct
        return self._alignments[key]

    def _find_renamed_file(self, path: str) -> str | None:
        """Returns the old file, of another path, that has the most statements in common with a new one."""
        mine = {node.key for node in self.new_tree(path).nodes}
        shares = [
            (dice_similarity(mine, {node.key for node in self.old_tree(other).nodes}), other)
            for other in self.old
            if other.endswith(".py") and other not in self.new
        ]
        share, best = max(shares, default=(0.0, ""))
        return best if share >= (_SAME_FILE if len(shares) > 1 else _ONLY_FILE) else None

    def _find_moved_function(self, path: str, node: Node, found: Alignment | None) -> str | None:
        """Returns another old file that has the function around a node, if the file's partner doesn't have it."""
        scopes = [outer for outer in (node, *node.ancestors()) if outer.kind in SCOPES]
        if not scopes or (found is not None and any(found.old[scope.order] is not None for scope in scopes)):
            return None
        outermost = scopes[-1]
        mine = {inner.key for inner in outermost.descendants()}
        header = f"{outermost.kind} {outermost.name}"
        shares = [
            (dice_similarity(mine, {inner.key for inner in theirs.descendants()}), other)
            for other in self.old
            if other.endswith(".py") and header in self.old[other]
            for theirs in self.old_tree(other).root.body or ()
            if theirs.kind == outermost.kind and theirs.name == outermost.name
        ]
        share, best = max(shares, default=(0.0, ""))
        return best if share >= _SAME_FUNCTION else None

    # --- imports -----------------------------------------------------------------------------------------------------

    def module_path(self, path: str, module: str, level: int = 0) -> str | None:
        """Returns the project file that an import in a file of the new version refers to, if it is one."""
        folder = posixpath.dirname(path)
        for _ in range(level - 1):
            folder = posixpath.dirname(folder)
        inner = module.replace(".", "/")
        folders = [folder] if level else [folder, "", "src"]
        for start in folders:
            for ending in (".py", "/__init__.py"):
                found = posixpath.normpath(posixpath.join(start, inner + ending)) if inner else ""
                if found in self.new or found in self.old:
                    return found
        return None


def _align_through(direct: Alignment, middle: Sequence[Tree], carried_nodes: Iterable[Node]) -> Alignment:
    """Improves a direct alignment through the versions in between, the oldest first, where it is uncertain."""
    partner: list[Node | None] = list(direct.new_tree.nodes)
    newer, without = direct.new_tree, list(carried_nodes)
    for node in without:
        partner[node.order : node.after] = [None] * (node.after - node.order)
    for tree in [*reversed(middle), direct.old_tree]:
        step = align(tree, newer, without=without)
        partner = [step.old[node.order] if node is not None else None for node in partner]
        newer, without = tree, []
    old, new, similarity = list(direct.old), list(direct.new), list(direct.similarity)
    for order, found in enumerate(partner):
        if found is None or found is old[order] or similarity[order] >= _INTERMEDIATE_SIMILARITY:
            continue
        rival, before = new[found.order], old[order]
        if rival is not None and similarity[rival.order] >= _INTERMEDIATE_SIMILARITY:
            continue
        if rival is not None:
            old[rival.order], similarity[rival.order] = None, 0.0
        if before is not None:
            new[before.order] = None
        old[order], new[found.order], similarity[order] = found, direct.new_tree.nodes[order], _INTERMEDIATE_SIMILARITY
    return Alignment(direct.old_tree, direct.new_tree, old, new, similarity)
