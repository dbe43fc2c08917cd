"""Comparisons of runs: leaderboards, diffs, sweeps, and the spread between the ranks of a run."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.query.compare.comparability import data_changes
    from relive.query.compare.comparison import compare_runs, diff_runs, list_code_versions
    from relive.query.compare.leaderboard import LeaderboardTerms, build_leaderboard, leaderboard_rows
    from relive.query.compare.rank_spread import rank_skew, skew_rows
    from relive.query.compare.run_table import RunTable, TableSort, TableTerms
    from relive.query.compare.scores import guess_order
    from relive.query.compare.skew_alarms import RuleStatus, SkewRule, check_rule
    from relive.query.compare.sweep_values import SweepMember, SweepValues

__getattr__ = lazy_names(__name__)
