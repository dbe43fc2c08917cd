"""Supervision of workers: their progress, how long they may go without any, and the stacks of those that hang."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.workers.supervision.process_group import processor_seconds
    from relive.hindsight.workers.supervision.progress_file import Progress, ProgressFile, read_progress
    from relive.hindsight.workers.supervision.stack_dumps import collect_stacks, dump_on_signal
    from relive.hindsight.workers.supervision.watchdog import DEFAULT_PATIENCE_S, Patience, Watchdog

__getattr__ = lazy_names(__name__)
