"""One computation of a remembered call: its duration, what it read, and what it changed outside of itself."""

from __future__ import annotations

import time
from types import TracebackType

from relive.memo.call_key import Keys
from relive.memo.inputs import InputRecorder, ObservedInput, read_generators, which_drew
from relive.record.process import warn_once


class Computation:
    """Watches a function while it computes; warns of what its result depends on that can't be checked later."""

    def __init__(self, keys: Keys, home: str) -> None:
        self._keys = keys
        self._recorder = InputRecorder(home)
        self._is_stopped = False
        self.took_s = 0.0

    def __enter__(self) -> Computation:
        self._changed_state = self._keys.watch_state()
        self._generators = {} if self._keys.seeds_generators else read_generators()
        self._recorder.__enter__()
        self._begun = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        self.took_s = time.perf_counter() - self._begun
        self._recorder.__exit__(None, None, None)
        for name in which_drew(self._generators):
            self._keys.warn_volatile(f"draws random numbers ({name})")
        for reason in self._recorder.outside:
            self._keys.warn_volatile(reason)

    def unsettled(self) -> bool:
        """Whether the result can't be kept: what it depends on has changed while it was computed. Warns of it."""
        name = self._keys.name
        changed = self._changed_state()
        for label, is_added in changed.items():
            effect = "what it adds is taken for a cache" if is_added else "its results are not remembered"
            message = f"{name} reads {label} and also changes it, so {effect}"
            warn_once("memo-state", f"{message}; if results depend on it, pass it as an argument", about=name + label)
        files = self._recorder.changed_inputs()
        for path in files[:1]:
            message = f"{path} was read by {name} and changed before it returned, so the result is not remembered"
            warn_once("memo-state", f"{message}; write to another file", about=name + path)
        if self._recorder.too_many:
            message = f"{name} reads too many files to check them later, so its results are not remembered"
            warn_once("memo-state", f"{message}; pass their folder as a Path instead", about=name)
        return bool(not all(changed.values()) or files or self._recorder.too_many)

    def inputs(self) -> list[ObservedInput]:
        return self._recorder.inputs()
