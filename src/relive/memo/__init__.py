"""Remember expensive calls: computed once, reused over processes and runs, and never wrongly."""

import sys
from typing import TYPE_CHECKING

from relive.doors import lazily
from relive.memo.face import Memo

if TYPE_CHECKING:
    from relive.memo.conditions import parse_condition
    from relive.memo.explaining import Explanation, find_function, why, why_text
    from relive.memo.flights import Flights
    from relive.memo.keys import Call, Keys, content_of
    from relive.memo.memoizer import Computed, Entry, InMemory, Memoizer
    from relive.memo.results import Unstorable
    from relive.memo.sqlite import Sqlite

__all__ = [
    "Call",
    "Computed",
    "Entry",
    "Explanation",
    "Flights",
    "InMemory",
    "Keys",
    "Memo",
    "Memoizer",
    "Sqlite",
    "Unstorable",
    "content_of",
    "find_function",
    "parse_condition",
    "why",
    "why_text",
]

# `import relive` loads this door only.
__getattr__ = lazily(
    __name__,
    {
        "conditions": "parse_condition",
        "explaining": "Explanation find_function why why_text",
        "flights": "Flights",
        "keys": "Call Keys content_of",
        "memoizer": "Computed Entry InMemory Memoizer",
        "results": "Unstorable",
        "sqlite": "Sqlite",
    },
)

sys.modules[__name__].__class__ = Memo
