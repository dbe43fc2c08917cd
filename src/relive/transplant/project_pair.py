"""Two versions of a project: their trees, which file is which, and where an import leads."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence

from relive.transplant.syntax import SCOPES, Alignment, DefiniteAssignment, Node, Tree, align, parse

_SAME_FILE = 0.3  # the share of statements that two files of different paths must have in common
_ONLY_FILE = 0.1  # the same, where there is no other choice
_SAME_FUNCTION = 0.5  # the same, for a function that moved to another file
_LED_TO = 0.6  # what the versions in between say, against a direct likeness


class Project:
    """The old and the new version, read as far as they are asked for."""

    def __init__(self, old: Mapping[str, str], new: Mapping[str, str], chain: Sequence[Mapping[str, str]] = ()) -> None:
        self.old, self.new, self.chain = old, new, chain
        self.left_out: dict[str, list[Node]] = {}
        self._alignments: dict[tuple[str, str], Alignment] = {}
        self._names: dict[Tree, DefiniteAssignment] = {}

    def leave_out(self, path: str, nodes: Iterable[Node]) -> None:
        """Say which statements of the new version are to be carried, so that nothing is taken for them."""
        self.left_out.setdefault(path, []).extend(nodes)

    def new_tree(self, path: str) -> Tree:
        return parse(self.new[path])

    def old_tree(self, path: str) -> Tree:
        return parse(self.old[path])

    def names(self, tree: Tree) -> DefiniteAssignment:
        if tree not in self._names:
            self._names[tree] = DefiniteAssignment(tree)
        return self._names[tree]

    def is_left_out(self, path: str) -> list[bool]:
        """For each node of a file of the new version, whether it is to be carried."""
        flags = [False] * len(self.new_tree(path).nodes)
        for node in self.left_out.get(path, ()):
            flags[node.order : node.after] = [True] * (node.after - node.order)
        return flags

    # --- which file is which -----------------------------------------------------------------------------------------

    def alignment(self, path: str, node: Node | None = None) -> tuple[str, Alignment] | None:
        """The old file that a new one, or the function around a node of it, comes from, and their alignment."""
        partner = path if path in self.old else self._same_file(path)
        found = self._aligned(partner, path) if partner is not None else None
        if node is not None and (moved := self._moved_function(path, node, found)) is not None:
            return moved, self._aligned(moved, path)
        return (partner, found) if partner is not None and found is not None else None

    def _aligned(self, old_path: str, path: str) -> Alignment:
        key = (old_path, path)
        if key not in self._alignments:
            left_out = self.left_out.get(path, ())
            direct = align(self.old_tree(old_path), self.new_tree(path), without=left_out)
            middle = [parse(version[path]) for version in self.chain if path in version]
            self._alignments[key] = _by_way_of(direct, middle, left_out) if middle else direct
        return self._alignments[key]

    def _same_file(self, path: str) -> str | None:
        """A file of another path that has most in common with a new one."""
        mine = {node.key for node in self.new_tree(path).nodes}
        shares = [
            (_share(mine, {node.key for node in self.old_tree(other).nodes}), other)
            for other in self.old
            if other.endswith(".py") and other not in self.new
        ]
        share, best = max(shares, default=(0.0, ""))
        return best if share >= (_SAME_FILE if len(shares) > 1 else _ONLY_FILE) else None

    def _moved_function(self, path: str, node: Node, found: Alignment | None) -> str | None:
        """Another file of the old version that has the function around a node, if the file's own partner lacks it."""
        scopes = [outer for outer in (node, *node.around()) if outer.kind in SCOPES]
        if not scopes or (found is not None and any(found.old[scope.order] is not None for scope in scopes)):
            return None
        outermost = scopes[-1]
        mine = {inner.key for inner in outermost.inside()}
        said = f"{outermost.kind} {outermost.name}"
        shares = [
            (_share(mine, {inner.key for inner in theirs.inside()}), other)
            for other in self.old
            if other.endswith(".py") and said in self.old[other]
            for theirs in self.old_tree(other).root.body or ()
            if theirs.kind == outermost.kind and theirs.name == outermost.name
        ]
        share, best = max(shares, default=(0.0, ""))
        return best if share >= _SAME_FUNCTION else None

    # --- where imports lead ------------------------------------------------------------------------------------------

    def module_path(self, path: str, module: str, level: int = 0) -> str | None:
        """The file of the new version that an import in one of its files leads to, if it is one of the project's."""
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


def _share(mine: set[str], theirs: set[str]) -> float:
    return 2 * len(mine & theirs) / (len(mine) + len(theirs) or 1)


def _by_way_of(direct: Alignment, middle: Sequence[Tree], left_out: Iterable[Node]) -> Alignment:
    """An alignment that asks the versions in between, the oldest first, where the direct one is in doubt."""
    partner: list[Node | None] = list(direct.new_tree.nodes)
    newer, without = direct.new_tree, list(left_out)
    for node in without:
        partner[node.order : node.after] = [None] * (node.after - node.order)
    for tree in [*reversed(middle), direct.old_tree]:
        step = align(tree, newer, without=without)
        partner = [step.old[node.order] if node is not None else None for node in partner]
        newer, without = tree, []
    old, new, likeness = list(direct.old), list(direct.new), list(direct.likeness)
    for order, found in enumerate(partner):
        if found is None or found is old[order] or likeness[order] >= _LED_TO:
            continue
        rival, before = new[found.order], old[order]
        if rival is not None and likeness[rival.order] >= _LED_TO:
            continue
        if rival is not None:
            old[rival.order], likeness[rival.order] = None, 0.0
        if before is not None:
            new[before.order] = None
        old[order], new[found.order], likeness[order] = found, direct.new_tree.nodes[order], _LED_TO
    return Alignment(direct.old_tree, direct.new_tree, old, new, likeness)
