"""Removes a text from the journals of a run that has ended: lines are rewritten, with their checksums.

Sequence numbers, times and slots stay as they are; slots hold numbers only, and their seals do not cover lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from relive.errors import NotFound, ReliveError
from relive.store.chunks import Chunks, named_chunks
from relive.store.console import decode_record, list_console_files
from relive.store.durable_files import atomic_write
from relive.store.home import Home, list_journals
from relive.store.journal import line_schema

REPLACEMENT = "***"
# What tells readers how to read a line, and where other data is. All other fields may hold a text of the user.
_STRUCTURE = frozenset(
    "v k seq t loop i sum run manifest digest chunks id tree head states key kind outcome verdict slug place".split()
)
_PARTS_OF_ENCODING = frozenset("chunk chunks digest data dtype $bytes $surrogates $int".split())
_FIELDS_OF_VALUES = frozenset("value default item tags".split())  # with keys that users chose


@dataclass(slots=True)
class ScrubReport:
    """How many places were changed, and what holds the text still."""

    places: int = 0
    files: list[str] = field(default_factory=list)  # journals that were changed
    chunks: list[str] = field(default_factory=list)  # chunks that hold the text
    unreadable_lines: int = 0  # damaged lines that hold the text


def scrub_run(home: Home, run: str, pattern: str, *, dry_run: bool = False) -> ScrubReport:
    """Replaces what matches a regular expression in all journals of a run; the caller makes sure that it has ended."""
    expression = _compile(pattern)
    report = ScrubReport()
    changed: dict[Path, bytes] = {}
    chunks: set[str] = set()
    for _, stem in list_journals(home.run_folder(run)):
        path = stem.with_name(stem.name + ".lines")
        before = path.read_bytes() if path.exists() else b""
        scrub = _LineScrub(expression)
        *rows, torn = before.split(b"\n")
        after = b"".join(scrub.rewrite(row + b"\n") for row in rows) + scrub.rewrite(torn)
        report.places += scrub.places
        report.unreadable_lines += scrub.unreadable
        chunks |= scrub.chunks
        if after != before:
            changed[path] = after
    for path in list_console_files(home.run_folder(run)):
        before = path.read_bytes()
        records = [_scrub_console_row(row, expression) for row in before.split(b"\n")]
        if places := sum(count for _, count in records):
            changed[path] = b"\n".join([row for row, _ in records])
            report.places += places
    report.files = sorted(path.name for path in changed)
    report.chunks = sorted(_holding(Chunks(home.chunks), chunks, expression))
    if not dry_run:
        for path, content in changed.items():
            atomic_write(path, content, permissions=path.stat().st_mode & 0o777)
    return report


class _LineScrub:
    """Rewrites the lines of one journal, and counts what was replaced."""

    def __init__(self, expression: re.Pattern[str]) -> None:
        self._expression = expression
        self.places = 0
        self.unreadable = 0
        self.chunks: set[str] = set()

    def rewrite(self, row: bytes) -> bytes:
        line = _decode(row)
        if line is None:  # damaged, or torn: with a new checksum it would look like what was written
            self.unreadable += bool(self._expression.search(row.decode("utf-8", "replace")))
            return row
        self.chunks |= named_chunks(line)
        before = self.places
        new = {
            key: item if key in _STRUCTURE else self._replace(item, keys=key in _FIELDS_OF_VALUES)
            for key, item in line.items()
        }
        if self.places == before:
            return row
        has_sum = new.pop("sum", None) is not None  # lines of format 1 have none
        raw = msgspec.json.encode(new)
        _check_readable(raw, line)
        return line_schema.with_sum(raw) if has_sum else raw + b"\n"

    def _replace(self, form: Any, *, keys: bool) -> Any:
        """Replaces texts; of values also the keys, but not what tells how a value is encoded."""
        if isinstance(form, str):
            text, count = self._expression.subn(_replacement, form)
            self.places += count
            return text
        if isinstance(form, list):
            return [self._replace(item, keys=keys) for item in form]
        if not isinstance(form, dict):
            return form
        return {
            self._replace_key(key, form) if keys else key: item
            if key in _PARTS_OF_ENCODING
            else self._replace(item, keys=keys)
            for key, item in form.items()
        }

    def _replace_key(self, key: str, form: dict[str, Any]) -> str:
        if key.startswith("$") or not self._expression.search(key):
            return key
        self.places += 1
        new = self._expression.sub(_replacement, key)
        while new in form:  # no value may be lost because two keys become equal
            new += "*"
        return new


def _decode(row: bytes) -> dict[str, Any] | None:
    """Returns a line that is as it was written; None otherwise."""
    head, mark, _ = row.rpartition(b',"sum":"')
    try:
        line = msgspec.json.decode(row)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not row.endswith(b"\n"):
        return None
    is_whole = line_schema.with_sum(head + b"}") == row if mark else line.get("v") == 1
    return line if is_whole else None


def _check_readable(raw: bytes, line: dict[str, Any]) -> None:
    if line.get("k") in line_schema.kinds():
        try:
            line_schema.line_decoder()(raw)
        except msgspec.ValidationError as error:
            raise ReliveError(f"line {line['seq']} could not be read any more ({error}); give a longer text") from error


def _replacement(found: re.Match[str]) -> str:
    return REPLACEMENT if found[0] else ""


def _scrub_console_row(row: bytes, expression: re.Pattern[str]) -> tuple[bytes, int]:
    """Returns a record of console output without what matches, and how often it matched; a damaged one is emptied."""
    record = decode_record(row)
    if record is None:
        return (b"", 1) if expression.search(row.decode("utf-8", "replace")) else (row, 0)
    texts = record.get("open") or {"text": record.get("text", "")}
    cleaned = {key: expression.subn(_replacement, text) for key, text in texts.items()}
    if not any(count for _, count in cleaned.values()):
        return row, 0
    shown = {key: text for key, (text, _) in cleaned.items()}
    record |= {"open": shown} if "open" in record else shown
    return line_schema.with_sum(msgspec.json.encode(record)).rstrip(b"\n"), sum(count for _, count in cleaned.values())


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ReliveError(f"{pattern!r} is no regular expression ({error}); escape characters with \\") from error
    if expression.search(""):
        raise ReliveError(f"{pattern!r} matches the empty text; give the text to remove")
    return expression


def _holding(chunks: Chunks, names: set[str], expression: re.Pattern[str]) -> Iterator[str]:
    for name in names:
        try:
            content = chunks.get(name)
        except NotFound:  # it was not sent, or is lost: `relive doctor` tells
            continue
        if expression.search(content.decode("utf-8", "replace")):
            yield name
