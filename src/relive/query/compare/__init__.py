"""Comparisons of runs: leaderboards, diffs, sweeps, and the spread between the ranks of a run."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.query.compare.comparison import code_versions, compare, diff
    from relive.query.compare.leaderboard import LeaderboardTerms, build_leaderboard, rows_of
    from relive.query.compare.rank_spread import flat_steps, skew
    from relive.query.compare.scores import told_by_name
    from relive.query.compare.skew_alarms import Rule, Watched, watched
    from relive.query.compare.sweep_values import PRUNED, SweepMember, SweepValues

__getattr__ = lazy_names(__name__)
