"""The cells of a run as a plain Python script: magics become Python or comments, and top-level await a call."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from relive.hindsight.notebooks.cell_file import RecordedCell, join_texts

_LOOP = "event_loop"
# Magics that only show something, or set up the notebook itself.
_OF_THE_NOTEBOOK = frozenset(
    "matplotlib load_ext reload_ext unload_ext autoreload config pylab pinfo pinfo2 who who_ls whos timeit precision "
    "pip conda mamba uv lsmagic quickref history page doctest_mode xmode colors automagic autosave".split()
)
_SHELLS = frozenset({"bash", "sh", "script"})
_FUTURE = re.compile(r"^from __future__ import .*$", re.MULTILINE)


@dataclass(slots=True)
class ScriptText:
    """A script, and what of the notebook is not in it."""

    text: str = ""
    left_out: list[str] = field(default_factory=list)  # cell and magic: "In [3]: %run other.py"


def write_script(cells: Sequence[RecordedCell], title: str) -> ScriptText:
    """Returns the cells in the order in which they were executed, as one script that needs no IPython."""
    script, modules, parts, future = ScriptText(), set[str](), [], dict[str, None]()
    for cell in cells:
        if not cell.is_python:
            continue
        future |= dict.fromkeys(_FUTURE.findall(cell.python))
        rest = msgspec.structs.replace(cell, python=_FUTURE.sub("", cell.python))
        text = _CellTranslator(rest, script, modules).translate()
        label = f"{cell.label}, before the run" if cell.is_before else cell.label
        parts.append((label, text))
    imports = "".join(f"import {name}\n" for name in sorted(modules - {"display"}))
    made = f"\n{_LOOP} = asyncio.new_event_loop()\n" if "asyncio" in modules else ""
    made += "\ndisplay = print\n" if "display" in modules else ""
    head = "".join(f"{line}\n" for line in (f'"""{title}"""', *future))
    script.text = f"{head}\n{imports}{made}\n{join_texts(parts)}"
    return script


class _CellTranslator:
    """Rewrites the text of one cell."""

    def __init__(self, cell: RecordedCell, script: ScriptText, modules: set[str]) -> None:
        self._cell = cell
        self._script = script
        self._modules = modules

    def translate(self) -> str:
        text = self._translate_text(self._cell.python)
        if not self._cell.error:
            return text
        # The kernel went on after the error, so the script does.
        self._modules |= {"contextlib"}
        body = ast.unparse(ast.parse(text))
        error = self._cell.error if hasattr(builtins, self._cell.error) else "Exception"
        indented = textwrap.indent(body, "    ")
        return f"with contextlib.suppress({error}):  # it failed in the notebook, too\n{indented or '    pass'}"

    def _translate_text(self, text: str) -> str:
        tree = ast.parse(text)
        edits: list[tuple[int, int, str]] = []
        offsets = _line_offsets(text)
        whole = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (name := _shell_call(node)):
                words = [str(ast.literal_eval(word)) for word in node.args]
                edits.append((*_span(node, offsets), self._replace(name, words, is_statement=id(node) in whole)))
            elif isinstance(node, ast.Name) and node.id == "display":
                self._modules.add("display")
        for node in _top_level(tree):
            if isinstance(node, ast.Await):
                self._modules.add("asyncio")
                start, end = _span(node, offsets)
                inner_start, _ = _span(node.value, offsets)
                edits += [(start, inner_start, f"{_LOOP}.run_until_complete("), (end, end, ")")]
            elif isinstance(node, ast.AsyncFor | ast.AsyncWith):
                self._script.left_out.append(f"{self._cell.label}: `async for` or `async with` outside of a function")
        data = text.encode()
        for start, end, new in sorted(edits, reverse=True):
            data = data[:start] + new.encode() + data[end:]
        return data.decode()

    def _replace(self, name: str, words: list[str], *, is_statement: bool) -> str:
        if name in ("system", "getoutput"):
            self._modules.add("subprocess")
            command = _command(words[0])
            if name == "system":
                return f"subprocess.run({command}, shell=True)"
            return f"subprocess.getoutput({command}).splitlines()"
        magic, line, *body = words
        made = self._translate_magic(magic, line, body[0] if body else None)
        if made is not None:
            return made
        shown = f"{'%%' if body else '%'}{magic} {line}".strip()
        if magic not in _OF_THE_NOTEBOOK:
            self._script.left_out.append(f"{self._cell.label}: {shown}")
        return f"pass  # {shown}" if is_statement else "None"

    def _translate_magic(self, magic: str, line: str, body: str | None) -> str | None:
        if magic == "env" and "=" in line:
            self._modules.add("os")
            name, _, value = line.partition("=")
            return f"os.environ.update({{{name.strip()!r}: {value.strip()!r}}})"
        if magic == "cd" and line:
            self._modules.add("os")
            return f"os.chdir(os.path.expanduser({line.strip()!r}))"
        if magic == "time" and body is None and line:
            return self._translate_text(line)
        if magic in ("capture", "time") and body is not None and not line:
            return self._translate_text(body).rstrip("\n")
        if magic in _SHELLS and body is not None:
            self._modules.add("subprocess")
            return f"subprocess.run({body!r}, shell=True, executable='/bin/bash')"
        if magic == "writefile" and body is not None:
            self._modules.add("pathlib")
            return f"pathlib.Path({line.strip()!r}).write_text({body!r})"
        return None


def _shell_call(node: ast.Call) -> str:
    """The method of `get_ipython()` that a call calls with texts; empty if it is another call."""
    func = node.func
    if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Call):
        return ""
    is_shell = isinstance(func.value.func, ast.Name) and func.value.func.id == "get_ipython"
    are_texts = bool(node.args) and all(isinstance(word, ast.Constant) for word in node.args)
    known = ("run_line_magic", "run_cell_magic", "system", "getoutput")
    return func.attr if is_shell and are_texts and func.attr in known else ""


def _command(text: str) -> str:
    """A command as an expression: IPython puts the values of variables in the place of `{name}`."""
    return f"f{text!r}" if re.search(r"\{\w+\}", text) else repr(text)


def _top_level(tree: ast.Module) -> list[ast.AST]:
    """All nodes outside of functions and classes."""
    found: list[ast.AST] = []
    todo: list[ast.AST] = [*tree.body]
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            found.append(node)
            todo.extend(ast.iter_child_nodes(node))
    return found


def _line_offsets(text: str) -> list[int]:
    offsets = [0]
    for line in text.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _span(node: ast.expr, offsets: Sequence[int]) -> tuple[int, int]:
    """Where a node begins and ends in the bytes of its text."""
    end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return offsets[node.lineno - 1] + node.col_offset, offsets[end_line - 1] + end
