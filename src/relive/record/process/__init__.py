"""The recorded process: its launch and rank, its forks, signals and warnings, and the threads beside the training."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.record.process import launch
    from relive.record.process.fork_safety import loading
    from relive.record.process.interrupts import is_users
    from relive.record.process.journal_syncer import Syncer
    from relive.record.process.launch import LAUNCHED_BY, detect, is_pool_worker, makes_rank
    from relive.record.process.launch_context import LaunchContext, chosen_server, read_launch_context
    from relive.record.process.rendezvous import shared_run
    from relive.record.process.shipper import Shipper
    from relive.record.process.user_warnings import say, warn_once

__getattr__ = lazy_names(__name__)
