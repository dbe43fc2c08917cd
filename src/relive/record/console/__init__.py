"""What a run prints: its streams are tapped, and their lines recorded beside the journal."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.record.console.console_recorder import ConsoleRecorder

__getattr__ = lazy_names(__name__)
