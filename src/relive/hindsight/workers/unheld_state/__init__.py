"""State that no checkpoint holds: a replay that uses it after a restore notices, and is done from the start."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.workers.unheld_state.gradient_watch import GradientWatch
    from relive.hindsight.workers.unheld_state.outside_reads import OutsideReads, OutsideRecord
    from relive.hindsight.workers.unheld_state.persistent_loaders import STALE, PersistentLoaders

__getattr__ = lazy_names(__name__)
