"""Queries over recorded runs: the wide table, read-only SQL and leaderboards, in a home or on a server."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.query.bounded_cells import MAX_CELL_CHARS, cell_chars, cut_cell, cut_run_row
    from relive.query.console_lines import console_json
    from relive.query.context_selection import IterationContext
    from relive.query.query_engine import QueryEngine
    from relive.query.record_pages import page_of, page_of_record
    from relive.query.runs_backends import HomeRuns, RunDetails, RunsBackend, ServerRuns, run_list_row

__getattr__ = lazy_names(__name__)
