"""The identity of a function: a hash of its code and of everything that the code refers to."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.memo.code.code_ownership import is_own_function
    from relive.memo.code.code_tokens import qualified_label, substitute_code
    from relive.memo.code.code_trace import trace
    from relive.memo.code.snapshot import Snapshot, StateRoot

__getattr__ = lazy_names(__name__)
