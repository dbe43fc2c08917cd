"""A layout-independent hash of a code object: from its syntax tree, or from its bytecode if there is no source."""

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
from relive.memo.code.name_mutations import Place, find_mutated_and_read

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_IGNORED_FIELDS = frozenset({"type_comment", "type_ignores", "kind"})
# Splitting statements over lines changes the NOPs, and with them the lengths of jumps.
_IGNORED_OPCODES = frozenset({"NOP", "EXTENDED_ARG", "CACHE"})
_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})

Chain = tuple[str, ...]  # a global name followed by attributes: ("helpers", "clean")


@dataclass(frozen=True, slots=True)
class NameUses:
    """The names that code uses but does not define."""

    chains: tuple[Chain, ...]
    imports: tuple[tuple[str, int], ...]  # modules imported at run time, with the number of leading dots
    mutated: frozenset[Place]  # globals and closure variables, or attributes of them, that it rebinds or mutates
    read: frozenset[Place]  # those that it reads, and ("", attribute) for every attribute that it reads
    texts: tuple[tuple[Chain, str | None, str | None], ...]  # the constant or global that a chain is used with
    bare_calls: frozenset[Chain]  # chains that are called without arguments
    strings: frozenset[str]  # all constants that are text


def code_hash(code: CodeType) -> str:
    """Returns a hash that ignores layout, comments and docstrings."""
    node = _find_source_node(code)
    return _syntax_hash(node) if node is not None else _bytecode_hash(code)


@functools.lru_cache(maxsize=4096)
def _syntax_hash(node: _Function) -> str:
    return stable_hash(("syntax", _canonical_tree(node)))


@functools.lru_cache(maxsize=4096)
def _bytecode_hash(code: CodeType) -> str:
    return stable_hash(("bytecode", _canonical_instructions(code)))


@functools.lru_cache(maxsize=4096)
def find_uses(code: CodeType) -> NameUses:
    """Returns what a function and its nested functions look up in globals or import."""
    chains: set[Chain] = set()
    imports: set[tuple[str, int]] = set()
    mutated: set[Place] = set()
    read: set[Place] = set()
    texts: set[tuple[Chain, str | None, str | None]] = set()
    bare_calls: set[Chain] = set()
    strings: set[str] = set()
    cell_variables: frozenset[str] = frozenset()
    for inner in _nested_code(code):
        found = [step for step in dis.get_instructions(inner) if step.opname not in _IGNORED_OPCODES]
        cell_variables |= frozenset(inner.co_cellvars)
        names = find_mutated_and_read(found, cell_variables)
        mutated |= names[0]
        read |= names[1]
        strings |= {constant for constant in inner.co_consts if isinstance(constant, str)}
        for at, step in enumerate(found):
            if step.opname in _GLOBAL_LOADS:
                chain = (str(step.argval), *_attribute_chain(found, at + 1))
                chains.add(chain)
                texts.add((chain, *_text_beside(found, at, len(chain))))
                if _is_bare_call(found, at + len(chain)):
                    bare_calls.add(chain)
            elif step.opname == "IMPORT_NAME":
                imports.add((str(step.argval), _import_level(found, at)))
    return NameUses(
        tuple(sorted(chains)), tuple(sorted(imports)), frozenset(mutated), frozenset(read),
        tuple(sorted(texts, key=repr)), frozenset(bare_calls), frozenset(strings),
    )  # fmt: skip


def _text_beside(steps: list[dis.Instruction], at: int, length: int) -> tuple[str | None, str | None]:
    """Returns the constant, or the name of the global, that a chain is called, indexed or searched with."""
    after = steps[at + length] if at + length < len(steps) else None
    if after is not None and after.opname == "CONTAINS_OP" and at:
        after = steps[at - 1]
    if after is not None and after.opname == "LOAD_CONST" and isinstance(after.argval, str):
        return after.argval, None
    return None, str(after.argval) if after is not None and after.opname in _GLOBAL_LOADS else None


def _is_bare_call(steps: list[dis.Instruction], at: int) -> bool:
    return at < len(steps) and steps[at].opname in ("PRECALL", "CALL") and steps[at].arg == 0


def source_hash(text: str) -> str:
    """Returns the layout-independent hash of a source file."""
    try:
        return stable_hash(("module", _canonical_tree(syntax_tree.parse(text))))
    except (SyntaxError, ValueError):
        return digest(text.encode("utf-8", "surrogatepass"))


def find_imports(text: str) -> tuple[tuple[str, int], ...]:
    """Returns the modules that a source file imports anywhere, with the number of leading dots."""
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


def _nested_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_code(constant)


