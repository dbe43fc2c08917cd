"""Checks the files of a home besides journals, chunks and packs: index, registry, code versions, sealed files."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from relive.errors import Damaged, VersionError
from relive.model import RunRecord
from relive.store.catalog import find_index_damage, read_run
from relive.store.durable_files import read_sealed
from relive.store.home import Home
from relive.store.ledger import HEAD_SUFFIX, check_ledger, read_all_lines
from relive.store.versions import VersionObjects, check_repository, is_index_whole, version_checkout

VERSIONS_S = 30.0  # for each repository; `deep` sets no limit
_DERIVED = "it is computed again"
_SEALED = (  # patterns of files, whether they are more than derived, and the remedy
    ("pins/*.json", True, "choose again with `relive replay --at` or `--edit`"),
    ("tokens.json", True, "restore it, or remove it and create new tokens"),
    ("chunks/packs/*.spooled", True, "restore it from a backup, or restore an earlier checkpoint"),
    ("runs/*/check.json", True, "remove it"),
    ("runs/*/origin", True, "fetch the run again"),
    ("fits/*.json", False, _DERIVED),
    ("costs.json", False, _DERIVED),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth reporting about a run; `damage` when something that was written can't be read."""

    run: str
    text: str
    damage: bool = False


def check_files(home: Home, *, deep: bool) -> Iterator[Finding]:
    """Checks every file that is neither part of a run nor a chunk, pack or memoised call; changes nothing."""
    for problem in find_index_damage(home):
        yield Finding("index", f"{problem}; it is rebuilt from the journals", damage=True)
    yield from _check_ledgers(home)
    yield from _check_sealed(home)
    yield from _check_tokens(home)
    yield from _check_fingerprints(home.path / "fingerprints.sqlite")
    with contextlib.suppress(FileNotFoundError):
        try:
            if (home.path / "id").stat():
                home.identity()
        except Damaged as error:
            yield Finding("home", str(error), damage=True)
    yield from _check_versions(home, deep=deep)


def _check_ledgers(home: Home) -> Iterator[Finding]:
    names = {path.with_suffix(".lines") for path in _list(home, "registry/*.lines", f"registry/*{HEAD_SUFFIX}")}
    for path in sorted({*names, home.path / "alerts.lines", home.path / "pins/pins.lines"}):
        for problem in check_ledger(path):
            who = "registry" if path.parent == home.registry else "home"
            yield Finding(who, f"{path.stem}: {problem}", damage=True)
    with contextlib.suppress(Damaged):  # reported above
        for line in read_all_lines(home.path / "pins/pins.lines"):
            if not (missing := home.path / "pins" / line["file"]).exists():
                text = f"{missing} is missing; choose again with `relive replay --at` or `--edit`"
                yield Finding("home", text, damage=True)


def _check_sealed(home: Home) -> Iterator[Finding]:
    for pattern, is_kept, remedy in _SEALED:
        for path in _list(home, pattern):
            try:
                msgspec.json.decode(read_sealed(path))
            except FileNotFoundError:
                continue
            except (ValueError, Damaged) as error:
                who = path.parent.name if pattern.startswith("runs/") else "home"
                yield Finding(who, f"{path} can't be read ({error}); {remedy}", damage=is_kept)


def _check_tokens(home: Home) -> Iterator[Finding]:
    """The lock remains of tokens that are missing: whoever removes the last one leaves an empty list."""
    if (home.path / "tokens.lock").exists() and not (home.path / "tokens.json").exists():
        text = f"{home.path / 'tokens.json'} is missing, so every token is refused; restore it, or create new tokens"
        yield Finding("home", text, damage=True)


def _check_fingerprints(path: Path) -> Iterator[Finding]:
    if not path.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            problem = db.execute("pragma integrity_check(1)").fetchone()[0]
    except (sqlite3.Error, UnicodeError) as error:  # what SQLite says of it may hold bytes of it
        problem = str(error)
    if problem != "ok":
        yield Finding("home", f"{path} is damaged ({problem}); remove it: it is derived")


def _check_versions(home: Home, *, deep: bool) -> Iterator[Finding]:
    """Reads every code version that a run has, each object once, and names the runs whose version is damaged."""
    private = home.path / "versions.git"
    if private.exists():
        yield from (Finding("versions", text, damage=True) for text in check_repository(private))
        for index in private.glob("*.index"):
            if not is_index_whole(index):
                yield Finding("versions", f"{index} is damaged; it is a cache and made anew")
    runs: defaultdict[Path, list[RunRecord]] = defaultdict(list)
    for record in _records_with_version(home):
        try:
            runs[version_checkout.find_repository(home, record.code)].append(record)
        except VersionError as error:
            yield Finding(record.run, f"code version: {error}", damage=True)
    for repository, records in runs.items():
        yield from _check_versions_in(repository, records, None if deep else VERSIONS_S)


def _check_versions_in(repository: Path, records: Sequence[RunRecord], limit_s: float | None) -> Iterator[Finding]:
    begun, problems = time.monotonic(), dict[str, str]()
    with VersionObjects(repository) as objects:
        for version in dict.fromkeys(record.version or "" for record in records):
            if limit_s is not None and time.monotonic() - begun > limit_s:
                text = f"not all code versions in {repository} were read in {limit_s:.0f} s; --deep reads all"
                yield Finding("versions", text)
                break
            try:
                objects.verify(version)
            except VersionError as error:
                problems[version] = str(error)
    for record in records:
        if record.version in problems:
            text = f"code version {record.version[:12]}: {problems[record.version]}"
            yield Finding(record.run, text, damage=True)


def _records_with_version(home: Home) -> Iterator[RunRecord]:
    for run in sorted(home.run_ids()):
        with contextlib.suppress(Exception):  # a run that can't be read is reported with its journals
            entry = read_run(home, run)
            if entry is not None and entry.record.version:
                yield entry.record


def _list(home: Home, *patterns: str) -> Iterable[Path]:
    return sorted(path for pattern in patterns for path in home.path.glob(pattern))
