"""What a piece of code says, however it is laid out: its syntax tree, or its bytecode where there is no source."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from relive import syntax_tree
from relive.hashing import digest, stable_hash
from relive.memo.code.name_mutations import changed_and_read

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_MUTE = frozenset({"type_comment", "type_ignores", "kind"})
# Laid out over several lines, the same statements get other NOPs, and with them longer or shorter jumps.
_SILENT = frozenset({"NOP", "EXTENDED_ARG", "CACHE"})
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})

Chain = tuple[str, ...]  # a global name, and the attributes that are taken from it: ("helpers", "clean")


@dataclass(frozen=True, slots=True)
class Uses:
    """The names that code looks up outside of itself."""

    chains: tuple[Chain, ...]
    imports: tuple[tuple[str, int], ...]  # modules that it imports when it runs, with their level of dots
    changed: frozenset[str]  # names of globals and of the closure whose values it changes
    read: frozenset[str]  # those that it looks at


def code_hash(code: CodeType) -> str:
    """The same for code that differs in layout, comments and docstrings only."""
    node = _node_of(code)
    return _syntax_hash(node) if node is not None else _bytecode_hash(code)


@functools.lru_cache(maxsize=4096)
def _syntax_hash(node: _Function) -> str:
    return stable_hash(("syntax", _told(node)))


@functools.lru_cache(maxsize=4096)
def _bytecode_hash(code: CodeType) -> str:
    return stable_hash(("bytecode", _instructions(code)))


@functools.lru_cache(maxsize=4096)
def uses(code: CodeType) -> Uses:
    """What a function, and those inside of it, look up in the globals or import."""
    chains: set[Chain] = set()
    imports: set[tuple[str, int]] = set()
    changed: set[str] = set()
    read: set[str] = set()
    owned: frozenset[str] = frozenset()
    for inner in _with_inner(code):
        found = [step for step in dis.get_instructions(inner) if step.opname not in _SILENT]
        owned |= frozenset(inner.co_cellvars)
        names = changed_and_read(found, owned)
        changed |= names[0]
        read |= names[1]
        for at, step in enumerate(found):
            if step.opname in _GLOBAL:
                chains.add((str(step.argval), *_attributes(found, at + 1)))
            elif step.opname == "IMPORT_NAME":
                imports.add((str(step.argval), _level(found, at)))
    return Uses(tuple(sorted(chains)), tuple(sorted(imports)), frozenset(changed), frozenset(read))


def text_hash(text: str) -> str:
    """The hash of a whole file of source."""
    try:
        return stable_hash(("module", _told(syntax_tree.parse(text))))
    except (SyntaxError, ValueError):
        return digest(text.encode("utf-8", "surrogatepass"))


def imports_of(text: str) -> tuple[tuple[str, int], ...]:
    """The modules that a file of source imports anywhere, with their level of dots."""
    found: set[tuple[str, int]] = set()
    try:
        tree = syntax_tree.parse(text)
    except (SyntaxError, ValueError):
        return ()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, 0) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
            found |= {(name, node.level) for name in (node.module or "", *names)}
    return tuple(sorted(found))


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _attributes(steps: list[dis.Instruction], at: int) -> Iterator[str]:
    while at < len(steps) and steps[at].opname in _ATTRIBUTE:
        yield str(steps[at].argval)
        at += 1


def _level(steps: list[dis.Instruction], at: int) -> int:
    """The number of dots stands two constants before the import."""
    level = steps[at - 2].argval if at >= 2 else 0
    return level if type(level) is int else 0


# --- source ----------------------------------------------------------------------------------------------------------


def _node_of(code: CodeType) -> _Function | None:
    """The function in the source that this code was compiled from, if that is beyond doubt.

    The file may have been edited since, so what stands there now is compiled again and compared.
    """
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    place = (code.co_firstlineno, code.co_name)
    codes, nodes = _parsed(text) if text else ({}, {})
    if len(nodes.get(place, ())) != 1 or code not in codes.get(place, ()):
        return None
    node: _Function = nodes[place][0]
    return node


_Places = dict[tuple[int, str], list[Any]]  # by first line and name


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[_Places, _Places]:
    codes: _Places = {}
    nodes: _Places = {}
    try:
        tree = syntax_tree.parse(text)
        for inner in _with_inner(compile(text, "<source>", "exec", dont_inherit=True)):
            codes.setdefault((inner.co_firstlineno, inner.co_name), []).append(inner)
    except (SyntaxError, ValueError, RecursionError):
        return {}, {}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            decorators = getattr(node, "decorator_list", ())
            first = decorators[0].lineno if decorators else node.lineno
            nodes.setdefault((first, getattr(node, "name", "<lambda>")), []).append(node)
    return codes, nodes


def _told(node: Any, *, is_outermost: bool = True) -> object:
    """A tree as plain values: no places, no docstrings, nothing that is absent.

    Defaults and decorators of the outermost function are left out: what they came to is looked at instead.
    """
    if isinstance(node, list):
        return [_told(item, is_outermost=False) for item in node]
    if not isinstance(node, ast.AST):
        return node
    fields = []
    for name, value in ast.iter_fields(node):
        if value is None and not isinstance(node, ast.Constant):
            continue
        if value == [] or name in _MUTE or (is_outermost and name in ("name", "decorator_list")):
            continue
        if name == "args" and is_outermost and isinstance(value, ast.arguments):
            value = _without_defaults(value)
        elif name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            value = value[1:] if ast.get_docstring(node, clean=False) is not None else value
        fields.append((name, _told(value, is_outermost=False)))
    return type(node).__name__, fields


def _without_defaults(args: ast.arguments) -> ast.arguments:
    return ast.arguments(
        posonlyargs=args.posonlyargs, args=args.args, vararg=args.vararg, kwonlyargs=args.kwonlyargs,
        kw_defaults=[], kwarg=args.kwarg, defaults=[],
    )  # fmt: skip


# --- bytecode --------------------------------------------------------------------------------------------------------


def _instructions(code: CodeType) -> object:
    """Instructions with what they mean instead of where it lies; jumps by the number of the instruction they go to."""
    read = dis.Bytecode(code)
    steps = [step for step in read if step.opname not in _SILENT]
    offsets = [step.offset for step in steps]

    def number(offset: int) -> int:
        return sum(1 for other in offsets if other < offset) if offset not in places else places[offset]

    places = {offset: at for at, offset in enumerate(offsets)}
    told = [(step.opname, _argument(step, number)) for step in steps]
    entries: list[Any] = getattr(read, "exception_entries", [])
    caught = [[number(e.start), number(e.end), number(e.target), e.depth, bool(e.lasti)] for e in entries]
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return told, caught, shape, code.co_varnames, code.co_freevars, code.co_cellvars


def _argument(step: dis.Instruction, number: Any) -> object:
    if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
        return number(step.argval)
    if step.opcode in dis.hasconst:
        return _constant(step.argval)
    if step.opcode in dis.hasname or step.opcode in dis.haslocal or step.opcode in dis.hasfree:
        return step.argval if isinstance(step.argval, tuple) else str(step.argval)
    return step.arg


def _constant(value: object) -> object:
    if isinstance(value, CodeType):
        return ("code", _instructions(value))
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    return value
