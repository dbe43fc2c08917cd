"""Replays that were killed: what their workers had computed is kept when the next replay begins."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.abandoned.taking_up import take_up_killed

__getattr__ = lazy_names(__name__)
