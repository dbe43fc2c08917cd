"""Recording: what each call of the API does while the script runs."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names
from relive.record.session import Driver, Place, here, session

if TYPE_CHECKING:
    from relive.record.args import take_out
    from relive.record.blocks import PlainBlock, RecordedBlock
    from relive.record.child_processes import ProcessMember
    from relive.record.loops import RecordedLoop
    from relive.record.off import NullJournal, Off
    from relive.record.outcome import ended_by
    from relive.record.recorder import Recorder
    from relive.record.run_context import explicit_run
    from relive.record.run_notes import home_here, note, run_here
    from relive.record.run_start import OpenRun, open_driver, open_explicitly
    from relive.record.version_prefetch import asking_git

__getattr__ = lazy_names(__name__)
