"""Users' SQL: parsed, checked, and run in a sandboxed DuckDB over documented views."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.query.sql import sql_views
    from relive.query.sql.sandbox import Aliases, Result, columns_of, filter_table, is_text, matching, run
    from relive.query.sql.sql_views import RUNS, make_column, run_row

__getattr__ = lazy_names(__name__)
