"""The index over all journals: run records, summaries, columns of points. Derived: it can be deleted and rebuilt."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.catalog.index import Index
    from relive.store.catalog.points import Points
    from relive.store.catalog.replay_overlay import REPLAY_CHOICES, has_happened, list_replays
    from relive.store.catalog.run_catalog import find_index_damage, is_database_url
    from relive.store.catalog.run_entries import RunEntry, bypass_index, find_run, read_run
    from relive.store.catalog.summaries import TAIL_LENGTH, Summary, read_verdicts

__getattr__ = lazy_names(__name__)
