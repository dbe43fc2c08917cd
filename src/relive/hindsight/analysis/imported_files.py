"""The files of a version whose code could run: those that the recorded run imported, if that is known."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from relive.hindsight.analysis.patched_source import Files
from relive.instrument import reachable_files

_MAX_REACHED = 500  # `reachable_files` stops there
# Ways to run a file that leave no trace in the imported modules.
_RUNS_FILES = re.compile(r"\brunpy\b|\bexec\(|\bexecfile\(|\bexec_module\(|\bspec_from_file_location\b|\bload_module\(")


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """What a run recorded of its imports; `is_complete`: it ended by itself, so that none is missing."""

    files: frozenset[str]
    is_complete: bool


def choose_imported(patched: Files, old: Files, entry: str, imports: ImportRecord | None) -> Files:
    """Returns the files that matter for a replay; all of them, if the run did not record its imports.

    All of them as well, if an imported file runs others in a way that is no import. To what was imported come the
    files that the patch imports in addition, and those that a run which was killed may have imported in its last
    moments: all that the imported ones name.
    """
    if imports is None:
        return patched
    chosen = {entry, *imports.files}
    changed = {file for file, text in patched.items() if text is not old.get(file)}
    if any(_RUNS_FILES.search(patched.get(file, "")) for file in chosen):
        return patched
    if not imports.is_complete:
        for file in (entry, *sorted(imports.files)):
            reached = reachable_files(file, patched.get)
            if len(reached) >= _MAX_REACHED:
                return patched
            chosen |= reached.keys()
    elif any(_import_statements(patched[file]) != _import_statements(old.get(file, "")) for file in chosen & changed):
        chosen |= reachable_files(entry, patched.get).keys() - reachable_files(entry, old.get).keys()
    return {file: text for file, text in patched.items() if file in chosen}


def _import_statements(text: str) -> set[str]:
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    return {ast.dump(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)}
