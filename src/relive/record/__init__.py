"""While the script runs: what each verb does, and what is captured around it."""

from typing import TYPE_CHECKING

from relive.doors import lazily
from relive.record.session import Driver, Place, here, session

if TYPE_CHECKING:
    from relive.record.args import take_out
    from relive.record.artifacts import read_object
    from relive.record.background import Background, background
    from relive.record.blocks import PlainBlock, RecordedBlock
    from relive.record.children import Member
    from relive.record.differences import changes_since, installed_packages, is_same_machine
    from relive.record.explicit import explicit_run
    from relive.record.loops import RecordedLoop
    from relive.record.off import NullJournal, Off
    from relive.record.opening import OpenRun, open_driver, open_explicitly
    from relive.record.recorder import Recorder
    from relive.record.surroundings import Surroundings, look_around
    from relive.record.warnings import say, warn_once

__all__ = [
    "Background",
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
    "background",
    "changes_since",
    "explicit_run",
    "here",
    "installed_packages",
    "is_same_machine",
    "look_around",
    "open_driver",
    "open_explicitly",
    "read_object",
    "say",
    "session",
    "take_out",
    "warn_once",
]

# Importing relive is quick; the rest is loaded by the first verb.
__getattr__ = lazily(
    __name__,
    {
        "args": "take_out",
        "background": "Background background",
        "artifacts": "read_object",
        "blocks": "PlainBlock RecordedBlock",
        "children": "Member",
        "differences": "changes_since installed_packages is_same_machine",
        "explicit": "explicit_run",
        "loops": "RecordedLoop",
        "off": "NullJournal Off",
        "opening": "OpenRun open_driver open_explicitly",
        "recorder": "Recorder",
        "surroundings": "Surroundings look_around",
        "warnings": "say warn_once",
    },
)
