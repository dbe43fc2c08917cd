"""State that added code itself keeps: variables of its own that outlive an iteration, and the loops that fill them."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from relive.hindsight.analysis.reads.expression_reads import chain_of

_PURE_METHODS = frozenset(
    "item tolist cpu detach numpy mean sum max min std norm abs size dim keys values items get format clone copy float "
    "double long int argmax argmin round split strip lower upper count index".split()
)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class AddedState:
    """`kept`: variables that added code carries from one iteration of a main loop to the next, or out of it.

    `lines` are those of all added statements in loops and functions: where these are, the loops have to run.
    `callbacks`: added functions that are handed to somebody else, who may call them in any loop.
    """

    kept: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    callbacks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Statement:
    """An added statement, without those inside it: where it stands, and what it does to names."""

    node: ast.stmt
    blocks: tuple[ast.AST, ...]  # the statements around it, the innermost last
    scope: ast.AST
    reads: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)  # to something new
    changes: set[str] = field(default_factory=set)  # what they were bound to before

    @property
    def block(self) -> ast.AST:
        return self.blocks[-1]

    def mentions(self, name: str) -> bool:
        return name in self.reads or name in self.binds or name in self.changes


def find_added_state(old: str | None, new: str, mains: Collection[int]) -> AddedState:
    """Finds the state that the statements keep by which a new text differs from an old one.

    `mains` are the lines of the main loops in the new text.
    """
    lines = added_lines(old or "", new)
    try:
        tree = ast.parse(new)
    except (SyntaxError, ValueError, RecursionError):
        return AddedState()
    added, old_names = [], set()
    for one in _statements(tree):
        if one.node.lineno in lines:
            added.append(one)
        else:
            old_names |= one.binds | {name for name in one.changes if "." in name} | _parameters(one.node)
    kept = [name for name in _own_names(added, old_names) if _is_kept(name, added, mains)]
    kept += [one.node.name for one in added if isinstance(one.node, _FUNCTIONS) and _has_mutable_default(one.node)]
    inside = [one.node.lineno for one in added if len(one.blocks) > 1 and not isinstance(one.node, _DEFINITIONS)]
    return AddedState(tuple(dict.fromkeys(kept)), tuple(inside), tuple(_callbacks(tree, lines)))


def has_callbacks(originals: Mapping[str, str | None], files: Mapping[str, str]) -> bool:
    """Whether functions were added to files that somebody else may call: a hook of a module, say."""
    return any(find_added_state(originals.get(file), text, ()).callbacks for file, text in files.items())


def _callbacks(tree: ast.Module, lines: Collection[int]) -> list[str]:
    """Returns added functions that are mentioned without being called, or return functions, and lambdas as arguments.

    What a key function or a comprehension's helper does is over when the call is; those that only compute count too,
    since a function may be kept by whoever gets it.
    """
    nodes = [node for node in ast.walk(tree) if getattr(node, "lineno", 0) in lines]
    made = {node.name: node for node in nodes if isinstance(node, _FUNCTIONS)}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    handed = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}
    found = [name for name, node in made.items() if name in handed and _changes_anything(node)]
    for call in (node for node in nodes if isinstance(node, ast.Call) and not _is_pure_call(node)):
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        found += ["a lambda" for one in given if isinstance(one, ast.Lambda) and _changes_anything(one)]
    return list(dict.fromkeys(found))


def _changes_anything(function: ast.AST) -> bool:
    """Whether a function does more than compute its result: it sets, fills or declares what is not its own."""
    inner = list(ast.walk(function))
    stored = (ast.Attribute, ast.Subscript)
    return any(
        isinstance(node, ast.Global | ast.Nonlocal)
        or (isinstance(node, stored) and not isinstance(node.ctx, ast.Load))
        or (isinstance(node, ast.Call) and bool(_changed_by_call(node)))
        for node in inner
    )


def _is_pure_call(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("sorted", "min", "max", "map", "filter", "sum")


def added_lines(old: str, new: str) -> frozenset[int]:
    """Returns the numbers of the lines that a new text has and an old one has not."""
    before, after = old.splitlines(), new.splitlines()
    found, at = [], 0
    for number, line in enumerate(after, 1):
        if at < len(before) and line == before[at]:
            at += 1
        else:
            found.append(number)
    if at == len(before):
        return frozenset(found)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)  # something was changed, too
    return frozenset(
        line
        for tag, _, _, first, last in matcher.get_opcodes()
        if tag != "equal"
        for line in range(first + 1, last + 1)
    )


def _is_kept(name: str, added: list[_Statement], mains: Collection[int]) -> bool:
    """Whether the value of a name outlives the execution of the block in which added code first binds it."""
    users = [one for one in added if one.mentions(name)]
    first, *others = users
    if name not in first.binds or name in first.reads | first.changes:
        return True
    in_main = any(_is_main(block, mains) for block in first.blocks)
    for one in others:
        is_inside = first.block in one.blocks and one.scope is first.scope
        is_changed = name in one.binds or name in one.changes
        if not is_inside and (is_changed or in_main or _is_changed_later(name, others)):
            return True
        if is_changed and any(_is_main(block, mains) for block in one.blocks[len(first.blocks) :]):
            return True
    return False


def _is_changed_later(name: str, others: list[_Statement]) -> bool:
    return any(name in one.binds or name in one.changes for one in others)


def _is_main(block: ast.AST, mains: Collection[int]) -> bool:
    return isinstance(block, _LOOPS) and block.lineno in mains


def _own_names(added: list[_Statement], old_names: set[str]) -> list[str]:
    """The variables and attributes that only added code sets, in the order in which it does."""
    found = dict.fromkeys(name for one in added for name in (*sorted(one.binds), *sorted(one.changes)))
    own = {name for one in added for name in one.binds} | {name for name in found if "." in name}
    return [name for name in found if name in own - old_names]


def _statements(tree: ast.Module) -> Iterator[_Statement]:
    def visit(parent: ast.AST, blocks: tuple[ast.AST, ...], scope: ast.AST) -> Iterator[_Statement]:
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.stmt):
                one = _Statement(child, blocks, scope)
                _collect(child, one)
                yield one
                inner = child if isinstance(child, _DEFINITIONS) else scope
                yield from visit(child, (*blocks, child), inner)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                yield from visit(child, blocks, scope)

    yield from visit(tree, (tree,), tree)


def _collect(statement: ast.stmt, into: _Statement) -> None:
    """Collects what a statement does to names, without the statements inside it."""
    if isinstance(statement, _DEFINITIONS):
        into.binds.add(statement.name)
    elif isinstance(statement, ast.Global | ast.Nonlocal):
        into.changes |= set(statement.names)
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        return
    elif isinstance(statement, ast.AugAssign):
        into.changes |= _stored(statement.target)
    for node in _own_nodes(statement):
        if isinstance(node, ast.Name):
            is_augmented = isinstance(statement, ast.AugAssign) and node is statement.target
            if isinstance(node.ctx, ast.Load):
                into.reads.add(node.id)
            elif not is_augmented:
                into.binds.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            into.changes |= _stored(node)
        elif isinstance(node, ast.Call) and (owner := _changed_by_call(node)):
            into.changes.add(owner)
    local = {name for node in _own_nodes(statement) for name in _names_of_its_own(node)}
    into.binds -= local
    into.reads -= local


def _names_of_its_own(node: ast.AST) -> set[str]:
    """The variables of a comprehension or a lambda, which nothing outside of it sees."""
    if isinstance(node, ast.comprehension):
        return {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
    return (
        {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)} if isinstance(node, ast.Lambda) else set()
    )


def _changed_by_call(call: ast.Call) -> str:
    """Returns the variable whose object a method call may change; empty if there is none."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr in _PURE_METHODS:
        return ""
    chain = chain_of(call.func.value)
    return chain[0] if chain is not None else ""


def _stored(target: ast.AST) -> set[str]:
    """`total` → itself; `self.old` → the attribute of its own name, as `.old`; `table[key]` → the table."""
    if isinstance(target, ast.Attribute):
        return {f".{target.attr}"}
    while isinstance(target, ast.Subscript):
        target = target.value
    chain = chain_of(target)
    return {chain[0] if len(chain) == 1 else f".{chain[-1]}"} if chain else set()


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        yield node
        inside = (ast.stmt, ast.ExceptHandler, ast.match_case)
        left += [child for child in ast.iter_child_nodes(node) if not isinstance(child, inside)]


def _parameters(node: ast.stmt) -> set[str]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    given = node.args
    extra = [one for one in (given.vararg, given.kwarg) if one is not None]
    return {one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs, *extra]}


def _has_mutable_default(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
    return any(isinstance(one, ast.List | ast.Dict | ast.Set | ast.Call) for one in defaults)
