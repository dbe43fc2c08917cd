"""The recorded process: launch and rank, forks, signals, warnings, and relive's background threads."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.record.process.fork_safety import import_lock
    from relive.record.process.interrupts import is_users
    from relive.record.process.journal_syncer import JournalSyncer
    from relive.record.process.launch import LAUNCHED_BY, detect_launch, is_pool_worker, makes_rank
    from relive.record.process.launch_context import LaunchContext, chosen_server, read_launch_context
    from relive.record.process.rendezvous import join_shared_run
    from relive.record.process.shipper import Shipper
    from relive.record.process.user_warnings import say, warn_once

__getattr__ = lazy_names(__name__)
