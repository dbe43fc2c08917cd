"""The wide table: logged values of many runs and loops, aligned as rows and typed columns."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.query.table.pivot_table import FIXED_DIMS, PROCESS_DIMS, RunFacts, pivot
    from relive.query.table.wide_table import Column, Mask, Table, rows_to_pandas, to_pandas

__getattr__ = lazy_names(__name__)
