"""Records → wide rows: the table over all runs, read-only SQL, and what runs come to beside each other."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.query.alarms import Rule, Watched, alert, first_breach, ranks_at_work, settled, watched
    from relive.query.boards import Terms, leaderboard, rows_of
    from relive.query.comparison import code_versions, compare, diff
    from relive.query.fleet import PRUNED, Fleet, Member
    from relive.query.places import HomeRuns, Runs, ServerRuns, Shown, listed
    from relive.query.query import Query
    from relive.query.scoring import told_by_name
    from relive.query.selection import Context
    from relive.query.spreads import Spread, flat_steps, skew, spread
    from relive.query.table import Table, to_frame, to_pandas

__all__ = [
    "PRUNED",
    "Context",
    "Fleet",
    "HomeRuns",
    "Member",
    "Query",
    "Rule",
    "Runs",
    "ServerRuns",
    "Shown",
    "Spread",
    "Table",
    "Terms",
    "Watched",
    "alert",
    "code_versions",
    "compare",
    "diff",
    "first_breach",
    "flat_steps",
    "leaderboard",
    "listed",
    "ranks_at_work",
    "rows_of",
    "settled",
    "skew",
    "spread",
    "to_frame",
    "to_pandas",
    "told_by_name",
    "watched",
]

# A question loads what it needs: the SQL engine is heavy.
__getattr__ = lazily(
    __name__,
    {
        "alarms": "Rule Watched alert first_breach ranks_at_work settled watched",
        "comparison": "code_versions compare diff",
        "fleet": "PRUNED Fleet Member",
        "boards": "Terms leaderboard rows_of",
        "places": "HomeRuns Runs ServerRuns Shown listed",
        "query": "Query",
        "scoring": "told_by_name",
        "selection": "Context",
        "spreads": "Spread flat_steps skew spread",
        "table": "Table to_frame to_pandas",
    },
)
