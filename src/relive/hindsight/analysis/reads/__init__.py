"""What the code of a replay reads: clocks, addresses and the network, and which state its statements can see."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.analysis.reads.added_state import find_added_state, has_callbacks
    from relive.hindsight.analysis.reads.code_facts import CodeFacts

__getattr__ = lazy_names(__name__)
