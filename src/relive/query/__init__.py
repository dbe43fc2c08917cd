"""Records → wide rows: the table over all runs, and read-only SQL."""

from relive.query.query import Query
from relive.query.table import Table, to_pandas

__all__ = ["Query", "Table", "to_pandas"]
