"""The transplant pipeline: select statements, carry each with its dependencies, verify, and patch the old version."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from relive.transplant.carrier import Carrier
from relive.transplant.carry_result import CarryRefused, CarryResult, PlacedUnit
from relive.transplant.dependency_slice import lines_before, render
from relive.transplant.log_statements import statements_on_line
from relive.transplant.project_pair import ProjectPair
from relive.transplant.results import Landing, Refusal, Transplant
from relive.transplant.syntax import (
    DefiniteAssignment,
    Insertion,
    Node,
    Slot,
    TextGap,
    Tree,
    apply_insertions,
    dedent_source,
    find_neighbours,
    free_names,
    make_insertion,
    parse,
    rename_variables,
)


def transplant(
    old: Mapping[str, str],
    new: Mapping[str, str],
    statements: Sequence[tuple[str, int]],
    *,
    chain: Sequence[Mapping[str, str]] = (),
) -> Transplant:
    """Inserts statements of the new version of a project, given by path and line, into the old one.

    `chain` holds versions between the two, the oldest first; they improve the alignment where the two differ much.
    Texts must have the same line ends as on disk.

        transplant({"train.py": old}, {"train.py": new}, [("train.py", 41)]).files["train.py"]
    """
    project = ProjectPair(old, new, chain)
    nodes, refusals = _select_nodes(project, statements)
    carried: list[tuple[str, int, CarryResult]] = []
    for path, line, node in nodes:
        carrier = Carrier(project)
        try:
            found = carrier.carry(path, node)
            _verify(project, found)
        except CarryRefused as refused:
            refusals.append(_make_refusal(project, path, line, str(refused), carrier.carried))
        else:
            carried.append((path, line, found))
    return _assemble(project, carried, refusals)


def _select_nodes(
    project: ProjectPair, statements: Sequence[tuple[str, int]]
) -> tuple[list[tuple[str, int, Node]], list[Refusal]]:
    selected, refusals = [], []
    for path, line in statements:
        nodes = statements_on_line(project.new_tree(path), line) if path in project.new else []
        if not nodes:
            what = f"line {line} holds no statement" if path in project.new else "there is no such file"
            refusals.append(Refusal(path, line, f"{what} in the new version"))
        else:
            selected += [(path, line, node) for node in nodes]
            project.mark_carried(path, nodes)
    return selected, refusals


def _make_refusal(project: ProjectPair, path: str, line: int, reason: str, carried: CarryResult) -> Refusal:
    where = carried.where
    if where is None:
        return Refusal(path, line, reason)
    place = _make_insertion(project, where)
    return Refusal(path, line, reason, where.old_path, place.line, carried.probability)


# --- patching --------------------------------------------------------------------------------------------------------


def _make_insertion(project: ProjectPair, placed: PlacedUnit) -> Insertion:
    tree = project.new_tree(placed.unit.path)
    node = placed.unit.node
    neighbours = find_neighbours(tree, node, project.carried_flags(placed.unit.path))
    source = rename_variables(render(tree, placed.unit, dedent_source(tree, node)), placed.names)
    gap = TextGap(neighbours.gap_before, neighbours.gap_after)
    if placed.unit.source is not None and node.kind:
        gap = TextGap("", "")  # the default of a parameter, which has no comments of its own
    return make_insertion(project.old_tree(placed.old_path), placed.slot, source, gap)


def _patch_files(
    project: ProjectPair, all_placed: Sequence[PlacedUnit]
) -> dict[str, tuple[str, list[tuple[PlacedUnit, Insertion]]]]:
    """Returns the patched text of each file, with its insertions in the order of the text."""
    by_path: defaultdict[str, list[tuple[PlacedUnit, Insertion]]] = defaultdict(list)
    for placed in all_placed:
        by_path[placed.old_path].append((placed, _make_insertion(project, placed)))
    patched = {}
    for path, pairs in by_path.items():
        pairs = _sort_insertions(pairs)
        patched[path] = (apply_insertions(project.old[path], [insertion for _, insertion in pairs]), pairs)
    return patched


def _sort_insertions(pairs: list[tuple[PlacedUnit, Insertion]]) -> list[tuple[PlacedUnit, Insertion]]:
    """Sorts insertions in the order of the text; those in one slot keep their order in the new version."""
    ordered: list[tuple[PlacedUnit, Insertion]] = []
    for placed, each in sorted(
        pairs, key=lambda pair: (pair[0].slot.order, pair[0].slot.depth, pair[0].unit.node.order)
    ):
        last = ordered[-1][1] if ordered and ordered[-1][0].slot == placed.slot else each
        moved = each if last.offset <= each.offset else replace(each, offset=last.offset, line=last.line)
        ordered.append((placed, moved))
    return sorted(ordered, key=lambda pair: pair[1].offset)


def _assemble(project: ProjectPair, carried: list[tuple[str, int, CarryResult]], refusals: list[Refusal]) -> Transplant:
    seen: dict[tuple[str, Node, str | None], PlacedUnit] = {}
    for _, _, found in carried:
        for placed in found.placed:
            seen.setdefault((placed.unit.path, placed.unit.node, placed.unit.source), placed)
    patched = _patch_files(project, list(seen.values()))
    files = {path: text for _, _, found in carried for path, text in found.files.items()}
    added: dict[str, tuple[int, ...]] = {
        path: tuple(range(1, len(text.splitlines()) + 1)) for path, text in files.items()
    }
    lines: dict[PlacedUnit | tuple[str, Node], tuple[int, int]] = {}
    for path, (text, pairs) in patched.items():
        files[path] = text
        shift = 0
        new_lines: list[int] = []
        for placed, each in pairs:
            lines[placed.unit.path, placed.unit.node] = (each.line + shift, each.line)
            new_lines += range(each.line + shift, each.line + shift + max(1, each.lines))
            shift += each.lines
        added[path] = tuple(new_lines)
    landings = [_make_landing(path, line, found, lines) for path, line, found in carried]
    names = {new: old for placed in seen.values() for new, old in placed.names.items()}
    return Transplant(files, tuple(landings), names, tuple(refusals), added)


def _make_landing(
    path: str, line: int, found: CarryResult, lines: Mapping[PlacedUnit | tuple[str, Node], tuple[int, int]]
) -> Landing:
    where = found.where
    assert where is not None
    assert found.node is not None
    patched, before = lines[where.unit.path, where.unit.node]
    patched += lines_before(where.unit, found.node)
    return Landing(
        path, line, where.old_path, patched, before, round(found.probability, 4), found.equivalent, tuple(found.notes)
    )


# --- verification ----------------------------------------------------------------------------------------------------


def _verify(project: ProjectPair, found: CarryResult) -> None:
    """Checks that the patched text parses if the old one did, and that definitions carried along precede their use."""
    for path, (text, pairs) in _patch_files(project, found.placed).items():
        for placed, each in pairs:
            _check_syntax(project.old_tree(path), placed, [each for _, each in pairs], found)
            if placed.slot.block.parent is None and not _is_valid_python(each.text.strip("; \t\f\r\n")):
                _lower_confidence(
                    found, "the statement is not valid in this version of Python, so it could not be checked"
                )
        if len(pairs) > 1:
            _check_names(project, parse(text), pairs)


def _check_syntax(old: Tree, placed: PlacedUnit, insertions: list[Insertion], found: CarryResult) -> None:
    """Checks the top-level statement that contains the insertion."""
    if placed.slot.block.parent is None:
        return
    top = [placed.slot.block, *placed.slot.block.ancestors()][-2]
    end = old.lines[top.last_line] if top.last_line < len(old.lines) else len(old.text)
    inside = [
        Insertion(each.offset - top.start, each.text, 0, 0) for each in insertions if top.start < each.offset <= end
    ]
    if _is_valid_python(apply_insertions(old.text[top.start : end], inside)):
        return
    if _is_valid_python(old.source(top)):
        raise CarryRefused("the old version would no longer parse with the statement")
    _lower_confidence(found, "the old version is not valid in this version of Python, so it could not be checked")


def _lower_confidence(found: CarryResult, note: str) -> None:
    if note not in found.notes:
        found.probability *= 0.7
        found.notes.append(note)


def _is_valid_python(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<patched>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _check_names(project: ProjectPair, patched: Tree, pairs: list[tuple[PlacedUnit, Insertion]]) -> None:
    """Checks that every name that the inserted statements need is assigned, if it is in the new version."""
    names, starts, inserted = DefiniteAssignment(patched), [node.start for node in patched.nodes], 0
    for placed, each in pairs:
        at = bisect_left(starts, each.offset + inserted)
        inserted += len(each.text)
        node = patched.nodes[at] if at < len(starts) else None
        if node is None or node.parent is None or node.start >= each.offset + inserted:
            raise CarryRefused("the old version would no longer parse with the statement")
        new_tree = project.new_tree(placed.unit.path)
        new_names, new_node = project.names(new_tree), placed.unit.node
        assert new_node.parent is not None
        if placed.unit.source is not None:
            continue
        for name, at_once in free_names(new_tree, placed.unit.nodes()).items():
            slot = Slot(node.parent, node.index)
            there = min(names.state_at(slot, needed, at_once=at_once) for needed in placed.needed_for(name))
            if not there and new_names.state_at(Slot(new_node.parent, new_node.index), name, at_once=at_once):
                raise CarryRefused(f"{name} has no value there in the old version")
