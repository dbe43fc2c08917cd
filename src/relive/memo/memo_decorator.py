"""The class of the callable module `relive.memo`; imports the rest of the room on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from relive.errors import ReliveError

if TYPE_CHECKING:
    from relive.memo.call_key import Call
    from relive.memo.explanation import Explanation
    from relive.memo.memoizer import Entry, InMemory, Memoizer

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Memo(ModuleType):
    """Memoize a function: reuse its stored results across calls, processes and runs.

    >>> @relive.memo
    ... def features(path, *, size=128): ...
    """

    if TYPE_CHECKING:  # lazily loaded names of the door, for type checkers

        def why(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Explanation: ...

        InMemory: type[InMemory]

    def register(self, kind: type[T], reduce: Callable[[T], object]) -> None:
        """Give a type and its subclasses a stable hash: `reduce` turns an instance into something that has one.

        >>> relive.memo.register(Tokenizer, lambda tokenizer: tokenizer.vocabulary)
        """
        from relive.hashing import register

        register(kind, reduce)

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self,
        *,
        ignore: Sequence[str] = (),
        store: Callable[[Call, Any], Any] | None = None,
        reuse: Callable[[Call, Entry], Any] | None = None,
        exceptions: tuple[type[BaseException], ...] = (),
        version: object = None,
        depends: Sequence[object] = (),
        memoizer: Memoizer | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def __call__(self, *function: Callable[..., Any], **options: Any) -> Any:
        from relive.memo.memoized_function import MemoizedFunction, MemoOptions

        unknown = [name for name in options if name not in MemoOptions.__slots__]
        if unknown or len(function) > 1:
            problem = f"has no option {unknown[0]!r}" if unknown else "takes one function"
            raise ReliveError(f"relive.memo {problem}; its keyword options are {', '.join(MemoOptions.__slots__)}")
        memo_options = MemoOptions(**options)
        if function:
            return MemoizedFunction(function[0], memo_options).wrap()
        return lambda decorated: MemoizedFunction(decorated, memo_options).wrap()
