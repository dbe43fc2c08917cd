"""What the functions of a project do, and which of its files belong to a script: known before a loop can be judged."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from relive import syntax_tree
from relive.instrument.call_facts import CallFacts, counts_training, facts_of

MAX_FILES = 500
Read = Callable[[str], str | None]  # the text of a file below the root; None when there is none


@dataclass(frozen=True, slots=True)
class Survey:
    """Functions (`f:name`) and methods (`m:name`) of a project that train, make optimizers, or hold a training loop."""

    trainers: frozenset[str] = frozenset()
    makers: frozenset[str] = frozenset()
    loopers: frozenset[str] = frozenset()

    def trains(self, facts: CallFacts) -> bool:
        return facts.trains or bool(facts.calls & self.trainers)

    def makes(self, facts: CallFacts) -> bool:
        return facts.makes or bool(facts.calls & self.makers)


def survey(texts: Iterable[str]) -> Survey:
    """Look through the files of a project; what can't be parsed tells nothing."""
    functions: list[tuple[str, CallFacts, bool]] = []
    for text in texts:
        tree = parsed(text)
        if tree is not None:
            functions += _functions(tree, modules_in(tree))
    trainers = _closure(functions, {key for key, facts, _ in functions if facts.trains})
    makers = _closure(functions, {key for key, facts, _ in functions if facts.makes})
    known = Survey(trainers, makers)
    holders = {key for key, facts, has_loop in functions if has_loop and known.trains(facts)}
    return Survey(trainers, makers, _closure(functions, holders))


def parsed(text: str) -> ast.Module | None:
    try:
        return syntax_tree.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def modules_in(tree: ast.Module) -> frozenset[str]:
    """The names by which a file knows modules, as far as its imports tell."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names if alias.name.islower()}
    return frozenset(found)


def _functions(tree: ast.Module, modules: frozenset[str]) -> Iterator[tuple[str, CallFacts, bool]]:
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, in_class = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            key = f"{'m' if in_class else 'f'}:{node.name}"
            yield key, facts_of(node.body, modules), _has_training_loop(node)
        inside = isinstance(node, ast.ClassDef)
        todo += [(child, inside or (in_class and isinstance(node, ast.If))) for child in ast.iter_child_nodes(node)]


def _has_training_loop(function: ast.AST) -> bool:
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    return any(counts_training(loop) or facts_of(loop.body, frozenset()).trains for loop in loops)


def _closure(functions: list[tuple[str, CallFacts, bool]], known: set[str]) -> frozenset[str]:
    """Those, and all that call one of them, over any number of calls."""
    while True:
        more = {key for key, facts, _ in functions if key not in known and facts.calls & known}
        if not more:
            return frozenset(known)
        known = known | more


# --- which files ------------------------------------------------------------------------------------------------------


def reachable(entry: str, read: Read) -> Mapping[str, str]:
    """The files of a project that a script imports, directly or not, by path; itself first."""
    folder = PurePosixPath(entry).parent
    found: dict[str, str] = {}
    todo = [entry]
    while todo and len(found) < MAX_FILES:
        path = todo.pop()
        text = read(path) if path not in found else None
        if text is None:
            continue
        found[path] = text
        tree = parsed(text)
        if tree is not None:
            todo += [option for name in _imported(tree, path) for option in _candidates(name, folder)]
    return found


def _imported(tree: ast.Module, path: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = PurePosixPath(path).parts[:-1]
                above = package[: len(package) - (node.level - 1)]
                base = "/" + ".".join([*above, base] if base else above)  # from the root, whatever the script's folder
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _candidates(name: str, folder: PurePosixPath) -> Iterator[str]:
    """Where a module may be: beside the script, at the root, or in `src`."""
    parts = [part for part in name.removeprefix("/").split(".") if part]
    if not parts:
        return
    bases = [PurePosixPath()] if name.startswith("/") else [folder, PurePosixPath(), PurePosixPath("src")]
    for base in dict.fromkeys(bases):
        for end in range(1, len(parts) + 1):  # the packages on the way are imported too
            module = base.joinpath(*parts[:end])
            yield f"{module}.py"
            yield f"{module}/__init__.py"
