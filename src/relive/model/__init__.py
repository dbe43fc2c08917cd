"""The words of a run: its record of six fields, its outcome, and the names that tables give to things."""

from typing import TYPE_CHECKING

from relive.doors import lazily
from relive.model.words import FAILED, FINISHED, KILLED, MAX_NAME_CHARS, RUNNING, SHORT_ID, clean_name

if TYPE_CHECKING:
    from relive.model.run_record import RunRecord

__all__ = [
    "FAILED",
    "FINISHED",
    "KILLED",
    "MAX_NAME_CHARS",
    "RUNNING",
    "SHORT_ID",
    "RunRecord",
    "clean_name",
]

# The first verb of a script waits for the words, but needs no record.
__getattr__ = lazily(__name__, {"run_record": "RunRecord"})
