"""Hydra's multirun: each job is a run of a sweep."""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any

from relive.handsfree.configs import hook_hydra, listen_to
from relive.handsfree.sweeps.sweep_calls import sweep
from relive.record import explicit_run


class HydraJobs:
    """The job that is running; Hydra runs one at a time in a process."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()

    def begin(self, _result: Any, _callbacks: Any, config: Any, **_others: Any) -> None:
        mode = config.hydra.mode
        if mode is not None and mode.name == "MULTIRUN":
            tags = sweep.tags(trial=config.hydra.job.num)
            self._open.enter_context(explicit_run("", tags))

    def end(self, _result: Any, _callbacks: Any, config: Any, job_return: Any, **_others: Any) -> None:
        error = job_return._return_value if job_return.status.name == "FAILED" else None
        try:
            self._open.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except Exception as raised:
            if raised is not error:  # which Hydra raises itself, when it reads the result of the job
                raise


def hook_hydra_jobs(module: ModuleType) -> None:
    jobs = HydraJobs()
    listen_to(module.Callbacks, "on_job_start", jobs.begin)
    listen_to(module.Callbacks, "on_job_end", jobs.end)
    hook_hydra(module)  # after it: the config belongs to the run of the job
