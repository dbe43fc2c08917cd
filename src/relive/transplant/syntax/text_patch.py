"""Putting a statement into a text: indentation, line ends and one-line suites; every other character stays."""

from __future__ import annotations

import re
from dataclasses import dataclass

from relive.transplant.syntax.insertion_slots import Slot
from relive.transplant.syntax.statement_tree import STRING, Node, Tree

_STRINGS = re.compile(rf"{STRING}|#[^\r\n]*", re.DOTALL)
_NEWLINE = re.compile(r"\r\n|\n|\r")
_INDENT = re.compile(r"[ \t\f]*")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Insertion:
    """Text to put in at an offset; `line` is the number of its first line in the old text, `lines` how many it adds."""

    offset: int
    text: str
    line: int
    lines: int


@dataclass(frozen=True, slots=True)
class TextGap:
    """What stood around a statement in the new version: comments above and below, blank lines before and after."""

    above: str
    below: str


def apply(text: str, insertions: list[Insertion]) -> str:
    """The text with all insertions; those at one place follow in the order of the list."""
    parts, at = [], 0
    for insertion in sorted(insertions, key=lambda found: found.offset):
        parts += [text[at : insertion.offset], insertion.text]
        at = insertion.offset
    return "".join([*parts, text[at:]])


def fits(slot: Slot, *, compound: bool) -> bool:
    """Whether a statement can be put there without touching what stands there."""
    if compound and (slot.block.inline or _on_one_line(slot)):
        return False
    return bool(slot.block.body) and not _before_docstring(slot)


def _before_docstring(slot: Slot) -> bool:
    """A docstring and imports from __future__ must stay first."""
    after = slot.after
    if after is None or slot.block.kind not in ("module", "def", "class"):
        return False
    first = (
        after.index == 0 and after.kind == "" and not after.key.isidentifier() and after.key.lstrip("rRuU")[:1] == "'"
    )
    return first or after.key.startswith("from__future__")


def _on_one_line(slot: Slot) -> bool:
    return slot.before is not None and slot.after is not None and slot.before.last_line == slot.after.line


def insertion(tree: Tree, slot: Slot, source: str, gap: TextGap) -> Insertion:
    """How a statement, written with no indentation of its own, gets into a slot."""
    before, after = slot.before, slot.after
    if slot.block.inline or _on_one_line(slot):
        if before is not None:
            return Insertion(before.end, f"; {source}", before.last_line, source.count("\n"))
        assert after is not None
        return Insertion(after.start, f"{source}; ", after.line, source.count("\n"))
    indent = (before or after or slot.block).indent
    newline = _newline_of(tree.text)
    text = newline.join(_indented(source, indent))
    line = _line_in_gap(tree, slot, gap)
    lines = text.count(newline) + 1
    if line > len(tree.lines):
        return Insertion(len(tree.text), newline + text, line, lines)
    offset = tree.lines[line - 1]
    if offset == 0 and tree.text.startswith("\ufeff"):
        offset = 1
    if offset == len(tree.text) and not _NEWLINE.search(tree.text[-1:]) and offset > 1:
        return Insertion(offset, newline + text, line + 1, lines)
    return Insertion(offset, text + newline, line, lines)


def _newline_of(text: str) -> str:
    found = _NEWLINE.search(text)
    return found.group() if found else "\n"


def dedented(tree: Tree, node: Node) -> str:
    """The text of a statement as if it stood at the margin, with the comment that ends its last line."""
    end = node.end
    following = tree.lines[node.last_line] if node.last_line < len(tree.lines) else len(tree.text)
    rest = tree.text[end:following]
    if rest.lstrip(" \t\f").startswith("#"):
        end += len(rest.rstrip())
    return "\n".join(_without_indent(tree.text[node.start : end], node.indent))


def _without_indent(source: str, indent: str) -> list[str]:
    return [
        line if held or not line.startswith(indent) else line[len(indent) :] for line, held in _lines_with_holds(source)
    ]


