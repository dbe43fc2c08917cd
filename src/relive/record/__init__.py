"""While the script runs: what each verb does, and what is captured around it."""

from typing import TYPE_CHECKING

from relive.doors import lazily
from relive.record.session import Driver, Place, here, session

if TYPE_CHECKING:
    from relive.record.ahead import asking_git
    from relive.record.args import take_out
    from relive.record.artifacts import load_from, read_object
    from relive.record.behind import Background, background
    from relive.record.blocks import PlainBlock, RecordedBlock
    from relive.record.children import Member
    from relive.record.differences import changes_since, installed_packages, is_same_machine
    from relive.record.environment import is_secret
    from relive.record.explicit import explicit_run
    from relive.record.fingerprint import Fingerprint, FingerprintCache, fingerprint_file, fingerprint_folder
    from relive.record.interrupts import is_users
    from relive.record.launch import LAUNCHED_BY, is_pool_worker, makes_rank
    from relive.record.loops import RecordedLoop
    from relive.record.noting import home_here, note, run_here
    from relive.record.off import NullJournal, Off
    from relive.record.opening import OpenRun, open_driver, open_explicitly
    from relive.record.outcome import ended_by
    from relive.record.recorder import Recorder
    from relive.record.surroundings import Surroundings, chosen_server, look_around
    from relive.record.warnings import say, warn_once

__all__ = [
    "LAUNCHED_BY",
    "Background",
    "Driver",
    "Fingerprint",
    "FingerprintCache",
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
    "asking_git",
    "background",
    "changes_since",
    "chosen_server",
    "ended_by",
    "explicit_run",
    "fingerprint_file",
    "fingerprint_folder",
    "here",
    "home_here",
    "installed_packages",
    "is_pool_worker",
    "is_same_machine",
    "is_secret",
    "is_users",
    "load_from",
    "look_around",
    "makes_rank",
    "note",
    "open_driver",
    "open_explicitly",
    "read_object",
    "run_here",
    "say",
    "session",
    "take_out",
    "warn_once",
]

# Importing relive is quick; the rest is loaded by the first verb.
__getattr__ = lazily(
    __name__,
    {
        "ahead": "asking_git",
        "args": "take_out",
        "behind": "Background background",
        "artifacts": "load_from read_object",
        "blocks": "PlainBlock RecordedBlock",
        "children": "Member",
        "differences": "changes_since installed_packages is_same_machine",
        "explicit": "explicit_run",
        "launch": "LAUNCHED_BY is_pool_worker makes_rank",
        "loops": "RecordedLoop",
        "off": "NullJournal Off",
        "environment": "is_secret",
        "fingerprint": "Fingerprint FingerprintCache fingerprint_file fingerprint_folder",
        "interrupts": "is_users",
        "noting": "home_here note run_here",
        "opening": "OpenRun open_driver open_explicitly",
        "outcome": "ended_by",
        "recorder": "Recorder",
        "surroundings": "Surroundings chosen_server look_around",
        "warnings": "say warn_once",
    },
)
