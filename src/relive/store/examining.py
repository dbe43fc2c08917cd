"""What is wrong in a home: torn tails, damaged lines, chunks that are missing or not what their name says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relive.errors import Damaged, NotFound
from relive.store.chunks import Chunks
from relive.store.home import Home, journals_in
from relive.store.reading import read_lines, read_slots


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth telling about a run; `damage` when something that was recorded can't be read."""

    run: str
    text: str
    damage: bool = False


def examine(home: Home, *, deep: bool = False) -> Iterator[Finding]:
    """Look at every journal of a home, and at the chunks they name."""
    chunks = Chunks(home.chunks)
    for run in sorted(home.run_ids()):
        journals = list(journals_in(home.run_folder(run)))
        if not journals:
            yield Finding(run, "has no journal: it died while it was beginning; remove it with `relive rm`")
        for name, path in journals:
            yield from (Finding(run, f"{name.stem}: {text}", bad) for text, bad in _journal(path))
            for chunk in sorted(_named_chunks([line for line in read_lines(path).lines if _may_name(line)])):
                yield from _chunk(run, chunks, chunk, deep)


def _journal(path: Any) -> Iterator[tuple[str, bool]]:
    read, slots = read_lines(path), read_slots(path)
    yield from ((problem, True) for problem in slots.problems)
    if read.torn_bytes:
        yield f"a torn tail of {read.torn_bytes} bytes is ignored", False
    if read.damaged:
        yield f"{read.damaged} lines can't be read", True
    if read.newer:
        yield f"{read.newer} lines were written by a newer relive; upgrade to read them", True
    if slots.torn:
        yield f"{slots.torn} half-written slots are ignored", False
    if slots.holes:
        yield f"{slots.holes} slots were reserved but never written; they are ignored", False


def _may_name(line: dict[str, Any]) -> bool:
    return line.get("k") in ("log", "artifact", "arg", "item")


def _named_chunks(form: Any) -> set[str]:
    """Every chunk name in a line: the values of `chunk` and `chunks`, wherever they are."""
    if isinstance(form, dict):
        own = {form["chunk"]} if isinstance(form.get("chunk"), str) else set()
        own |= set(form["chunks"]) if isinstance(form.get("chunks"), list) else set()
        return own.union(*(_named_chunks(item) for item in form.values()))
    return set().union(*(_named_chunks(item) for item in form)) if isinstance(form, list) else set()


def _chunk(run: str, chunks: Chunks, name: str, deep: bool) -> Iterator[Finding]:
    try:
        if deep:
            chunks.get(name)
        elif name not in chunks:
            raise NotFound(f"chunk {name[:12]} is missing; copy it back from another home")
    except (NotFound, Damaged) as error:
        yield Finding(run, str(error), damage=True)