def _attribute_chain(steps: list[dis.Instruction], at: int) -> Iterator[str]:
    while at < len(steps) and steps[at].opname in _ATTRIBUTE_LOADS:
        yield str(steps[at].argval)
        at += 1


def _import_level(steps: list[dis.Instruction], at: int) -> int:
    """Returns the number of leading dots, which is loaded two instructions before the import."""
    level = steps[at - 2].argval if at >= 2 else 0
    return level if type(level) is int else 0


# --- source ----------------------------------------------------------------------------------------------------------


def _find_source_node(code: CodeType) -> _Function | None:
    """Returns the syntax node that this code was compiled from, or None if that is uncertain.

    The file may have been edited since, so its current text is compiled and compared with the code.
    """
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    position = (code.co_firstlineno, code.co_name)
    codes, nodes = _parse_source(text) if text else ({}, {})
    if len(nodes.get(position, ())) != 1 or code not in codes.get(position, ()):
        return None
    node: _Function = nodes[position][0]
    return node


_BySourcePosition = dict[tuple[int, str], list[Any]]  # by first line and name


@functools.lru_cache(maxsize=64)
def _parse_source(text: str) -> tuple[_BySourcePosition, _BySourcePosition]:
    codes: _BySourcePosition = {}
    nodes: _BySourcePosition = {}
    try:
        tree = syntax_tree.parse(text)
        for inner in _nested_code(compile(text, "<source>", "exec", dont_inherit=True)):
            codes.setdefault((inner.co_firstlineno, inner.co_name), []).append(inner)
    except (SyntaxError, ValueError, RecursionError):
        return {}, {}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            decorators = getattr(node, "decorator_list", ())
            first = decorators[0].lineno if decorators else node.lineno
            nodes.setdefault((first, getattr(node, "name", "<lambda>")), []).append(node)
    return codes, nodes


def _canonical_tree(node: Any, *, is_outermost: bool = True) -> object:
    """Returns a tree as plain values, without positions, docstrings and absent fields.

    Defaults and decorators of the outermost function are left out: their run-time values are hashed instead.
    """
    if isinstance(node, list):
        return [_canonical_tree(item, is_outermost=False) for item in node]
    if not isinstance(node, ast.AST):
        return node
    fields = []
    for name, value in ast.iter_fields(node):
        if value is None and not isinstance(node, ast.Constant):
            continue
        if value == [] or name in _IGNORED_FIELDS or (is_outermost and name in ("name", "decorator_list")):
            continue
        if name == "args" and is_outermost and isinstance(value, ast.arguments):
            value = _without_defaults(value)
        elif name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            value = value[1:] if ast.get_docstring(node, clean=False) is not None else value
        fields.append((name, _canonical_tree(value, is_outermost=False)))
    return type(node).__name__, fields


def _without_defaults(args: ast.arguments) -> ast.arguments:
    return ast.arguments(
        posonlyargs=args.posonlyargs, args=args.args, vararg=args.vararg, kwonlyargs=args.kwonlyargs,
        kw_defaults=[], kwarg=args.kwarg, defaults=[],
    )  # fmt: skip


# --- bytecode --------------------------------------------------------------------------------------------------------


def _canonical_instructions(code: CodeType) -> object:
    """Returns instructions with resolved arguments instead of indices, and jump targets as instruction numbers."""
    bytecode = dis.Bytecode(code)
    steps = [step for step in bytecode if step.opname not in _IGNORED_OPCODES]
    offsets = [step.offset for step in steps]

    def number(offset: int) -> int:
        return sum(1 for other in offsets if other < offset) if offset not in numbers else numbers[offset]

    numbers = {offset: at for at, offset in enumerate(offsets)}
    resolved = [(step.opname, _canonical_argument(step, number)) for step in steps]
    entries: list[Any] = getattr(bytecode, "exception_entries", [])
    caught = [[number(e.start), number(e.end), number(e.target), e.depth, bool(e.lasti)] for e in entries]
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return resolved, caught, shape, code.co_varnames, code.co_freevars, code.co_cellvars


def _canonical_argument(step: dis.Instruction, number: Any) -> object:
    if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
        return number(step.argval)
    if step.opcode in dis.hasconst:
        return _canonical_constant(step.argval)
    if step.opcode in dis.hasname or step.opcode in dis.haslocal or step.opcode in dis.hasfree:
        return step.argval if isinstance(step.argval, tuple) else str(step.argval)
    return step.arg


def _canonical_constant(value: object) -> object:
    if isinstance(value, CodeType):
        return ("code", _canonical_instructions(value))
    if isinstance(value, tuple):
        return tuple(map(_canonical_constant, value))
    return value
