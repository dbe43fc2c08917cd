"""The recorded process: launch and rank, forks, signals, warnings, and relive's background threads."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.record.process.fork_safety import import_lock
    from relive.record.process.interrupts import raised_by_signal_handler
    from relive.record.process.journal_syncer import JournalSyncer
    from relive.record.process.launch_context import (
        LaunchContext,
        find_home_to_read,
        read_launch_context,
        select_server,
    )
    from relive.record.process.launcher_environment import (
        LAUNCH_VARIABLES,
        detect_launch,
        is_pool_worker,
        launches_rank,
    )
    from relive.record.process.losses import Losses, PausedJournal, reason_of
    from relive.record.process.notebook_cells import RERUN_LOOP, NotebookCells, python_source, watch_notebook_cells
    from relive.record.process.rendezvous import join_shared_run
    from relive.record.process.shipper import Shipper
    from relive.record.process.user_warnings import print_to_stderr, user_frame, warn_once

__getattr__ = lazy_names(__name__)
