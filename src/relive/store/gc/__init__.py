"""What a home keeps: retention, garbage collection, offload, integrity, recovery, texts removed from journals."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.gc.garbage_collector import collect_garbage
    from relive.store.gc.garbage_plan import GarbageReport, preview_garbage
    from relive.store.gc.integrity import check_home
    from relive.store.gc.journal_recovery import recover_home
    from relive.store.gc.journal_scrub import ScrubReport, scrub_run
    from relive.store.gc.offload import offload_locations
    from relive.store.gc.pins import is_pinned, pin, unpin
    from relive.store.gc.retention import Policy

__getattr__ = lazy_names(__name__)
