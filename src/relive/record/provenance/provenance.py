"""What a run came from, gathered beside the training thread: packages, declared data, files seen being read."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from relive.errors import ReliveError
from relive.record.process import loading, say, warn_once
from relive.record.provenance import runtime_environment
from relive.record.provenance.input_watch import InputWatch, role, unheard
from relive.store import journals_in
from relive.store.journal import Journal, read_lines

if TYPE_CHECKING:
    from relive.record.provenance.data_fingerprint import Fingerprint
    from relive.record.provenance.fingerprint_cache import FingerprintCache

PATIENCE_S = 2.0  # how long the end of a run waits for fingerprints before it says so
_MISSING = "missing"


class Provenance:
    """One thread that fingerprints; the training thread only puts paths in its queue.

    `known` is the file with fingerprints of earlier runs. What fingerprinting needs is loaded by the thread, when there
    is something to fingerprint.
    """

    def __init__(self, journal: Journal, known: Path, *, full_bytes: int, watch: InputWatch | None) -> None:
        self._journal = journal
        self._known = known
        self._opened: FingerprintCache | None = None
        self._full_bytes = full_bytes
        self._watch = watch
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._declared: dict[str, Fingerprint] = {}
        self._covered: set[str] = set()  # declared files, which are not also listed as seen
        self._seen: dict[str, Fingerprint] = {}
        self._stated: str | None = None
        self._began_ns = time.time_ns()
        self._thread = threading.Thread(target=self._work, name="relive-provenance", daemon=True)

    def start(self) -> None:
        self._jobs.put(self._packages)
        self._thread.start()
        if self._watch is not None:
            self._watch.on_new = self.saw
            self._watch.start()

    def declare(self, name: str, source: Any, etag: str | None) -> None:
        """Bind data to the run. Files are read in the background; an object now, since the script may change it."""
        if etag is None and isinstance(source, str | os.PathLike) and os.path.exists(source):
            path = os.path.realpath(source)
            self._covered.add(path)
            self._jobs.put(lambda: self._declare_path(name, path))
            return
        from relive.record.provenance.data_fingerprint import fingerprint

        try:
            print_ = fingerprint(source, etag=etag)
        except ReliveError as error:
            warn_once("data-missing", f"relive.data({name!r}): {error}")
            return
        self._record(name, print_, None)

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until what was declared so far is fingerprinted, for somebody who needs the data version now."""
        if self._stated is None:
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait(patience_s)
            self._state_version()

    def saw(self, path: str) -> None:
        self._jobs.put(lambda: self._add_seen(path))

    def finish(self, folder: Path) -> None:
        """Wait for the fingerprints, add what child processes read, and state the data version."""
        if self._watch is not None:
            self._watch.stop()
            self._watch.on_new = None
        for path in _read_by_children(folder):
            self.saw(path)
        self._jobs.put(None)
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            say("fingerprinting the data this run read; Ctrl-C leaves it out")
            try:
                self._thread.join()
            except KeyboardInterrupt:
                return
        self._state_version()
        if self._opened is not None:
            self._opened.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                with unheard():  # what we read is not what the script reads
                    job()
            except Exception as error:  # noqa: BLE001 - the user's training must go on
                warn_once("provenance-incomplete", f"{type(error).__name__}: {error}; the record lacks this part")
            if self._jobs.empty():
                self._state_version()

    def _packages(self) -> None:
        self._journal.line("packages", packages=runtime_environment.packages())

    def _declare_path(self, name: str, path: str) -> None:
        cache = self._cache()
        from relive.record.provenance.data_fingerprint import fingerprint

        self._record(name, fingerprint(Path(path), cache=cache, full_bytes=self._full_bytes), path)

    def _record(self, name: str, print_: Fingerprint, path: str | None) -> None:
        self._declared[name] = print_
        self._journal.line("data", name=name, path=path, **_form(print_))

    def _add_seen(self, path: str) -> None:
        real = os.path.realpath(path)  # the same file under another name is the same data
        if real in self._seen or self._is_covered(real):
            return
        cache = self._cache()
        from relive.record.provenance.data_fingerprint import fingerprint_file

        try:
            found = fingerprint_file(Path(path), cache, full_bytes=self._full_bytes)
        except OSError:
            # It was there when the script opened it; say that it was read even if it is gone now.
            self._journal.line("read", path=path, role="data", kind=_MISSING)
            return
        what = self._role(path, found)
        if what == "data":
            self._seen[real] = found
        self._journal.line("read", path=path, role=what, **_form(found))

    def _role(self, path: str, found: Fingerprint) -> str:
        """`made` is what the run itself wrote and read back: native writers are not seen opening their files."""
        if os.stat(path).st_mtime_ns >= self._began_ns:
            return "made"
        return role(path, found.size_bytes or 0)

    def _is_covered(self, path: str) -> bool:
        return any(path == known or path.startswith(known + os.sep) for known in self._covered)

    def _cache(self) -> FingerprintCache:
        """Only our thread asks for it. Loads all that fingerprints need, the library that hashes included."""
        if self._opened is None:
            with loading:
                from relive.hashing import digest
                from relive.record.provenance.fingerprint_cache import FingerprintCache

                digest(b"")
                self._opened = FingerprintCache(self._known)
        return self._opened

    def _state_version(self) -> None:
        if not self._declared and not self._seen:
            return
        from relive.record.provenance.data_fingerprint import data_version

        # Copies: the training thread may declare more data meanwhile.
        version = data_version(dict(self._declared), list(self._seen.values()))
        if version is not None and version != self._stated:
            self._journal.line("data_version", id=version)
            self._stated = version  # last: who finds it here may read the line


def _form(found: Fingerprint) -> dict[str, Any]:
    return {"kind": found.kind, "digest": found.digest, "size_bytes": found.size_bytes, "detail": found.detail}


def _read_by_children(folder: Path) -> list[str]:
    children = (path for name, path in journals_in(folder) if name.process)
    lines = (line for path in children for line in read_lines(path).lines)
    return [line["path"] for line in lines if line.get("k") == "opened"]
