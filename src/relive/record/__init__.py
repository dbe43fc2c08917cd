"""While the script runs: what each verb does, and what is captured around it."""

from relive.record.args import take_out
from relive.record.off import Off
from relive.record.opening import OpenRun, Surroundings, look_around, open_driver, open_explicitly
from relive.record.session import Driver, Place, here, session

__all__ = [
    "Driver",
    "Off",
    "OpenRun",
    "Place",
    "Surroundings",
    "here",
    "look_around",
    "open_driver",
    "open_explicitly",
    "session",
    "take_out",
]
