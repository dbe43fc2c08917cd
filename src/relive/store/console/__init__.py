"""The console output of a run: files beside its journals, bounded, of which the beginning and the end are kept."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.console.console_file import ConsoleFile, console_file_path, is_unfinished_part, list_console_files
    from relive.store.console.console_intake import MAX_PIECE_BYTES, ConsoleIntake
    from relive.store.console.console_shipment import ConsoleHeld, ConsoleShipment
    from relive.store.console.console_text import ConsoleLine, decode_record, read_console

__getattr__ = lazy_names(__name__)
