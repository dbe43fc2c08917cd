"""When a checkpoint is taken: the checkpointer, its cost controller, and the schedule that ranks share."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.control.checkpointer import Checkpointer, LoopWatch
    from relive.checkpoint.control.rank_schedule import RankSchedule, agree_on_schedule

__getattr__ = lazy_names(__name__)
