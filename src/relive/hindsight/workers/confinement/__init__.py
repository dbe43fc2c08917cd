"""Write protection of replay processes, and what they open: by the Linux kernel, and inside Python."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.workers.confinement.landlock import restrict_writes
    from relive.hindsight.workers.confinement.open_monitor import WRITE_FLAGS, OpenMonitor, OpenRules, start_monitor
    from relive.hindsight.workers.confinement.private_copies import OWN_FOLDERS, UNKNOWN_BEGINNING, PrivateCopies
    from relive.hindsight.workers.confinement.write_guard import WriteGuard, is_renewed

__getattr__ = lazy_names(__name__)
