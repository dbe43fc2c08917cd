"""The whole way: statements of a new version in, the patched old version out."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from relive.transplant.carrier import Carried, Carrier, CarryRefused, Placed
from relive.transplant.dependency_slice import lines_before, render
from relive.transplant.log_statements import on_line
from relive.transplant.project_pair import Project
from relive.transplant.results import Landing, Refusal, Transplant
from relive.transplant.syntax import (
    DefiniteAssignment,
    Insertion,
    Node,
    Slot,
    TextGap,
    Tree,
    apply,
    dedented,
    free_names,
    insertion,
    parse,
    surroundings,
    with_names,
)


def transplant(
    old: Mapping[str, str],
    new: Mapping[str, str],
    statements: Sequence[tuple[str, int]],
    *,
    chain: Sequence[Mapping[str, str]] = (),
) -> Transplant:
    """Put statements of the new version of a project, given by path and line, into the old one.

    `chain` holds versions between the two, the oldest first; they help where the two differ much.
    Texts must keep their line ends as they are on disk.

        transplant({"train.py": old}, {"train.py": new}, [("train.py", 41)]).files["train.py"]
    """
    project = Project(old, new, chain)
    wanted, refusals = _wanted(project, statements)
    carried: list[tuple[str, int, Carried]] = []
    for path, line, node in wanted:
        carrier = Carrier(project)
        try:
            found = carrier.carry(path, node)
            _verify(project, found)
        except CarryRefused as refused:
            refusals.append(_refusal(project, path, line, str(refused), carrier.carried))
        else:
            carried.append((path, line, found))
    return _put_together(project, carried, refusals)


def _wanted(
    project: Project, statements: Sequence[tuple[str, int]]
) -> tuple[list[tuple[str, int, Node]], list[Refusal]]:
    wanted, refusals = [], []
    for path, line in statements:
        nodes = on_line(project.new_tree(path), line) if path in project.new else []
        if not nodes:
            what = f"line {line} holds no statement" if path in project.new else "there is no such file"
            refusals.append(Refusal(path, line, f"{what} in the new version"))
        else:
            wanted += [(path, line, node) for node in nodes]
            project.leave_out(path, nodes)
    return wanted, refusals


def _refusal(project: Project, path: str, line: int, reason: str, carried: Carried) -> Refusal:
    where = carried.where
    if where is None:
        return Refusal(path, line, reason)
    place = _insertion(project, where)
    return Refusal(path, line, reason, where.old_path, place.line, carried.probability)


# --- putting in ------------------------------------------------------------------------------------------------------


def _insertion(project: Project, placed: Placed) -> Insertion:
    tree = project.new_tree(placed.unit.path)
    node = placed.unit.node
    around = surroundings(tree, node, project.is_left_out(placed.unit.path))
    source = with_names(render(tree, placed.unit, dedented(tree, node)), placed.names)
    return insertion(
        project.old_tree(placed.old_path), placed.slot, source, TextGap(around.gap_before, around.gap_after)
    )


def _patched(project: Project, all_placed: Sequence[Placed]) -> dict[str, tuple[str, list[tuple[Placed, Insertion]]]]:
    """The patched text of each file, with its insertions in the order of the text."""
    by_path: defaultdict[str, list[tuple[Placed, Insertion]]] = defaultdict(list)
    for placed in all_placed:
        by_path[placed.old_path].append((placed, _insertion(project, placed)))
    patched = {}
    for path, pairs in by_path.items():
        pairs = _in_order(pairs)
        patched[path] = (apply(project.old[path], [insertion for _, insertion in pairs]), pairs)
    return patched


def _in_order(pairs: list[tuple[Placed, Insertion]]) -> list[tuple[Placed, Insertion]]:
    """Insertions in the order of the text; what goes to one slot keeps the order it had in the new version."""
    ordered: list[tuple[Placed, Insertion]] = []
    for placed, each in sorted(
        pairs, key=lambda pair: (pair[0].slot.order, pair[0].slot.depth, pair[0].unit.node.order)
    ):
        last = ordered[-1][1] if ordered and ordered[-1][0].slot == placed.slot else each
        moved = each if last.offset <= each.offset else replace(each, offset=last.offset, line=last.line)
        ordered.append((placed, moved))
    return sorted(ordered, key=lambda pair: pair[1].offset)


def _put_together(project: Project, carried: list[tuple[str, int, Carried]], refusals: list[Refusal]) -> Transplant:
    seen: dict[tuple[str, Node, str | None], Placed] = {}
    for _, _, found in carried:
        for placed in found.placed:
            seen.setdefault((placed.unit.path, placed.unit.node, placed.unit.source), placed)
    patched = _patched(project, list(seen.values()))
    files = {path: text for _, _, found in carried for path, text in found.files.items()}
    added: dict[str, tuple[int, ...]] = {
        path: tuple(range(1, len(text.splitlines()) + 1)) for path, text in files.items()
    }
    lines: dict[Placed | tuple[str, Node], tuple[int, int]] = {}
    for path, (text, pairs) in patched.items():
        files[path] = text
        shift = 0
        new_lines: list[int] = []
        for placed, each in pairs:
            lines[placed.unit.path, placed.unit.node] = (each.line + shift, each.line)
            new_lines += range(each.line + shift, each.line + shift + max(1, each.lines))
            shift += each.lines
        added[path] = tuple(new_lines)
    landings = [_landing(path, line, found, lines) for path, line, found in carried]
    names = {new: old for placed in seen.values() for new, old in placed.names.items()}
    return Transplant(files, tuple(landings), names, tuple(refusals), added)


def _landing(
    path: str, line: int, found: Carried, lines: Mapping[Placed | tuple[str, Node], tuple[int, int]]
) -> Landing:
    where = found.where
    assert where is not None
    assert found.node is not None
    patched, before = lines[where.unit.path, where.unit.node]
    patched += lines_before(where.unit, found.node)
    return Landing(
        path, line, where.old_path, patched, before, round(found.probability, 4), found.equivalent, tuple(found.notes)
    )


# --- checking --------------------------------------------------------------------------------------------------------


def _verify(project: Project, found: Carried) -> None:
    """The patched text must parse if the old one did, and whatever was brought along must come in time."""
    for path, (text, pairs) in _patched(project, found.placed).items():
        for placed, each in pairs:
            _check_syntax(project.old_tree(path), placed, [each for _, each in pairs], found)
            if placed.slot.block.parent is None and not _parses(each.text.strip("; \t\f\r\n")):
                _doubt(found, "the statement isn't of this Python, so that it could not be checked")
        if len(pairs) > 1:
            _check_names(project, parse(text), pairs)


def _check_syntax(old: Tree, placed: Placed, insertions: list[Insertion], found: Carried) -> None:
    """Check the function, class or other statement at the margin that a statement was put into."""
    if placed.slot.block.parent is None:
        return
    top = [placed.slot.block, *placed.slot.block.around()][-2]
    end = old.lines[top.last_line] if top.last_line < len(old.lines) else len(old.text)
    inside = [
        Insertion(each.offset - top.start, each.text, 0, 0) for each in insertions if top.start < each.offset <= end
    ]
    if _parses(apply(old.text[top.start : end], inside)):
        return
    if _parses(old.source(top)):
        raise CarryRefused("the old version would no longer parse with it")
    _doubt(found, "the old version isn't of this Python, so that it could not be checked")


def _doubt(found: Carried, note: str) -> None:
    if note not in found.notes:
        found.probability *= 0.7
        found.notes.append(note)


def _parses(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<patched>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _check_names(project: Project, patched: Tree, pairs: list[tuple[Placed, Insertion]]) -> None:
    """Every name of what was put in has its value in the patched text, as surely as in the new version."""
    names, starts, longer = DefiniteAssignment(patched), [node.start for node in patched.nodes], 0
    for placed, each in pairs:
        at = bisect_left(starts, each.offset + longer)
        longer += len(each.text)
        node = patched.nodes[at] if at < len(starts) else None
        if node is None or node.parent is None or node.start >= each.offset + longer:
            raise CarryRefused("the old version would no longer parse with it")
        new_tree = project.new_tree(placed.unit.path)
        new_names, own = project.names(new_tree), placed.unit.node
        assert own.parent is not None
        if placed.unit.source is not None:
            continue
        for name, at_once in free_names(new_tree, placed.unit.nodes()).items():
            there = names.at(Slot(node.parent, node.index), placed.names.get(name, name), at_once=at_once)
            if not there and new_names.at(Slot(own.parent, own.index), name, at_once=at_once):
                raise CarryRefused(f"{name} has no value there in the old version")
