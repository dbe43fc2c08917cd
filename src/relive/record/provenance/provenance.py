"""Records provenance on a background thread: packages, declared data, and files that the script reads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from relive.errors import ReliveError
from relive.record.process import import_lock, print_to_stderr, warn_once
from relive.record.provenance import runtime_environment
from relive.record.provenance.input_watch import APPENDED, FileTimes, InputWatch, ignore_reads, input_role
from relive.record.provenance.secret_filter import SecretFilter
from relive.store import list_journals
from relive.store.journal import Journal, line_schema, read_lines

if TYPE_CHECKING:
    from relive.record.provenance.data_fingerprint import Fingerprint
    from relive.record.provenance.fingerprint_cache import FingerprintCache

SILENT_WAIT_S = 2.0  # how long the end of a run waits for fingerprints before it prints a message
_MISSING = "missing"


class Provenance:
    """A thread that fingerprints data; the training thread only puts paths into its queue.

    `cache_path` is the cache of fingerprints of earlier runs. The thread imports the modules for fingerprinting when
    there is something to fingerprint.
    """

    def __init__(
        self,
        journal: Journal,
        cache_path: Path,
        *,
        full_bytes: int,
        watch: InputWatch | None,
        secrets: SecretFilter | None = None,
    ) -> None:
        self._secrets = secrets or SecretFilter()
        self._journal = journal
        self._cache_path = cache_path
        self._cache: FingerprintCache | None = None
        self._full_bytes = full_bytes
        self._watch = watch
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._declared: dict[str, Fingerprint] = {}
        self._covered: set[str] = set()  # declared paths, which are not recorded as read again
        self._seen: dict[str, Fingerprint] = {}
        self._version: str | None = None
        self._began_ns = time.time_ns()
        self._thread = threading.Thread(target=self._work, name="relive-provenance", daemon=True)

    def start(self) -> None:
        self._jobs.put(self._record_packages)
        self._thread.start()
        if self._watch is not None:
            self._watch.on_new = self._enqueue_read
            self._watch.on_appended = lambda path, size: self._jobs.put(lambda: self._record_appended(path, size))
            self._watch.start()

    def declare(self, name: str, source: Any, etag: str | None) -> None:
        """Binds data to the run. Files are read in the background, objects at once: the script may change them."""
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
        self._record_data(name, print_, None)

    def outside_files(self) -> dict[str, FileTimes]:
        """Returns the files outside of the project that the run writes, as far as they changed since the last call."""
        return self._watch.outside_files() if self._watch is not None else {}

    def settle(self, patience_s: float = SILENT_WAIT_S) -> None:
        """Waits until all data declared so far is fingerprinted, and records the data version."""
        if self._version is None:
            done = threading.Event()
            self._jobs.put(done.set)
            done.wait(patience_s)
            self._record_version()

    def _enqueue_read(self, path: str) -> None:
        self._jobs.put(lambda: self._record_read(path))

    def finish(self, folder: Path) -> None:
        """Waits for the fingerprints, adds files that child processes read, and records the data version."""
        if self._watch is not None:
            self._watch.stop()
            self._watch.on_new = self._watch.on_appended = None
        for path in _files_read_by_children(folder):
            self._enqueue_read(path)
        self._jobs.put(None)
        self._thread.join(SILENT_WAIT_S)
        if self._thread.is_alive():
            print_to_stderr("fingerprinting the data that this run read; press Ctrl-C to skip it")
            try:
                self._thread.join()
            except KeyboardInterrupt:
                return
        self._record_version()
        if self._cache is not None:
            self._cache.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                with ignore_reads():  # our own reads are no inputs of the run
                    job()
            except Exception as error:  # noqa: BLE001 - the user's training must go on
                warn_once(
                    "provenance-incomplete", f"{type(error).__name__}: {error}; this part of the record is missing"
                )
            if self._jobs.empty():
                self._record_version()

    def _record_packages(self) -> None:
        self._journal.line(line_schema.PackagesInstalled, packages=runtime_environment.installed_packages())

    def _declare_path(self, name: str, path: str) -> None:
        cache = self._open_cache()
        from relive.record.provenance.data_fingerprint import fingerprint

        self._record_data(name, fingerprint(Path(path), cache=cache, full_bytes=self._full_bytes), path)

    def _record_data(self, name: str, print_: Fingerprint, path: str | None) -> None:
        self._declared[name] = print_
        about = self._secrets.fields(_fingerprint_fields(print_) | {"name": name, "path": path})
        self._journal.line(line_schema.DataDeclared, **about)

    def _record_read(self, path: str) -> None:
        real = os.path.realpath(path)  # a file under another name is the same data
        if real in self._seen or self._is_covered(real):
            return
        cache = self._open_cache()
        from relive.record.provenance.data_fingerprint import fingerprint_file

        try:
            found = fingerprint_file(Path(path), cache, full_bytes=self._full_bytes)
        except OSError:
            # The file existed when the script opened it; record the read although it is gone now.
            self._journal.line(line_schema.InputRead, path=path, role="data", kind=_MISSING)
            return
        role = self._role(path, found)
        if role == "data":
            self._seen[real] = found
        self._journal.line(line_schema.InputRead, path=path, role=role, **_fingerprint_fields(found))

    def _record_appended(self, path: str, size_bytes: int) -> None:
        """Records what a file had before the run appended to it: its beginning, as long as nobody changes that."""
        from relive.record.provenance.data_fingerprint import beginning_digest

        found = beginning_digest(path, size_bytes) if size_bytes <= self._full_bytes else None
        if found is not None:
            about = {"kind": "file", "digest": found, "size_bytes": size_bytes, "detail": {}}
            self._journal.line(line_schema.InputRead, path=path, role=APPENDED, **about)

    def _role(self, path: str, found: Fingerprint) -> str:
        """Returns `made` for a file that the run itself wrote: audit events do not show files opened by native code."""
        if os.stat(path).st_mtime_ns >= self._began_ns:
            return "made"
        return input_role(path, found.size_bytes or 0)

    def _is_covered(self, path: str) -> bool:
        return any(path == known or path.startswith(known + os.sep) for known in self._covered)

    def _open_cache(self) -> FingerprintCache:
        """Opens the cache, on our thread only. Also imports all that fingerprints need, including the hash library."""
        if self._cache is None:
            with import_lock:
                from relive.hashing import digest
                from relive.record.provenance.fingerprint_cache import FingerprintCache

                digest(b"")
                self._cache = FingerprintCache(self._cache_path)
        return self._cache

    def _record_version(self) -> None:
        if not self._declared and not self._seen:
            return
        from relive.record.provenance.data_fingerprint import data_version

        # Copies: the training thread may declare more data meanwhile.
        version = data_version(dict(self._declared), list(self._seen.values()))
        if version is not None and version != self._version:
            self._journal.line(line_schema.DataVersion, id=version)
            self._version = version  # set last: once it is set, the line can be read


def _fingerprint_fields(found: Fingerprint) -> dict[str, Any]:
    return {"kind": found.kind, "digest": found.digest, "size_bytes": found.size_bytes, "detail": found.detail}


def _files_read_by_children(folder: Path) -> list[str]:
    children = (path for name, path in list_journals(folder) if name.process)
    lines = (line for path in children for line in read_lines(path).lines)
    return [line.path for line in line_schema.lines_of(line_schema.InputOpened, lines)]