def _indented(source: str, indent: str) -> list[str]:
    return [line if held or not line.strip() else indent + line for line, held in _lines_with_holds(source)]


def _lines_with_holds(source: str) -> list[tuple[str, bool]]:
    """The lines of a text, and for each whether it begins inside a string, where every space counts."""
    strings = [found.span() for found in _STRINGS.finditer(source)]
    lines, at = [], 0
    for found in [*_NEWLINE.finditer(source), None]:
        end = found.start() if found else len(source)
        lines.append((source[at:end], any(start < at < stop for start, stop in strings)))
        at = found.end() if found else end
    return lines


# --- the line in a gap -----------------------------------------------------------------------------------------------


def _line_in_gap(tree: Tree, slot: Slot, gap: TextGap) -> int:
    """The number of the line before which the statement goes, among the comments and blank lines of its slot."""
    before, after = slot.before, slot.after
    first = (before.last_line if before is not None else slot.block.head_line) + 1
    if before is None and slot.block.parent is None:
        assert after is not None
        return after.line  # below the comments that head a file: the first lines may name its encoding
    last = after.line if after is not None else first + _comments_below(tree, first, slot)
    lines = [_line(tree, number).strip() for number in range(first, last)]
    return first + _place_among(lines, gap, at_end=after is None)


def _place_among(lines: list[str], gap: TextGap, *, at_end: bool) -> int:
    """After the comments that stood above the statement, before those that stood below, with its blank lines."""
    kept = [number for number, line in enumerate(lines) if _is_among(line, _comments(gap.above))]
    if kept:
        return _over_blanks(lines, kept[-1] + 1, _blanks_at_end(gap.above))
    ahead = [number for number, line in enumerate(lines) if _is_among(line, _comments(gap.below))]
    if ahead and not at_end:
        number = ahead[0]
        while number and not lines[number - 1] and _blanks_at_start(gap.below):
            number -= 1
        return max(number, min(ahead[0], _over_blanks(lines, 0, _blanks_at_start(gap.above))))
    if not at_end and not _blanks_at_start(gap.below) and _blanks_at_start(gap.above):
        return len(lines) if not any(lines) else _over_blanks(lines, 0, len(lines))
    return _over_blanks(lines, 0, _blanks_at_start(gap.above))


def _is_among(line: str, comments: set[str]) -> bool:
    """Whether a line is one of some comments, or much like one."""
    if not line or not comments:
        return False
    words = set(_WORD.findall(line.lower()))
    theirs = [set(_WORD.findall(comment.lower())) for comment in comments]
    return line in comments or any(
        2 * len(words & each) > len(words) + len(each) - len(words & each) for each in theirs
    )


def _over_blanks(lines: list[str], number: int, blanks: int) -> int:
    while blanks and number < len(lines) and not lines[number]:
        number, blanks = number + 1, blanks - 1
    return number


def _comments_below(tree: Tree, first: int, slot: Slot) -> int:
    """How many lines after the end of a block are comments and blank lines that could still belong to it."""
    ends = tree.lines[-1] == len(tree.text)  # with a newline, after which there is no line
    end = len(tree.lines) if ends else len(tree.lines) + 1
    following = tree.nodes[slot.block.after].line if slot.block.after < len(tree.nodes) else end
    return max(0, following - first)


def _line(tree: Tree, number: int) -> str:
    start = tree.lines[number - 1] if number <= len(tree.lines) else len(tree.text)
    end = tree.lines[number] if number < len(tree.lines) else len(tree.text)
    return tree.text[start:end]


def _comments(text: str) -> set[str]:
    return {line.strip() for line in _NEWLINE.split(text)[1:] if line.strip().startswith("#")}


def _blanks_at_start(text: str) -> int:
    """How many blank lines follow the line on which a gap begins."""
    count = 0
    for line in _NEWLINE.split(text)[1:-1]:
        if line.strip():
            break
        count += 1
    return count


def _blanks_at_end(text: str) -> int:
    count = 0
    for line in reversed(_NEWLINE.split(text)[1:-1]):
        if line.strip():
            break
        count += 1
    return count
