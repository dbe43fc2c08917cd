"""The source of a file as it was recorded, in which the loops are chosen also after statements were added to it."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass, replace

from relive.instrument.loop_selection import Loop, LoopChoice, choose_loops
from relive.instrument.project_survey import ProjectSurvey, parse_or_none


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """The text of a file as it was recorded, and with the added statements; `recorded` is None for an added file."""

    recorded: str | None
    patched: str

    def choose_loops(self, tree: ast.Module, known: ProjectSurvey) -> list[LoopChoice]:
        """Returns the loops of the patched tree that are chosen in the recorded source, with the same names."""
        original = parse_or_none(self.recorded) if self.recorded is not None else None
        if original is None:
            return []
        loops: dict[int, list[Loop]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.For | ast.While):
                loops.setdefault(node.lineno, []).append(node)
        lines = self._line_numbers()
        found = [(choice, loops.get(lines.get(choice.line, 0), [])) for choice in choose_loops(original, known)]
        return [
            replace(choice, node=node)
            for choice, nodes in found
            for node in nodes[:1]
            if type(node) is type(choice.node)
        ]

    def _line_numbers(self) -> dict[int, int]:
        """Maps the lines of the recorded text to those of the patched one."""
        before, after = (self.recorded or "").splitlines(), self.patched.splitlines()
        blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
        return {block.a + at + 1: block.b + at + 1 for block in blocks for at in range(block.size)}
