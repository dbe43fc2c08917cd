"""The variables of loops in the recorded source, by which a where clause may name the columns of loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from relive.errors import ReliveError
from relive.instrument import ProjectSurvey, instrument_loops, reachable_files, survey_functions
from relive.model import RunRecord
from relive.store.versions import VersionFiles
from relive.syntax_tree import parse

MAX_VERSIONS = 20


def find_loop_variables(records: Sequence[RunRecord]) -> dict[str, str]:
    """Returns variable → loop, over the newest versions of these runs; without variables of several loops."""
    newest: dict[str, RunRecord] = {}
    for record in reversed(records):
        if record.version and len(newest) < MAX_VERSIONS:
            newest.setdefault(str(record.code.get("tree")), record)
    found: dict[str, set[str]] = {}
    for record in newest.values():
        try:
            with VersionFiles(Path(str(record.code["repository"]))) as versions:
                files = versions.read(record.version)
        except (ReliveError, OSError, KeyError):  # a version that is gone only lacks this convenience
            continue
        for variable, loop in _loops_of_version(record, files):
            found.setdefault(variable, set()).add(loop)
    return {variable: next(iter(loops)) for variable, loops in found.items() if len(loops) == 1}


def _loops_of_version(record: RunRecord, files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    known = _survey(record, files)
    for text in files.values():
        try:
            tree = parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            call = _loop_call(node.iter) if isinstance(node, ast.For) else None
            if isinstance(node, ast.For) and call is not None and (variable := _variable(node.target, call.args[1:])):
                yield variable, str(call.args[0].value)  # type: ignore[attr-defined]
        for one in instrument_loops(tree, known) if known is not None else ():
            if isinstance(one.node, ast.For) and (variable := _variable(one.node.target, [one.node.iter])):
                yield variable, one.name


def _survey(record: RunRecord, files: Mapping[str, str]) -> ProjectSurvey | None:
    """What is known of the functions of a project that was recorded hands-free; None if it was not."""
    script, root = record.code.get("script"), record.code.get("root")
    if not record.code.get("instrumented") or not script or not root or not Path(script).is_relative_to(root):
        return None
    entry = PurePosixPath(Path(script).relative_to(root)).as_posix()
    return survey_functions(reachable_files(entry, files.get).values())


def _loop_call(iterated: ast.expr) -> ast.Call | None:
    """The call in `for x in relive.loop("name", …)`, also inside other calls."""
    for node in ast.walk(iterated):
        if isinstance(node, ast.Call) and node.args and _last_name(node.func) == "loop":
            first = node.args[0]
            return node if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    return None


def _last_name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else str(getattr(function, "attr", ""))


def _variable(target: ast.expr, items: Sequence[ast.expr]) -> str | None:
    """The variable that has the value of the loop's column: the target, or what `enumerate` counts in its items."""
    if isinstance(target, ast.Name):
        return target.id
    calls = [node for item in items for node in ast.walk(item) if isinstance(node, ast.Call)]
    counts = any(_last_name(one.func) == "enumerate" and len(one.args) == 1 and not one.keywords for one in calls)
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    return first.id if counts and isinstance(first, ast.Name) else None
