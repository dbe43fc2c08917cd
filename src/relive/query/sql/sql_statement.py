"""What a SQL statement refers to, according to DuckDB's own parser, and errors that point at a position in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relive.errors import QueryError

Node = Mapping[str, Any]
Serialize = Callable[[str], str]  # SQL → the JSON text of its syntax tree

NOWHERE = -1
_EXCERPT_CHARS = 100
# A quoted string or a comment, or one character; quoted strings must be skipped as a whole.
_LEXEME = re.compile(
    r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|\w+|.""", re.DOTALL
)
_QUOTED = ("'", '"', "$", "e'", "E'")
# The parser replaces these by blanks before it counts positions; so do we, to get the same positions.
_UNICODE_BLANKS = re.compile("[\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff]")
# Words without parentheses that are functions, though they parse as columns.
_VALUE_WORDS = frozenset(
    "current_date current_time current_timestamp localtime localtimestamp current_user user session_user "
    "current_role current_catalog current_schema".split()
)


@dataclass(frozen=True, slots=True)
class SqlText:
    """SQL of which the user wrote the bytes from `start` to `end` (counted from the back); errors show only these."""

    sql: str
    start: int = 0
    end: int = 0

    @classmethod
    def around(cls, written: str, before: str, after: str = "") -> SqlText:
        return cls(before + written + after, len(before.encode()), len(after.encode()))

    @property
    def written(self) -> bytes:
        raw = self.sql.encode()
        return raw[self.start : len(raw) - self.end]

    def tail(self, at: int) -> str:
        return self.sql.encode()[at:].decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that the SQL uses, preceded by its qualifiers, and its offset in UTF-8 bytes, or NOWHERE."""

    parts: tuple[str, ...]
    at: int = NOWHERE

    @property
    def name(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class FrameCall:
    """A call `frame('a', 'b')` in place of a table, from byte `start` to byte `end`."""

    names: tuple[str, ...]
    start: int
    end: int
    alias: str


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A single SELECT and everything it refers to."""

    source: SqlText
    node: Node
    frames: list[FrameCall] = field(default_factory=list)
    tables: list[Mention] = field(default_factory=list)
    table_functions: list[Mention] = field(default_factory=list)
    functions: list[Mention] = field(default_factory=list)
    columns: list[Mention] = field(default_factory=list)
    others: list[Mention] = field(default_factory=list)  # relevant nodes of other kinds, by their class
    ctes: set[str] = field(default_factory=set)


def quote(name: str) -> str:
    """Returns the name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def normalize_blanks(sql: str) -> str:
    """Replaces Unicode blanks, which editors and web pages insert, by ordinary ones; quoted strings stay."""
    if "\0" in sql:
        raise QueryError("the query contains a NUL character; remove it")
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryError("the query contains a lone surrogate (half a character); remove it") from error

    def plain(lexeme: re.Match[str]) -> str:
        text = lexeme.group()
        return text if text.startswith(_QUOTED) else _UNICODE_BLANKS.sub(" ", text)

    return _LEXEME.sub(plain, sql)


def parse_statement(source: SqlText, serialize: Serialize, *, requirement: str) -> SqlStatement:
    """Parses the one SELECT in the source (with normalized blanks); raises an error that points at the problem.

    `requirement` is the message if the SQL is valid but isn't a single SELECT.
    """
    try:
        tree = msgspec.json.decode(serialize(source.sql))
    except RecursionError:
        raise QueryError("the query is nested too deeply; split it with `with … as (…)`") from None
    if tree.get("error"):
        raise _syntax_error(source, tree, requirement)
    if len(tree["statements"]) != 1:
        raise QueryError(requirement)
    statement = SqlStatement(source, tree["statements"][0]["node"])
    _collect(statement)
    return statement


def _syntax_error(source: SqlText, tree: Node, requirement: str) -> QueryError:
    message = str(tree.get("error_message") or "this is not SQL")
    if tree.get("error_type") == "not implemented" and "SELECT" in message:
        return QueryError(requirement)
    return error_at(source, int(tree.get("position", NOWHERE)), message, remedy="correct the SQL there")


def error_at(source: SqlText, at: int, problem: str, *, remedy: str) -> QueryError:
    """Returns an error with the line of the SQL that contains byte `at`, and a caret under it."""
    if at < 0:
        return QueryError(f"{problem}; {remedy}")
    written = source.written
    text, before = written.decode(), written[: max(at - source.start, 0)].decode(errors="ignore")
    start = before.rfind("\n") + 1
    column = len(before) - start
    line = text[start:].partition("\n")[0]
    word = re.match(r'"[^"]*"|[\w.]+', line[column:])
    shift = max(0, column - _EXCERPT_CHARS // 2)
    margin = "".join("\t" if char == "\t" else " " for char in line[shift:column])
    caret = margin + "^" * min(len(word.group()) if word else 1, _EXCERPT_CHARS // 2)
    place = f"line {before.count(chr(10)) + 1}, column {column + 1}"
    return QueryError(f"{problem} ({place})\n    {line[shift : shift + _EXCERPT_CHARS]}\n    {caret}\n{remedy}")


def _collect(statement: SqlStatement) -> None:
    """Walks the tree without recursion, since it may be deeper than Python's stack."""
    todo: list[tuple[Any, frozenset[str]]] = [(statement.node, frozenset())]
    while todo:
        node, bound = todo.pop()
        if isinstance(node, list):
            todo.extend((child, bound) for child in reversed(node))
        elif isinstance(node, dict):
            todo.extend((child, inner) for child, inner in reversed(list(_visit(statement, node, bound))))


