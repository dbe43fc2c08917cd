"""Laws that hold for any two programs: no old line changes, the result parses, every name is assigned."""

from __future__ import annotations

import ast
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from relive.transplant import transplant
from relive.transplant.results import Transplant

NAMES = "abcdefgh"


class Program:
    """A random program that runs, as lines with their indentation; its `log` lines are to be carried."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[tuple[int, str]] = [(0, "a = 1")]
        self.functions = 0

    def write(self, known: list[str], depth: int, length: int) -> None:
        """Writes a block that binds names using names that are surely assigned."""
        known = list(known)
        for _ in range(length):
            choice = self.random.random()
            name, other = self.random.choice(NAMES), self.random.choice(known)
            if choice < 0.45 or depth > 2:
                self.lines.append((depth, f"{name} = {other} + {self.random.randrange(90)}"))
                known.append(name)
            elif choice < 0.6:
                self.lines.append((depth, f"note({self.random.randrange(90)}, {other})"))
            elif choice < 0.8:
                head = [
                    f"if {other} > {self.random.randrange(90)}:",
                    f"for {name} in range({self.random.randrange(1, 3)}):",
                ]
                self.lines.append((depth, self.random.choice(head)))
                inner = [*known, name] if self.lines[-1][1].startswith("for") else known
                self.write(inner, depth + 1, self.random.randrange(1, 4))
            else:
                self.functions += 1
                function = f"function_{self.functions}"
                self.lines.append((depth, f"def {function}({name}):"))
                self.write([name], depth + 1, self.random.randrange(1, 4))
                self.lines.append((depth, f"{function}({other})"))
            if self.random.random() < 0.3:
                self.lines.append((depth, f"log({self.random.choice(known)!r}, {self.random.choice(known)})"))

    def text(self, kept: set[int], indent: str) -> str:
        lines = []
        for number, (depth, line) in enumerate(self.lines):
            following = self.lines[number + 1][0] if number + 1 < len(self.lines) else 0
            opens = line.endswith(":")
            if number in kept or opens:
                lines.append(indent * depth + line)
            if opens and following > depth:
                lines.append(indent * (depth + 1) + "pass")
        return "\n".join(lines) + "\n"


def pair(seed: int) -> tuple[str, str, list[int]]:
    """Returns an old program, a new one with more statements, and the lines of the new one's logs."""
    program = Program(seed)
    program.write(["a"], 0, 12)
    new = program.text(set(range(len(program.lines))), "    ")
    assert unbound(new) is None
    dice = random.Random(seed + 1)
    kept = {number for number, (_, line) in enumerate(program.lines) if not line.startswith("log")}
    for number in dice.sample(sorted(kept), min(8, len(kept))):
        if unbound(program.text(kept - {number}, "    ")) is None:
            kept.remove(number)
    old = program.text(kept, dice.choice(["  ", "\t", "    "]))
    return old, new, [number for number, line in enumerate(new.splitlines(), 1) if line.strip().startswith("log(")]


def unbound(text: str) -> str | None:
    """Returns the name that is unassigned when the program runs, if there is one."""
    try:
        exec(compile(text, "a.py", "exec"), {"log": lambda *_: None, "note": lambda *_: None})
    except (NameError, UnboundLocalError) as error:
        return str(error)
    return None


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_no_old_line_changes_and_the_result_parses(seed: int):
    old, new, lines = pair(seed)
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", line) for line in lines])
    patched = result.files.get("a.py", old)

    kept = [line for number, line in enumerate(patched.splitlines(keepends=True), 1) if number not in added(result)]
    assert "".join(kept) == old
    ast.parse(patched)
    assert len(result.landings) + len(result.refusals) == len(lines)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_every_name_is_assigned(seed: int):
    old, new, lines = pair(seed)
    for line in lines:
        result = transplant({"a.py": old}, {"a.py": new}, [("a.py", line)])

        assert unbound(result.files.get("a.py", old)) is None


def added(result: Transplant) -> set[int]:
    return set(result.added.get("a.py", ()))


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet="ab:;()[]'\"\\\n\r\t #=if@\x0c", max_size=60),
    st.text(alphabet="ab:;()[]'\"\\\n\t #=if@", max_size=60),
)
def test_any_text_can_be_transplanted_and_no_old_text_is_lost(old: str, new: str):
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 1), ("a.py", 2)])

    for text in result.files.values():
        remaining = iter(text)
        assert all(letter in remaining for letter in old)
