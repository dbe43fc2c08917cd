"""Homes with runs of many shapes, written directly into journals."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import ROOT, Journal, encode_value, process_start_stamp

Values = Mapping[str, Sequence[Any]]


class Runs:
    """A home to which runs are added: `runs.add({"loss": [1.0, 0.5]}, lr=0.1)` logs in a loop `step`."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.create()
        self._clock = itertools.count(1)

    @property
    def index(self) -> Index:
        return Index(self.home)

    def add(
        self, values: Values | Sequence[Values], *, data: str | None = "d1", tags: Mapping[str, Any] | None = None,
        header: Mapping[str, Any] | None = None, packages: Mapping[str, str] | None = None, live: bool = False,
        **args: Any,
    ) -> str:  # fmt: skip
        """Adds a run, finished unless `live`, and returns its id; a sequence of values makes a rank of each."""
        ranks = [values] if isinstance(values, Mapping) else values
        run = self.home.new_run()
        started_ns = next(self._clock) * 1_000_000_000
        for rank, rank_values in enumerate(ranks):
            journal = Journal(self.home.run_folder(run) / str(rank))
            me = {"pid": os.getpid(), "start": process_start_stamp(os.getpid()), "host": os.uname().nodename}
            journal.line(
                "run", **{"run": run, "rank": rank, "project": "p", "world_size": len(ranks), "wall_ns": started_ns,
                          "clock_ns": time.monotonic_ns(), "tags": dict(tags or {}), **me, **(header or {})}
            )  # fmt: skip
            for name, value in args.items():
                form = encode_value(value, lambda data: "0" * 64)
                journal.line("arg", name=name, value=form, default=form, origin="kwargs")
            if data is not None:
                journal.line("data", name="train", kind="file", digest=data * 8, size_bytes=10)
                journal.line("data_version", id=data)
            if packages is not None:
                journal.line("packages", packages=packages)
            self._log(journal, rank_values)
            if not live:
                journal.line("end", outcome="finished", error=None)
                journal.close()
        return run

    def _log(self, journal: Journal, values: Values) -> None:
        loop = journal.begin_loop("step", ROOT, 0)
        for name, series in values.items():
            for step, value in enumerate(series):
                for one in value if type(value) is tuple else (value,):  # a tuple holds what one iteration logs
                    self._log_one(journal, name, one, loop, step)
        journal.end_loop(loop, max((len(series) for series in values.values()), default=0))

    def _log_one(self, journal: Journal, name: str, value: Any, loop: int, step: int) -> None:
        if type(value) is float:
            journal.append_float(name, value, loop, step)
        else:
            form = encode_value(value, lambda data: "0" * 64)
            journal.line("log", loop, step, name=journal.name_id(name), value=form)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "home")