def _visit(statement: SqlStatement, node: Node, bound: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Records what this node refers to; yields its child nodes with the names that lambdas bind there."""
    at = _position(node)
    match node.get("class") or node.get("type"):
        case "TABLE_FUNCTION":
            call = node["function"]
            if _qualified_name(call, "function_name") == ("frame",):
                statement.frames.append(_parse_frame_call(statement.source, node))
                return
            statement.table_functions.append(Mention(_qualified_name(call, "function_name"), at))
            yield from ((argument, bound) for argument in _arguments(call))
            return
        case "BASE_TABLE":
            statement.tables.append(Mention(_qualified_name(node, "table_name"), at))
        case "FUNCTION" | "WINDOW":
            statement.functions.append(Mention(_qualified_name(node, "function_name"), at))
        case "COLUMN_REF":
            _record_column(statement, Mention(tuple(node["column_names"]), at), bound)
        case "LAMBDA":
            yield node.get("expr"), bound | set(_lambda_parameters(node.get("lhs")))
            return
        case "SHOW_REF":
            statement.others.append(Mention(("DESCRIBE" if node.get("query") else "SHOW",)))
        case "SUBQUERY" | "PARAMETER" | "STAR" | "POSITIONAL_REFERENCE" as kind:
            statement.others.append(Mention((kind,), at))
    statement.ctes.update(entry["key"].lower() for entry in (node.get("cte_map") or {}).get("map", ()))
    yield from ((child, bound) for child in node.values())


def _record_column(statement: SqlStatement, column: Mention, bound: frozenset[str]) -> None:
    first = column.parts[0].lower()
    if first not in bound and not (len(column.parts) == 1 and first in _VALUE_WORDS):
        statement.columns.append(column)


def _lambda_parameters(node: Any) -> Iterator[str]:
    """Yields the parameters of a lambda: one column, or a row of them."""
    if isinstance(node, dict) and node.get("class") == "COLUMN_REF":
        yield node["column_names"][-1].lower()
    elif isinstance(node, dict):
        for child in _arguments(node):
            yield from _lambda_parameters(child)


def _position(node: Node) -> int:
    """Returns the position of a node; the parser writes the largest integer for an unknown one."""
    at = node.get("query_location", NOWHERE)
    return at if 0 <= at < 1 << 63 else NOWHERE


def _qualified_name(node: Node, key: str) -> tuple[str, ...]:
    """Returns the name under `key` in lower case, preceded by catalog and schema if the SQL names them."""
    qualifiers = [node.get("catalog_name") or node.get("catalog"), node.get("schema_name") or node.get("schema")]
    return tuple(part.lower() for part in [*qualifiers, node.get(key, "")] if part)


def _arguments(call: Node) -> list[Any]:
    """Returns the argument expressions of a function; DuckDB 2 wraps each with its name, DuckDB 1 doesn't."""
    return [argument["expression"] for argument in call.get("arguments", ())] or list(call.get("children", ()))


def _parse_frame_call(source: SqlText, node: Node) -> FrameCall:
    at, end = _position(node), _end_of_call(source, _position(node))
    arguments = node["function"].get("arguments", ())
    has_ordinality = node.get("with_ordinality", "WITHOUT_ORDINALITY") != "WITHOUT_ORDINALITY"
    if end == NOWHERE or has_ordinality or any(argument.get("name") for argument in arguments):
        raise error_at(source, at, "frame(…) can't be read here", remedy="write it as: from frame('name', …)")
    names = tuple(_frame_name(source, argument, at) for argument in _arguments(node["function"]))
    return FrameCall(names, at, end, node.get("alias", ""))


def _frame_name(source: SqlText, argument: Node, at: int) -> str:
    if argument.get("class") == "COLUMN_REF":
        return ".".join(argument["column_names"])
    literal = argument.get("literal") or argument.get("value") or {}
    text = literal.get("text", literal.get("value"))
    if argument.get("class") != "CONSTANT" or not isinstance(text, str) or literal.get("kind", "STRING") != "STRING":
        where = max(at, _position(argument))
        raise error_at(source, where, "frame(…) takes names only", remedy="write it as: frame('loss', 'acc')")
    return text


def _end_of_call(source: SqlText, at: int) -> int:
    """Returns the byte after the closing parenthesis of the call that begins at byte `at`."""
    tail = source.tail(at) if at != NOWHERE else ""
    if not re.match(r'"?frame"?(?!\w)', tail, re.IGNORECASE):
        return NOWHERE
    depth = 0
    for lexeme in _LEXEME.finditer(tail):
        depth += {"(": 1, ")": -1}.get(lexeme.group(), 0)
        if lexeme.group() == ")" and depth == 0:
            return at + len(tail[: lexeme.end()].encode())
    return NOWHERE


@dataclass(frozen=True, slots=True)
class EditedSql:
    """SQL with some byte spans replaced; `origin` maps a byte of the new text to the old one."""

    sql: str
    edits: Sequence[tuple[int, int, bytes]]  # start and end in the old text, and the replacement

    @classmethod
    def of(cls, sql: str, edits: Sequence[tuple[int, int, str]]) -> EditedSql:
        raw, done, out = sql.encode(), 0, b""
        ordered = sorted((start, end, text.encode()) for start, end, text in edits)
        for start, end, text in ordered:
            out += raw[done:start] + text
            done = end
        return cls((out + raw[done:]).decode(), ordered)

    def origin(self, at: int) -> int:
        shift = 0
        for start, end, text in self.edits:
            if at < start + shift:
                break
            if at < start + shift + len(text):
                return start
            shift += len(text) - (end - start)
        return at - shift
