"""Records → wide rows: the table over all runs, and read-only SQL."""

from relive.query.query import Query
from relive.query.selection import Context
from relive.query.table import Table, to_pandas

__all__ = ["Context", "Query", "Table", "to_pandas"]
