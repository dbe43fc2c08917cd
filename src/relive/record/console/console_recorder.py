"""Turns what a run writes to its streams into lines, without secrets and overwritten states, and keeps them bounded."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from relive.record.console.stream_tap import STREAM_TAP, STREAMS, WriteQueue
from relive.record.process import warn_once
from relive.record.provenance import SecretFilter, hides
from relive.store.console import ConsoleFile

MAX_LINE_CHARS = 10_000
_MAX_TEXT_CHARS = 100_000  # of a record
_CUT = " … (cut)"
# Only a line with one of these can hold a secret by its name; the names are tested by the filter.
_NAMES = ("pass", "pwd", "secret", "key", "credential", "uthoriz", "token")
_KEY_BEGINS, _KEY_ENDS = "-----BEGIN", "-----END"


class ConsoleRecorder:
    """Records the console of one run in one process, from `start` to `close`; `flush` is called once a second."""

    def __init__(self, folder: Path, rank: int, *, max_bytes: int, secrets: SecretFilter) -> None:
        self._file = ConsoleFile(folder, rank, max_bytes)
        self._max_bytes = max_bytes
        self._secrets = secrets
        self._queue = WriteQueue()
        self._lock = threading.Lock()
        self._unfinished = dict.fromkeys(STREAMS, "")
        self._in_key = False
        self._lines = 0
        self._is_broken = False

    def start(self, environ: Mapping[str, str]) -> None:
        """Begins; values of environment variables whose name is that of a secret are not recorded where printed.

        The path of something that is there is none: PWD is the working folder, which every traceback shows.
        """
        secret = [value for name, value in environ.items() if hides(name, value)]
        self._secrets.remember(*(value for value in secret if not (os.path.isabs(value) and os.path.exists(value))))
        STREAM_TAP.add(self._queue)

    def flush(self) -> None:
        """Records the lines that were finished since the last call; a failure ends the recording, with a warning."""
        with self._lock:
            writes, is_full = self._queue.take()
            if not writes or self._is_broken:
                return
            try:
                self._record(writes, is_full)
            except OSError as error:
                self._is_broken = True
                warn_once("console-lost", f"{error}; what the run prints is no longer recorded; free some disk space")

    def close(self) -> None:
        """Ends the recording; a line without an end counts as a line."""
        STREAM_TAP.remove(self._queue)
        self.flush()
        with self._lock:
            if self._is_broken:
                return
            for stream, text in self._unfinished.items():
                if text:
                    self._append(stream, time.time_ns() // 1000, [text])
            self._unfinished = dict.fromkeys(STREAMS, "")
            self._file.close()

    @staticmethod
    def forget() -> None:
        """In a forked child: what it prints is not recorded."""
        STREAM_TAP.forget()

    def _record(self, writes: list[str | tuple[str]], is_full: bool) -> None:
        now_us = time.time_ns() // 1000
        if is_full:
            self._file.append({"v": 1, "n": self._lines, "t": now_us, "lost": True})
            self._unfinished = dict.fromkeys(STREAMS, "")
        for is_out, group in groupby(writes, key=_is_out):
            stream = "out" if is_out else "err"
            text = "".join([write if type(write) is str else write[0] for write in group])
            finished = self._finish_lines(stream, text)
            if finished:
                self._append(stream, now_us, finished)
        shown = {stream: self._clean([text])[0] for stream, text in self._unfinished.items() if text}
        self._file.replace_unfinished(shown)

    def _finish_lines(self, stream: str, text: str) -> list[str]:
        """Returns the lines that a text finishes; what follows the last one is kept until its line is finished."""
        *lines, rest = (self._unfinished[stream] + text).split("\n")
        self._unfinished[stream] = _last_state(rest)[:MAX_LINE_CHARS]
        return [_last_state(line) if "\r" in line else line for line in lines]

    def _append(self, stream: str, time_us: int, lines: list[str]) -> None:
        for some in _portions(self._clean(lines), min(_MAX_TEXT_CHARS, self._max_bytes // 16)):
            self._file.append({"v": 1, "n": self._lines, "t": time_us, "s": stream, "text": "\n".join(some)})
            self._lines += len(some)

    def _clean(self, lines: list[str]) -> list[str]:
        """Returns the lines without secrets, each cut to a length."""
        if any(len(line) > MAX_LINE_CHARS for line in lines):
            lines = [line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + _CUT for line in lines]
        whole = "\n".join(lines)
        shaped = self._secrets.text(whole)
        if self._in_key or _KEY_BEGINS in whole:
            shaped = "\n".join(self._without_keys(lines))
        small = shaped.lower()
        if not any(name in small for name in _NAMES) and not self._secrets.knows_any_in(shaped):
            return shaped.split("\n")
        return [self._secrets.printed(line) for line in shaped.split("\n")]

    def _without_keys(self, lines: Iterable[str]) -> list[str]:
        """Hides private keys, whose lines may be printed one by one."""
        shown: list[str] = []
        for line in lines:
            self._in_key = self._in_key or (_KEY_BEGINS in line and "PRIVATE KEY" in line)
            shown.append("***" if self._in_key else self._secrets.text(line))
            if _KEY_ENDS in line:
                self._in_key = False
        return shown


def _is_out(write: str | tuple[str]) -> bool:
    return type(write) is str


def _last_state(line: str) -> str:
    """Returns what a terminal shows of a line that was overwritten, as progress bars do."""
    return line.rstrip("\r").rpartition("\r")[2]


def _portions(lines: list[str], most_chars: int) -> Iterable[list[str]]:
    """Yields the lines in portions of a bounded length."""
    some: list[str] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if size > most_chars:
            yield some
            some, size = [], 0
    if some:
        yield some
