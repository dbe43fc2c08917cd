"""The vocabulary of runs: the run record, the outcomes, the verdicts on replayed values, and limits of names."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.model.run_record import RunRecord
    from relive.model.verdict import Verdict, count_words
    from relive.model.vocabulary import (
        FAILED,
        FINISHED,
        INTERRUPTED,
        KILLED,
        MAX_NAME_CHARS,
        PRUNED,
        RUNNING,
        SHORT_ID_DIGITS,
        clean_name,
        escape_surrogates,
    )

__getattr__ = lazy_names(__name__)
