"""Inserts a statement into a text: indentation, line ends and one-line suites; every other character stays."""

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
    """Text to insert at an offset; `line` is the number of its line in the old text, `lines` how many it adds."""

    offset: int
    text: str
    line: int
    lines: int


@dataclass(frozen=True, slots=True)
class TextGap:
    """The text around a statement in the new version: comments and blank lines above and below."""

    above: str
    below: str


def apply_insertions(text: str, insertions: list[Insertion]) -> str:
    """Returns the text with all insertions; those at one offset keep the order of the list."""
    parts, at = [], 0
    for insertion in sorted(insertions, key=lambda found: found.offset):
        parts += [text[at : insertion.offset], insertion.text]
        at = insertion.offset
    return "".join([*parts, text[at:]])


def can_insert(slot: Slot, *, compound: bool) -> bool:
    """Whether a statement can be inserted into a slot without changing the existing text."""
    if compound and (slot.block.inline or _on_one_line(slot)):
        return False
    return bool(slot.block.body) and not _before_docstring(slot)


def _before_docstring(slot: Slot) -> bool:
    """Whether a slot precedes a docstring or an import from __future__, which must stay first."""
    after = slot.after
    if after is None or slot.block.kind not in ("module", "def", "class"):
        return False
    first = (
        after.index == 0 and after.kind == "" and not after.key.isidentifier() and after.key.lstrip("rRuU")[:1] == "'"
    )
    return first or after.key.startswith("from__future__")


def _on_one_line(slot: Slot) -> bool:
    return slot.before is not None and slot.after is not None and slot.before.last_line == slot.after.line


def make_insertion(tree: Tree, slot: Slot, source: str, gap: TextGap) -> Insertion:
    """Returns the insertion of a statement, given without indentation, into a slot."""
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


def dedent_source(tree: Tree, node: Node) -> str:
    """Returns the text of a statement without indentation, with the comment that ends its last line."""
    end = node.end
    following = tree.lines[node.last_line] if node.last_line < len(tree.lines) else len(tree.text)
    rest = tree.text[end:following]
    if rest.lstrip(" \t\f").startswith("#"):
        end += len(rest.rstrip())
    return "\n".join(_without_indent(tree.text[node.start : end], node.indent))


def _without_indent(source: str, indent: str) -> list[str]:
    return [
        line if in_string or not line.startswith(indent) else line[len(indent) :]
        for line, in_string in _lines_in_strings(source)
    ]


def _indented(source: str, indent: str) -> list[str]:
    return [line if in_string or not line.strip() else indent + line for line, in_string in _lines_in_strings(source)]


def _lines_in_strings(source: str) -> list[tuple[str, bool]]:
    """Returns the lines of a text, and whether each starts inside a string, where indentation must stay."""
    strings = [found.span() for found in _STRINGS.finditer(source)]
    lines, at = [], 0
    for found in [*_NEWLINE.finditer(source), None]:
        end = found.start() if found else len(source)
        lines.append((source[at:end], any(start < at < stop for start, stop in strings)))
        at = found.end() if found else end
    return lines


# --- the line in a slot ----------------------------------------------------------------------------------------------


def _line_in_gap(tree: Tree, slot: Slot, gap: TextGap) -> int:
    """Returns the number of the line before which the statement goes, among comments and blank lines of its slot."""
    before, after = slot.before, slot.after
    first = (before.last_line if before is not None else slot.block.head_line) + 1
    if before is None and slot.block.parent is None:
        assert after is not None
        return after.line  # below the comments at the top of a file: the first lines may declare its encoding
    last = after.line if after is not None else first + _comments_below(tree, first, slot)
    lines = [_line(tree, number).strip() for number in range(first, last)]
    return first + _index_among(lines, gap, at_end=after is None)


def _index_among(lines: list[str], gap: TextGap, *, at_end: bool) -> int:
    """Returns the index after the comments above the statement and before those below it, with its blank lines."""
    above = [number for number, line in enumerate(lines) if _is_among(line, _comments(gap.above))]
    if above:
        return _skip_blanks(lines, above[-1] + 1, _blanks_at_end(gap.above))
    below = [number for number, line in enumerate(lines) if _is_among(line, _comments(gap.below))]
    if below and not at_end:
        number = below[0]
        while number and not lines[number - 1] and _blanks_at_start(gap.below):
            number -= 1
        return max(number, min(below[0], _skip_blanks(lines, 0, _blanks_at_start(gap.above))))
    if not at_end and not _blanks_at_start(gap.below) and _blanks_at_start(gap.above):
        return len(lines) if not any(lines) else _skip_blanks(lines, 0, len(lines))
    return _skip_blanks(lines, 0, _blanks_at_start(gap.above))


def _is_among(line: str, comments: set[str]) -> bool:
    """Whether a line is one of the comments, or similar to one."""
    if not line or not comments:
        return False
    words = set(_WORD.findall(line.lower()))
    theirs = [set(_WORD.findall(comment.lower())) for comment in comments]
    return line in comments or any(
        2 * len(words & each) > len(words) + len(each) - len(words & each) for each in theirs
    )


def _skip_blanks(lines: list[str], number: int, blanks: int) -> int:
    while blanks and number < len(lines) and not lines[number]:
        number, blanks = number + 1, blanks - 1
    return number


def _comments_below(tree: Tree, first: int, slot: Slot) -> int:
    """Returns how many lines after the end of a block are comments and blank lines that could belong to it."""
    ends_with_newline = tree.lines[-1] == len(tree.text)  # the text ends with a newline, after which there is no line
    end = len(tree.lines) if ends_with_newline else len(tree.lines) + 1
    following = tree.nodes[slot.block.after].line if slot.block.after < len(tree.nodes) else end
    return max(0, following - first)


def _line(tree: Tree, number: int) -> str:
    start = tree.lines[number - 1] if number <= len(tree.lines) else len(tree.text)
    end = tree.lines[number] if number < len(tree.lines) else len(tree.text)
    return tree.text[start:end]


def _comments(text: str) -> set[str]:
    return {line.strip() for line in _NEWLINE.split(text)[1:] if line.strip().startswith("#")}


def _blanks_at_start(text: str) -> int:
    """Returns how many blank lines follow the line on which a gap starts."""
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
