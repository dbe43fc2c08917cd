"""Replaces damaged journals of a home by whole copies from a server; the damaged files are kept beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from relive.errors import Damaged, NotFound, ReliveError
from relive.hashing import digest
from relive.model import RUNNING
from relive.store.catalog import read_run
from relive.store.chunks import Chunks, named_chunks
from relive.store.durable_files import publish, sync_folder
from relive.store.home import Home, JournalName, list_journals
from relive.store.journal import (
    has_line_slots,
    line_schema,
    mark_for_reindexing,
    parse_journal,
    read_lines,
    read_slots,
    to_json,
)
from relive.store.sync import MAX_CHUNK_BYTES, RequestRefused, ServerClient, run_fetch

_WITH_CHUNKS = (line_schema.ValueLogged, line_schema.ArtifactKept, line_schema.Arg, line_schema.LoopItem)
ASIDE = "damaged"  # the suffix of files that were replaced, with a number behind it


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done about one damaged journal or chunk of a run."""

    run: str
    text: str
    is_whole: bool  # whether it is whole again


def recover_home(home: Home, remote: ServerClient) -> Iterator[Recovery]:
    """Replaces every damaged journal and chunk of which the server has a whole copy."""
    for run in sorted(home.run_ids()):
        damaged = damaged_journals(home, run)
        if damaged and _is_running(home, run):
            yield Recovery(run, "it is running; repair it after its end", is_whole=False)
        elif damaged:
            yield from _recover_journals(home, run, damaged, remote)
        yield from _recover_chunks(home, run, remote)


def damaged_journals(home: Home, run: str) -> list[JournalName]:
    """Returns the journals of a run that are not as they were written."""
    return [name for name, path in list_journals(home.run_folder(run)) if not _is_whole(path, name)]


def _recover_journals(home: Home, run: str, damaged: list[JournalName], remote: ServerClient) -> Iterator[Recovery]:
    folder = home.run_folder(run)
    incoming = home.runs / f".{run}.recovering"  # readers skip names that begin with a dot
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    try:
        sizes = _listed_sizes(remote, run)
        for name in damaged:
            try:
                kept = _recover_journal(folder, incoming, name, sizes, remote)
            except (Damaged, NotFound) as error:
                yield Recovery(run, f"{name.stem}: {error}", is_whole=False)
            else:
                text = f"{name.stem}: replaced by the copy of {remote.url}; the damaged files are {', '.join(kept)}"
                yield Recovery(run, text, is_whole=True)
        mark_for_reindexing(folder)
    except RequestRefused as refusal:
        yield Recovery(run, f"{refusal}; nothing was changed", is_whole=False)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _listed_sizes(remote: ServerClient, run: str) -> dict[str, int]:
    return {str(one["name"]): int(one["size"]) for one in remote.get(f"/api/runs/{run}/files")["files"]}


def _recover_journal(
    folder: Path, incoming: Path, name: JournalName, sizes: dict[str, int], remote: ServerClient
) -> list[str]:
    """Fetches one journal, checks it, and puts it in place; returns the names of the files that it replaced."""
    files = [f"{name.stem}.{kind}" for kind in ("slots", "lines")]
    if any(file not in sizes for file in files):
        raise NotFound(f"{remote.url} does not have this journal; restore it from a backup")
    for file in files:
        run_fetch.download(remote, f"/api/runs/{folder.name}/files/{file}", incoming / file, sizes[file])
    _check_copy(incoming / name.stem, folder / name.stem, name, remote.url)
    kept = [_keep_aside(folder / file) for file in files if (folder / file).exists()]
    for file in files:
        publish(incoming / file, folder / file)
    return kept


def _check_copy(copy: Path, here: Path, name: JournalName, url: str) -> None:
    """Raises `Damaged` unless a copy is whole and has everything that is still readable here."""
    if not _is_whole(copy, name):
        raise Damaged(f"the copy on {url} is damaged as well; restore it from a backup")
    theirs, ours = read_lines(copy).lines, read_lines(here).lines
    first = theirs[0] if theirs else None
    if isinstance(first, line_schema.RunStarted) and first.run != here.parent.name:
        raise Damaged(f"the copy on {url} is of another run; ask its administrator")
    known = {to_json(line) for line in theirs}
    lacking = sum(to_json(line) not in known for line in ours)
    slots = len(parse_journal(here, name)) - len(parse_journal(copy, name)) if not lacking else 0
    if lacking or slots > 0:
        what = f"{lacking} lines" if lacking else f"{slots} values"
        raise Damaged(f"the copy on {url} lacks {what} that can be read here; nothing was changed")


def _keep_aside(path: Path) -> str:
    """Gives a file a second name that says what it is; returns that name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{ASIDE}-{number}")).exists():
        number += 1
    os.link(path, aside)
    sync_folder(path.parent)
    return aside.name


def _is_whole(path: Path, name: JournalName) -> bool:
    try:
        read = read_lines(path)
        if not read.lines:
            return not read.damaged and not has_line_slots(path) and not read_slots(path).problems
        return not read.damaged and not parse_journal(path, name).damage
    except Exception:  # noqa: BLE001 - whatever is in it, it is not what was written
        return False


def _is_running(home: Home, run: str) -> bool:
    try:
        entry = read_run(home, run)
    except ReliveError:
        return False
    return entry is not None and entry.record.outcome == RUNNING


def _recover_chunks(home: Home, run: str, remote: ServerClient) -> Iterator[Recovery]:
    """Fetches the chunks that the journals name and that are missing or damaged here."""
    chunks = Chunks(home.chunks)
    for name in sorted(_named_chunks(home, run)):
        try:
            chunks.get(name)
        except (NotFound, Damaged) as problem:
            try:
                chunks.put(_fetch_chunk(remote, name))
            except (NotFound, Damaged, RequestRefused) as error:
                yield Recovery(run, f"{problem}; {error}", is_whole=False)
            else:
                yield Recovery(run, f"chunk {name[:12]}: fetched from {remote.url}", is_whole=True)


def _named_chunks(home: Home, run: str) -> set[str]:
    lines = [line for _, path in list_journals(home.run_folder(run)) for line in read_lines(path).lines]
    return set().union(*(named_chunks(msgspec.to_builtins(line)) for line in lines if isinstance(line, _WITH_CHUNKS)))


def _fetch_chunk(remote: ServerClient, name: str) -> bytes:
    data = remote.content(f"/api/chunks/{name}", MAX_CHUNK_BYTES)
    if digest(data) != name:
        raise Damaged(f"{remote.url} sent bytes that don't match chunk {name[:12]}; ask its administrator")
    return data
