"""Memoized calls: computed once, reused across processes and runs."""

import sys
from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names
from relive.memo.memo_decorator import Memo

if TYPE_CHECKING:
    from relive.memo.call_key import Call, Keys
    from relive.memo.entry_filter import parse_condition
    from relive.memo.explanation import Explanation, find_function, why, why_text
    from relive.memo.inputs import content_of
    from relive.memo.memoizer import Computed, Entry, InMemory, Memoizer
    from relive.memo.result_codec import Unstorable
    from relive.memo.single_flight import Flights
    from relive.memo.sqlite_memoizer import Sqlite

__getattr__ = lazy_names(__name__)

sys.modules[__name__].__class__ = Memo
