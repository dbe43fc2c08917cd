"""Outputs that pages of the docs show, and what of them may differ from one execution to the next."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

ANY = "…"  # on a line of its own: any lines; inside of a line: any text

# What is measured or random. Whole numbers stay: they count what happened.
_MASKS = (
    (r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?|\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b\d[\d,]*(?:\.\d+)? ?(?:µs|ms|s|min|h|B|kB|MB|GB)\b", "AMOUNT"),
    (r"(?<![\w.])-?\d+(?:\.\d+)+(?:e[+-]?\d+)?|(?<![\w.])-?\d+e[+-]\d+", "NUMBER"),
    (r"\b[0-9a-f]{8,64}\b", "ID"),
    (r"\b(\d+) workers?\b", "N workers"),  # as many as the machine has processors
    (r"\bsegments \d+\b", "segments N"),
    (r"[ \t]+", " "),  # columns are as wide as their values
)
_PROGRESS = re.compile(r"replaying: \d+.*")  # a bar at a terminal, which leaves nothing behind


@dataclass(frozen=True)
class Output:
    """What a page says that a block prints, and the lines of the page where it says so (from 0, end excluded)."""

    text: str
    begin: int
    end: int


def find_output(lines: list[str], after: int) -> Output | None:
    """The indented block, or the fenced one of no language, that stands directly behind a line."""
    begin = after
    while begin < len(lines) and not lines[begin].strip():
        begin += 1
    if begin < len(lines) and re.fullmatch(r"`{3,}(text)?", lines[begin]):
        end = lines.index(lines[begin][: lines[begin].rindex("`") + 1], begin + 1)
        return Output("\n".join(lines[begin + 1 : end]), begin, end + 1)
    end = begin
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
        end += 1
    while end > begin and not lines[end - 1].strip():
        end -= 1
    text = "\n".join(line.removeprefix("    ") for line in lines[begin:end])
    return Output(text, begin, end) if end > begin else None


def mask(text: str) -> list[str]:
    """The lines of an output without what may differ."""
    masked = []
    for line in text.splitlines():
        if _PROGRESS.fullmatch(line):
            continue
        for pattern, word in _MASKS:
            line = re.sub(pattern, word, line)
        masked.append(line.strip())
    while masked and not masked[-1]:
        masked.pop()
    return masked


def differences(shown: str, printed: str) -> str:
    """How an output differs from the one that a page shows; empty if it does not."""
    wanted, found = mask(shown), mask(printed)
    pattern = "".join(
        r"(?:.*\n)*" if line == ANY else ".*".join(map(re.escape, line.split(ANY))) + r"\n" for line in wanted
    )
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in found)):
        return ""
    return "\n".join(difflib.unified_diff(wanted, found, "the page", "the output", lineterm=""))


def replace_outputs(text: str, found: list[tuple[Output, str]]) -> str:
    """A page with other outputs, indented as they were."""
    lines = text.splitlines()
    for shown, printed in sorted(found, key=lambda pair: -pair[0].begin):
        kept = [line for line in printed.rstrip().splitlines() if not _PROGRESS.fullmatch(line)]
        lines[shown.begin : shown.end] = [f"    {line}".rstrip() for line in kept]
    return "\n".join(lines) + "\n"
