"""While the script runs: what each verb does, and what is captured around it."""

from typing import TYPE_CHECKING

from relive.doors import lazily
from relive.record.session import Driver, Place, here, session

if TYPE_CHECKING:
    from relive.record.args import take_out
    from relive.record.blocks import PlainBlock, RecordedBlock
    from relive.record.children import Member
    from relive.record.differences import changes_since, is_same_machine
    from relive.record.loops import RecordedLoop
    from relive.record.off import NullJournal, Off
    from relive.record.opening import OpenRun, open_driver, open_explicitly
    from relive.record.outcome import ended_by
    from relive.record.recorder import Recorder
    from relive.record.surroundings import Surroundings, look_around
    from relive.record.warnings import say

__all__ = [
    "Driver",
    "Member",
    "NullJournal",
    "Off",
    "OpenRun",
    "Place",
    "PlainBlock",
    "RecordedBlock",
    "RecordedLoop",
    "Recorder",
    "Surroundings",
    "changes_since",
    "ended_by",
    "here",
    "is_same_machine",
    "look_around",
    "open_driver",
    "open_explicitly",
    "say",
    "session",
    "take_out",
]

# Importing relive is quick; the rest is loaded by the first verb.
__getattr__ = lazily(
    __name__,
    {
        "args": "take_out",
        "blocks": "PlainBlock RecordedBlock",
        "children": "Member",
        "differences": "changes_since is_same_machine",
        "loops": "RecordedLoop",
        "off": "NullJournal Off",
        "opening": "OpenRun open_driver open_explicitly",
        "outcome": "ended_by",
        "recorder": "Recorder",
        "surroundings": "Surroundings look_around",
        "warnings": "say",
    },
)
