"""Makes awkward programs into parts of other programs: state that `turn` changes, and `part_told` tells.

The state lies in a module of the project, in a closure of the script, or behind an object whose class is a library's.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.laws.awkward_source import ITERATIONS, PLAIN_HEAD, TORCH_HEAD, Awkward

PLACES = ("module", "closure", "library")

_MODULE = """
{unset}
{head}
{setup}
turns = 0

def turn():
    global turns, epoch{assigned}
    if turns >= {iterations}:
        return
    epoch, turns = turns, turns + 1
{body}

def part_told():
    try:
        return str({told})
    except (NameError, AttributeError, TypeError, KeyError, IndexError, OSError):
        return "not yet"
"""
_CLOSURE = """
def make_part():
{unset}
{head}
{setup}
    turns, epoch = 0, 0
    def turn():
        nonlocal turns, epoch{assigned}
        if turns >= {iterations}:
            return
        epoch, turns = turns, turns + 1
{body}
    def inner_told():
        try:
            return str({told})
        except (NameError, AttributeError, TypeError, KeyError, IndexError, OSError):
            return "not yet"
    return turn, inner_told
"""
_OBJECT = """
class Part:
    def __init__(self):
        self.turn, self.part_told = make_part()
"""


@dataclass(frozen=True)
class Part:
    """What a program gets by it: lines for its head, files beside it and in a library's folder, and two expressions."""

    name: str
    head: str
    turn: str
    told: str
    files: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def as_part(one: Awkward, place: str) -> Part:
    """The part that a program makes, in a place."""
    if place == "module":
        files = {**one.files, "part.py": _filled(_MODULE, one, 0)}
        return Part(f"{one.name} in a module", "import part", "part.turn()", "part.part_told()", files, {}, one.env)
    made = _filled(_CLOSURE, one, 4)
    if place == "closure":
        head = made + "part_turn, part_told = make_part()\n"
        return Part(f"{one.name} in a closure", head, "part_turn()", "part_told()", one.files, {}, one.env)
    outside = {"outside_part.py": made + _OBJECT}
    head = "import outside_part\npart = outside_part.Part()"
    return Part(f"{one.name} in a library", head, "part.turn()", "part.part_told()", one.files, outside, one.env)


def _filled(frame: str, one: Awkward, depth: int) -> str:
    assert one.pieces is not None
    setup, body, told = one.pieces
    head = TORCH_HEAD if one.needs_torch else PLAIN_HEAD
    if one.needs_torch:
        body = f"loss = learn()\n{body}"
    assigned = sorted(_assigned(body) - {"epoch"})
    unset = "\n".join(f"{name} = None" for name in assigned)
    return frame.format(
        head=textwrap.indent(head.strip(), " " * depth), setup=textwrap.indent(setup, " " * depth),
        unset=textwrap.indent(unset, " " * depth), assigned="".join(f", {name}" for name in assigned),
        iterations=ITERATIONS, body=textwrap.indent(body or "pass", " " * (depth + 4)), told=told,
    )  # fmt: skip


def _assigned(text: str) -> set[str]:
    """The names that code binds, at least."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            found.add(node.name or "_")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found
