"""Sweeps in one script: calls that a pool makes, each recorded as a run."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.handsfree.sweeps.current_call import open_run_of_call
    from relive.handsfree.sweeps.pool_hooks import SWEEP_HOOKS
    from relive.handsfree.sweeps.sweep_calls import WorkerSetUp, sweep

__getattr__ = lazy_names(__name__)
