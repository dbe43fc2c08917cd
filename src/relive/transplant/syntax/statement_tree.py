"""Splits Python source of any version, valid or not, into a tree of statements with exact positions."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

CLAUSES = frozenset("elif else except finally case".split())
SCOPES = frozenset(("def", "class"))
LOOPS = frozenset(("for", "while"))
RECEIVERS = frozenset(("self", "cls"))
_KEYWORDS = frozenset("if elif else for while try except finally with def class async".split())
_SOFT_KEYWORDS = frozenset(("match", "case"))

_NEWLINE = r"\r\n|\n|\r"
STRING = (
    r'"""(?:[^\\"]|\\.|"(?!""))*"""'
    r"|'''(?:[^\\']|\\.|'(?!''))*'''"
    r'|"(?:[^"\\\r\n]|\\(?:\r\n|.))*"'
    r"|'(?:[^'\\\r\n]|\\(?:\r\n|.))*'"
)
# What delimits logical lines, preceded by everything that doesn't: plain text, strings, innermost brackets.
_PLAIN = rf"[^\"'#()\[\]{{}}\\\r\n;:]++|{STRING}|[(\[{{][^()\[\]{{}}\"'#\\\r\n]*+[)\]}}]|[\"']"
_DELIMITER = re.compile(
    rf"(?>{_PLAIN})*+(?:(#[^\r\n]*)|([(\[{{])|([)\]}}])|(\\(?:{_NEWLINE})?)|({_NEWLINE})|(;)|(:=?))", re.DOTALL
)
_COMMENT, _OPEN, _CLOSE, _CONTINUATION, _LINE, _SEMI, _COLON = range(1, 8)
_TOKEN = re.compile(rf"(?:\b[rRbBuUfFtT]{{1,2}})?(?:{STRING})|#[^\r\n]*|\w+|[^\w\s]", re.DOTALL)
_LINE_END = re.compile(_NEWLINE)
_WORD = re.compile(r"\w+")
_SCOPE_NAME = re.compile(r"\b(?:def|class)\s+(\w+)")
_LOOP_NAME = re.compile(r"\bloop\s*\(\s*[\"'](\w+)[\"']")
_INDENT = re.compile(r"[ \t\f]*")


@dataclass(slots=True, eq=False)
class Node:
    """A statement, or a clause of one (else, except, case …); the root represents the whole text.

    `body` holds the statements inside it, `clauses` the clauses that belong to it.
    """

    kind: str  # its keyword, or "" for a simple statement
    start: int  # offset of its first character, decorators included
    head_end: int  # offset after its header: for a simple statement after its last character
    indent: str
    line: int = 1  # of its first character, counted from 1
    parent: Node | None = None
    body: list[Node] | None = None
    clauses: list[Node] = field(default_factory=list)
    inline: bool = False  # whether its body is on the line of its header
    end: int = 0  # offset after all of it
    last_line: int = 0
    head_line: int = 0  # the line on which its header ends
    order: int = 0  # its position in the preorder of the tree, which is the order of the text
    index: int = 0  # its position in its parent's body
    after: int = 0  # the `order` of the first node after it that isn't inside it
    name: str = ""  # of a function, a class or a relive.loop
    key: str = ""  # its header, normalized: without layout, comments and trailing commas
    words: frozenset[str] = frozenset()  # of its header

    @property
    def is_clause(self) -> bool:
        return self.kind in CLAUSES

    def descendants(self) -> Iterator[Node]:
        """Yields the nodes inside it, clauses included, in the order of the text."""
        for node in self.body or ():
            yield node
            yield from node.descendants()
        for clause in self.clauses:
            yield clause
            yield from clause.descendants()

    def ancestors(self) -> Iterator[Node]:
        """Yields the nodes that enclose it, the innermost first, the root last."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def scope_nodes(self) -> list[Node]:
        """Returns the nodes inside it, but not those inside its functions and classes, in the order of the text."""
        nodes: list[Node] = []
        waiting = [*reversed([*(self.body or ()), *self.clauses])]
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            if node.kind not in SCOPES and node.body is not None:
                waiting += reversed([*node.body, *node.clauses])
        return nodes

    @property
    def scope(self) -> Node:
        """The innermost function or class that contains it, or the root."""
        return next((node for node in self.ancestors() if node.kind in SCOPES), None) or self.root

    @property
    def root(self) -> Node:
        node = self
        while node.parent is not None:
            node = node.parent
        return node


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A text, its lines and its statements."""

    text: str
    lines: list[int]  # the offset at which each line starts
    root: Node
    nodes: list[Node]  # in the order of the text, without the root

    def at_line(self, line: int) -> Node | None:
        """Returns the statement of a line: the first that starts there, else the innermost that spans it."""
        found = None
        for node in self.nodes:
            if node.line == line and not node.is_clause:
                return node
            if node.line > line:
                break
            if node.line <= line <= node.last_line and not node.is_clause:
                found = node
        return found

    def head(self, node: Node) -> str:
        """Returns the text of a node's header."""
        return self.text[node.start : node.head_end]

    def source(self, node: Node) -> str:
        """Returns the text of a node, with everything inside it."""
        return self.text[node.start : node.end]


_DEEPEST = 100  # Python allows no deeper nesting of blocks
_Piece = tuple[int, int, str]  # start and end of a statement or a header, and its keyword


@lru_cache(maxsize=256)
def parse(text: str) -> Tree:
    """Returns the tree of a text; never fails, even if the text is not Python."""
    lines = [0, *(found.end() for found in _LINE_END.finditer(text))]
    root = Node("module", 0, 0, "", body=[])
    _Builder(text, root).build()
    nodes: list[Node] = []
    _number_nodes(root, nodes)
    _fill_attributes(Tree(text, lines, root, nodes))
    return Tree(text, lines, root, nodes)


class _Builder:
    """Arranges logical lines into blocks by their indentation."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.open: list[tuple[int, Node]] = [(-1, root)]  # open blocks, with the indentation width of their headers
        self.decorated: int | None = None

    def build(self) -> None:
        text = self.text
        for line_start, pieces in _logical_lines(text):
            start = pieces[0][0]
            if text[start] == "@" and text[start + 1 : start + 2] != "=":
                self.decorated = start if self.decorated is None else self.decorated
                continue
            indent = text[line_start:start]
            if indent.isspace() or not indent:
                self._add(pieces, indent)
            else:  # a form feed, a byte order mark, a backslash
                self._add(pieces, _indent_before(text, start))

    def _add(self, pieces: list[_Piece], indent: str) -> None:
        start, end, keyword = pieces[0]
        width = _width(indent) if indent else 0
        while self.open[-1][0] >= width:
            self.open.pop()
        container = self.open[-1][1]
        if self.decorated is not None:
            start, self.decorated = self.decorated, None
        node = Node(keyword, start, end, indent, end=end)
        owner = self._owner(container, keyword) if keyword in CLAUSES else None
        if owner is not None:
            owner.clauses.append(node)
            node.parent = owner
        else:
            _append(container, node)
        if keyword:
            node.body = []
            node.inline = len(pieces) > 1
            if not node.inline and len(self.open) <= _DEEPEST:
                self.open.append((width, node))
        for start, end, _ in pieces[1:]:
            _append(node if keyword else container, Node("", start, end, indent, end=end))

    @staticmethod
    def _owner(container: Node, keyword: str) -> Node | None:
        """Returns the statement that a clause belongs to; a case is inside the block of its match."""
        if keyword == "case":
            return container if container.kind == "match" else None
        last = container.body[-1] if container.body else None
        return last if last is not None and last.body is not None else None


def _append(container: Node, node: Node) -> None:
    node.parent = container
    assert container.body is not None
    node.index = len(container.body)
    container.body.append(node)


def _logical_lines(text: str) -> Iterator[tuple[int, list[_Piece]]]:
    """Yields the start of each logical line and its statements: several with semicolons or a one-line suite."""
    line_start, depth, comment = int(text.startswith("\ufeff")), 0, -1
    cuts: list[int] = []
    colons: list[int] = []
    for found in _DELIMITER.finditer(text):
        delimiter = found.lastindex
        if delimiter == _LINE:
            if depth:
                continue
            end = found.start(_LINE) if comment < 0 else comment
            line = text[line_start:end].rstrip()
            if line:
                start = line_start + len(line) - len(line.lstrip())
                if colons or cuts or text[start] == "\\":
                    yield from _split_line(text, line_start, line_start + len(line), cuts, colons)
                    cuts, colons = [], []
                else:
                    yield line_start, [(start, line_start + len(line), "")]
            line_start, comment = found.end(), -1
        elif delimiter == _OPEN:
            depth += 1
        elif delimiter == _CLOSE:
            depth = depth - 1 if depth else 0
        elif depth:
            continue
        elif delimiter == _COLON:
            colons.append(found.start(_COLON))
        elif delimiter == _COMMENT:
            comment = found.start(_COMMENT)
        elif delimiter == _SEMI:
            cuts.append(found.start(_SEMI))
    yield from _split_line(text, line_start, len(text) if comment < 0 else comment, cuts, colons)


def _split_line(
    text: str, line_start: int, end: int, cuts: list[int], colons: list[int]
) -> Iterator[tuple[int, list[_Piece]]]:
    start, end = _trim(text, line_start, end)
    if start >= end:
        return
    colon = _header_colon(text, start, colons) if colons else -1
    keyword = _compound_keyword(text, start, end, colon) if colon >= 0 else ""
    pieces = []
    if keyword:
        pieces.append((start, colon + 1, keyword))
        start = colon + 1
    for cut in [*(cut for cut in cuts if cut > start), end]:
        first, last = _trim(text, start, cut)
        if first < last:
            pieces.append((first, last, ""))
        start = cut + 1
    if pieces:
        yield line_start, pieces


def _header_colon(text: str, start: int, colons: list[int]) -> int:
    """Returns the colon that ends a header: the first outside brackets that belongs to no lambda or walrus."""
    lambdas = text.count("lambda", start, colons[-1])
    colons = [colon for colon in colons if text[colon + 1 : colon + 2] != "="]
    if not colons:
        return -1
    return colons[min(lambdas, len(colons) - 1)] if lambdas and len(colons) > 1 else colons[0]


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    piece = text[start:end].rstrip()
    return start + len(piece) - len(piece.lstrip(" \t\f\r\n\\")), start + len(piece)


def _compound_keyword(text: str, start: int, end: int, colon: int) -> str:
    found = _WORD.match(text, start)
    word = found.group() if found else ""
    if word in _SOFT_KEYWORDS:
        return word if colon == end - 1 or (word == "case" and colon > 0) else ""
    if word not in _KEYWORDS or colon < 0:
        return ""
    if word == "async":
        following = _WORD.search(text, start + 5, end)
        return following.group() if following and following.group() in _KEYWORDS else ""
    return word


def _indent_before(text: str, start: int) -> str:
    line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    found = _INDENT.match(text, line + (text[line : line + 1] == "\ufeff"))
    return found.group() if found else ""


def _width(indent: str) -> int:
    """Returns the width of an indentation as Python counts it: a tab advances to the next multiple of eight."""
    if "\t" not in indent and "\f" not in indent:
        return len(indent)
    return len(indent.rpartition("\f")[2].expandtabs(8))


def _number_nodes(node: Node, nodes: list[Node]) -> None:
    for child in [*node.body, *node.clauses] if node.body is not None else ():
        child.order = len(nodes)
        nodes.append(child)
        if child.body is None:
            child.after = len(nodes)
        else:
            _number_nodes(child, nodes)
        if child.end > node.end:
            node.end = child.end
    node.after = len(nodes)


def _fill_attributes(tree: Tree) -> None:
    """Sets lines, names, keys and words of all nodes."""
    text, lines, words = tree.text, tree.lines, _WORD.findall
    for node in tree.nodes:
        node.line = bisect_right(lines, node.start)
        node.last_line = bisect_right(lines, node.end - 1, node.line - 1)
        node.head_line = bisect_right(lines, node.head_end - 1, node.line - 1, node.last_line)
        head = text[node.start : node.head_end]
        node.key = normalize(head)
        node.words = frozenset(words(head))
        if node.kind in SCOPES or node.kind == "for":
            found = (_LOOP_NAME if node.kind == "for" else _SCOPE_NAME).search(head)
            node.name = found.group(1) if found else ""
    tree.root.last_line = len(lines)
    tree.root.end = len(text)


def normalize(source: str) -> str:
    """Returns a statement without what a formatter changes: layout, comments, quotes, trailing commas."""
    if "#" in source:
        source = " ".join(token for token in _TOKEN.findall(source) if token[0] != "#")
    key = "".join(source.split()).replace('"', "'")
    return key.replace(",)", ")").replace(",]", "]").replace(",}", "}") if "," in key else key
