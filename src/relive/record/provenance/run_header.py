"""What the first line of a run says: the program, the launch, the machine, and the tags of its sweep."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from relive.record.process import LaunchContext, warn_once
from relive.record.provenance.runtime_environment import describe_environment
from relive.record.provenance.secret_filter import SecretFilter
from relive.store.journal import process_age_s, process_start_stamp


class RunBeginning(NamedTuple):
    """Which of the explicit runs of its script a run is, and the random states that it began with, encoded."""

    nth: int = 0
    random_states: str = ""  # else those at the time when it is opened


def describe_start(
    run: str,
    context: LaunchContext,
    given: dict[str, Any],
    secrets: SecretFilter,
    *,
    parent: str | None,
    instrumented: dict[str, Any] | None,
) -> dict[str, Any]:
    """Returns the fields of the first line of a run."""
    entry, launched = context.entry, context.launched
    fields = {
        "run": run, **given, "project": context.project,
        "rank": launched.rank, "world_size": launched.world_size, "local_rank": launched.local_rank,
        "pid": os.getpid(), "start": process_start_stamp(os.getpid()), "host": platform.node(),
        "wall_ns": time.time_ns(), "clock_ns": time.monotonic_ns(), "since_start_s": process_age_s(os.getpid()),
        "entry": entry._asdict() | {"instrumented": instrumented},
        "parent": parent, "argv": secrets.argv(sys.argv),
        "environment": describe_environment(
            os.environ, sys.orig_argv or sys.argv, secrets=secrets, extra=context.settings.variables
        ),
    }  # fmt: skip
    found: dict[str, Any] = as_valid_text(fields)
    return found


def sweep_tags(environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the sweep and trial that RELIVE_SWEEP and RELIVE_TRIAL name, as tags; a trial that is no number warns."""
    sweep, trial = environ.get("RELIVE_SWEEP"), environ.get("RELIVE_TRIAL")
    tags: dict[str, Any] = {"sweep": sweep} if sweep else {}
    if trial and not trial.isdecimal():
        warn_once(
            "trial-not-a-number",
            f"RELIVE_TRIAL={trial} is recorded as a tag only; set it to the number of the run in its sweep",
        )
    return tags | ({"trial": int(trial) if trial.isdecimal() else trial} if trial else {})


def as_valid_text(value: Any) -> Any:
    """Replaces lone surrogates in all strings by question marks: arguments and paths may hold any bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [as_valid_text(item) for item in value]
    return {key: as_valid_text(item) for key, item in value.items()} if isinstance(value, dict) else value
