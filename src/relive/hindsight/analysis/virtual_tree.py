"""A working tree that exists in memory only: the files of a version, or of the project, with a statement inserted.

Statements that are given as text are carried to old versions from there, like those of the real working tree.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass

from relive.errors import NotFound, ReliveError
from relive.hindsight.analysis.patched_source import Files

MAX_STATEMENT_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class InsertedStatement:
    """A statement, and the line before which it belongs: of the version of a run, or of the working tree."""

    statement: str
    file: str
    line: int
    run: str | None = None  # None: of the working tree


def insert_statement(files: Files, insertion: InsertedStatement) -> Files:
    """Returns the files with the statement inserted, indented like the line that follows it."""
    if insertion.file not in files:
        raise NotFound(f"{insertion.file} is not among the Python files; it has {', '.join(sorted(files)[:10])}")
    lines = files[insertion.file].splitlines(keepends=True)
    if not 1 <= insertion.line <= len(lines) + 1:
        raise NotFound(f"{insertion.file} has {len(lines)} lines; choose one of them")
    below = lines[insertion.line - 1] if insertion.line <= len(lines) else ""
    indent = below[: len(below) - len(below.lstrip())]
    ending = "\r\n" if below.endswith("\r\n") else "\n"
    before = lines[: insertion.line - 1]
    if before and not before[-1].endswith("\n"):
        before[-1] += ending
    rows = _statement_rows(insertion.statement, files[insertion.file])
    inserted = [f"{indent}{row}{ending}" if row else ending for row in rows]
    text = "".join([*before, *inserted, *lines[insertion.line - 1 :]])
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        place = f"{insertion.file}:{insertion.line}"
        raise ReliveError(f"the statement does not fit before {place} ({error}); choose another line") from error
    return {**files, insertion.file: text}


def _statement_rows(statement: str, text: str) -> list[str]:
    """Returns the lines of a statement, with an import of relive if it needs one that the file lacks."""
    plain = textwrap.dedent(statement.expandtabs(4)).strip("\n")
    if not plain.strip() or len(plain) > MAX_STATEMENT_CHARS:
        raise ReliveError(f'give a statement of 1 to {MAX_STATEMENT_CHARS:,} characters, like relive.log("name", x)')
    needs_import = "relive." in plain and "import relive" not in text and "import relive" not in plain
    return [*(["import relive"] if needs_import else []), *plain.splitlines()]


def logged_names(statement: str) -> tuple[str, ...]:
    """Returns the names that a statement logs with `relive.log`, or with a function of that name."""
    try:
        tree = ast.parse(textwrap.dedent(statement.expandtabs(4)).strip("\n"))
    except (SyntaxError, ValueError) as error:
        raise ReliveError(f'this is no Python statement ({error}); write one like relive.log("name", x)') from error
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    found = [
        call.args[0].value
        for call in calls
        if getattr(call.func, "attr", getattr(call.func, "id", "")) == "log" and isinstance(call.args[0], ast.Constant)
    ]
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))
