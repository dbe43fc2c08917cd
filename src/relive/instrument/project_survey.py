"""Which functions of a project train or create optimizers, and which files a script imports."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from relive import syntax_tree
from relive.instrument.call_facts import CallFacts, collect_facts, has_training_counter

MAX_FILES = 500
Read = Callable[[str], str | None]  # returns the text of a file below the root, or None if there is no such file


@dataclass(frozen=True, slots=True)
class ProjectSurvey:
    """Functions (`f:name`) and methods (`m:name`) that train, create optimizers, or contain a training loop."""

    trainers: frozenset[str] = frozenset()
    optimizer_makers: frozenset[str] = frozenset()
    loop_holders: frozenset[str] = frozenset()

    def trains(self, facts: CallFacts) -> bool:
        return facts.trains or bool(facts.calls & self.trainers)

    def creates_optimizer(self, facts: CallFacts) -> bool:
        return facts.creates_optimizer or bool(facts.calls & self.optimizer_makers)


def survey_functions(texts: Iterable[str]) -> ProjectSurvey:
    """Surveys the functions of some files; files that can't be parse_or_none are skipped."""
    functions: list[tuple[str, CallFacts, bool]] = []
    for text in texts:
        tree = parse_or_none(text)
        if tree is not None:
            functions += _function_facts(tree, modules_in(tree))
    trainers = _add_callers(functions, {key for key, facts, _ in functions if facts.trains})
    optimizer_makers = _add_callers(functions, {key for key, facts, _ in functions if facts.creates_optimizer})
    known = ProjectSurvey(trainers, optimizer_makers)
    holders = {key for key, facts, has_loop in functions if has_loop and known.trains(facts)}
    return ProjectSurvey(trainers, optimizer_makers, _add_callers(functions, holders))


def parse_or_none(text: str) -> ast.Module | None:
    """Parses a file; None if it is not valid Python."""
    try:
        return syntax_tree.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def modules_in(tree: ast.Module) -> frozenset[str]:
    """Returns the names that a file binds to modules, judged by its imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
    return frozenset(found)


def _function_facts(tree: ast.Module, modules: frozenset[str]) -> Iterator[tuple[str, CallFacts, bool]]:
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, in_class = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            key = f"{'m' if in_class else 'f'}:{node.name}"
            yield key, collect_facts(node.body, modules), _has_training_loop(node)
        inside = isinstance(node, ast.ClassDef)
        todo += [(child, inside or (in_class and isinstance(node, ast.If))) for child in ast.iter_child_nodes(node)]


def _has_training_loop(function: ast.AST) -> bool:
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    return any(has_training_counter(loop) or collect_facts(loop.body, frozenset()).trains for loop in loops)


def _add_callers(functions: list[tuple[str, CallFacts, bool]], known: set[str]) -> frozenset[str]:
    """Returns the known functions and all functions that call one of them, directly or indirectly."""
    while True:
        more = {key for key, facts, _ in functions if key not in known and facts.calls & known}
        if not more:
            return frozenset(known)
        known = known | more


# --- which files ------------------------------------------------------------------------------------------------------


def reachable_files(entry: str, read: Read) -> Mapping[str, str]:
    """Returns the files of a project that a script imports, directly or not, by path; the script comes first."""
    folder = PurePosixPath(entry).parent
    found: dict[str, str] = {}
    todo = [entry]
    while todo and len(found) < MAX_FILES:
        path = todo.pop()
        text = read(path) if path not in found else None
        if text is None:
            continue
        found[path] = text
        tree = parse_or_none(text)
        if tree is not None:
            todo += [option for name in _imported_modules(tree, path) for option in _candidate_paths(name, folder)]
    return found


def _imported_modules(tree: ast.Module, path: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = PurePosixPath(path).parts[:-1]
                above = package[: len(package) - (node.level - 1)]
                base = "/" + ".".join(
                    [*above, base] if base else above
                )  # relative to the root, not to the script's folder
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _candidate_paths(name: str, folder: PurePosixPath) -> Iterator[str]:
    """Yields the paths a module may have: beside the script, at the root, or in `src`."""
    parts = [part for part in name.removeprefix("/").split(".") if part]
    if not parts:
        return
    bases = [PurePosixPath()] if name.startswith("/") else [folder, PurePosixPath(), PurePosixPath("src")]
    for base in dict.fromkeys(bases):
        for end in range(1, len(parts) + 1):  # the parent packages are imported too
            module = base.joinpath(*parts[:end])
            yield f"{module}.py"
            yield f"{module}/__init__.py"
