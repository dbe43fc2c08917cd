"""While the script runs: what each verb does, and what is captured around it."""

from typing import TYPE_CHECKING

from relive.doors import lazily
from relive.record.session import Driver, Place, here, session

if TYPE_CHECKING:
    from relive.record.args import take_out
    from relive.record.blocks import PlainBlock, RecordedBlock
    from relive.record.off import Off
    from relive.record.opening import OpenRun, open_driver, open_explicitly
    from relive.record.surroundings import Surroundings, look_around

__all__ = [
    "Driver",
    "Off",
    "OpenRun",
    "Place",
    "PlainBlock",
    "RecordedBlock",
    "Surroundings",
    "here",
    "look_around",
    "open_driver",
    "open_explicitly",
    "session",
    "take_out",
]

# Importing relive is quick; the rest is loaded by the first verb.
__getattr__ = lazily(
    __name__,
    {
        "args": "take_out",
        "blocks": "PlainBlock RecordedBlock",
        "off": "Off",
        "opening": "OpenRun open_driver open_explicitly",
        "surroundings": "Surroundings look_around",
    },
)
