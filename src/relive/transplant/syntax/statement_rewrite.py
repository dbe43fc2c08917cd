"""Rewrites a statement of the new version with the names of the old one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from relive.transplant.syntax.statement_effects import parse_quietly
from relive.transplant.syntax.statement_tree import STRING

_DOTTED = r"(?<![\w.\"'])([^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)*)"
_Span = tuple[int, int, str]  # start, end, and the variable's name in the new version


def rename_variables(source: str, names: Mapping[str, str]) -> str:
    """Renames variables in a statement, also inside f-strings; other attributes, keywords of calls and texts stay.

    A variable is a name or an attribute of one: `{"self.net": "net"}`.
    """
    if not names:
        return source
    pieces, at = [], 0
    for start, end, name in _spans(source, names):
        if start >= at:
            pieces += [source[at:start], names[name]]
            at = end
    return "".join([*pieces, source[at:]])


def _spans(source: str, names: Mapping[str, str]) -> list[_Span]:
    """Returns the spans of the variables that a statement reads or binds, the longest of each place first."""
    parsed = parse_quietly(source)
    if parsed is None:
        pattern = re.compile(rf"{STRING}|#[^\r\n]*|{_DOTTED}(?!\s*=[^=])", re.DOTALL)
        found = [span for each in pattern.finditer(source) if each.group(1) for span in _dotted_spans(each, names)]
        return sorted(found, key=_by_place)
    lines, texts = [0], source.split("\n")
    for line in texts:
        lines.append(lines[-1] + len(line) + 1)

    def offset(line: int, column: int) -> int:
        return lines[line - 1] + len(texts[line - 1].encode()[:column].decode(errors="ignore"))

    found = []
    for node in (each for statement in parsed for each in ast.walk(statement)):
        path = _path(node)
        if path in names and isinstance(node, ast.Name | ast.Attribute):
            end = offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
            found.append((offset(node.lineno, node.col_offset), end, path))
    exact = [span for span in found if "".join(source[span[0] : span[1]].split()) == span[2]]
    if len(exact) < len(found):  # Python 3.11 has no exact positions inside f-strings
        exact = _with_fstrings(source, names, exact)
    return sorted(set(exact), key=_by_place)


def _path(node: ast.AST) -> str:
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, attribute) if inner := _path(value):
            return f"{inner}.{attribute}"
    return ""


def _by_place(span: _Span) -> tuple[int, int]:
    return span[0], -span[1]


def _dotted_spans(found: re.Match[str], names: Mapping[str, str], start: int = 0) -> Iterator[_Span]:
    """Yields the variables that a name with its attributes starts with."""
    for end in [*(each.start() for each in re.finditer(r"\s*\.", found.group(1))), len(found.group(1))]:
        name = "".join(found.group(1)[:end].split())
        if name in names:
            yield start + found.start(1), start + found.start(1) + end, name


def _with_fstrings(source: str, names: Mapping[str, str], exact: list[_Span]) -> list[_Span]:
    kept = list(exact)
    for string in re.finditer(rf"\b(?:[fF][rR]?|[rR][fF])({STRING})", source, re.DOTALL):
        kept = [span for span in kept if not string.start() <= span[0] < string.end()]
        for hole in re.finditer(r"(?<!\{)\{([^{}]*)\}", string.group()):
            expression = re.split(r"![rsa]|:", hole.group(1))[0]
            for found in re.finditer(rf"{_DOTTED}\b(?!\s*=[^=])", expression):
                kept += _dotted_spans(found, names, string.start() + hole.start(1))
    return kept


def attributes_of(source: str, name: str) -> dict[str, int] | None:
    """Returns the attributes of a name that a statement uses, and how often; None if it uses the name itself too."""
    used: dict[str, int] = {}
    for text, is_attribute in _uses(source, name):
        if not is_attribute:
            return None
        used[text] = used.get(text, 0) + 1
    return used


def paths_of(source: str, name: str) -> set[str]:
    """Returns the longest attributes of a name that a statement takes, methods aside: `cfg.dataset.workers`."""
    nodes = [node for statement in parse_quietly(source) or () for node in ast.walk(statement)]
    methods = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    found = {_path(node) for node in nodes if isinstance(node, ast.Attribute) and id(node) not in methods}
    paths = {path for path in found if path.startswith(f"{name}.")}
    return {path for path in paths if not any(other.startswith(f"{path}.") for other in paths)}


def _uses(source: str, name: str) -> Iterator[tuple[str, bool]]:
    """Yields each use of a name: the attribute that is taken of it, and True; the name itself, and False."""
    parsed = parse_quietly(source)
    if parsed is None:
        for found in re.finditer(rf"(?<![\w.]){re.escape(name)}\b(?:\s*\.\s*(\w+))?", source):
            yield found.group(1) or name, found.group(1) is not None
        return
    inner = set()
    for each in (node for statement in parsed for node in ast.walk(statement)):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == name:
            inner.add(id(each.value))
            yield each.attr, True
        elif isinstance(each, ast.Name) and each.id == name and id(each) not in inner:
            yield name, False
