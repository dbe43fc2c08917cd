"""Where two runs parted, or the ranks of one: recorded states, digests and values, compared moment by moment."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.divergence.course import Course, Parting
    from relive.hindsight.divergence.rank_divergence import RankDivergence, diverge_ranks
    from relive.hindsight.divergence.run_differences import RunDifferences
    from relive.hindsight.divergence.run_divergence import Divergence, diverge_runs

__getattr__ = lazy_names(__name__)
