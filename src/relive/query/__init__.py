"""Queries over recorded runs: the wide table, read-only SQL and leaderboards, in a home or on a server."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.query.backends import HomeRuns, RunDetails, RunsBackend, ServerRuns, run_list_row
    from relive.query.context_selection import IterationContext
    from relive.query.query_engine import QueryEngine

__getattr__ = lazy_names(__name__)
