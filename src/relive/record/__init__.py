"""Recording: what each call of the API does while the script runs."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names
from relive.record.session import Driver, Place, current_place, session

if TYPE_CHECKING:
    from relive.record.args import pop_kwargs
    from relive.record.blocks import PlainBlock, RecordedBlock
    from relive.record.child_processes import ProcessMember
    from relive.record.journal_driver import JournalDriver
    from relive.record.loops import RecordedLoop, how_left
    from relive.record.off import NullJournal, Off
    from relive.record.outcome import outcome_of
    from relive.record.run_context import explicit_run
    from relive.record.run_notes import current_home, current_run, record_line
    from relive.record.run_start import OpenRun, next_explicit_number, open_driver, open_explicit_run
    from relive.record.scalars import scalar_dtype

__getattr__ = lazy_names(__name__)
