"""How `relive.memo` can be called although it is a module: light, and loads the rest when it is first used."""

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
    """Remember the results of a function over calls, processes and runs.

    >>> @relive.memo
    ... def features(path, *, size=128): ...
    """

    if TYPE_CHECKING:  # what the door offers besides, for those who check types

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
        from relive.memo.memoised import Memoised, MemoOptions

        unknown = [name for name in options if name not in MemoOptions.__slots__]
        if unknown or len(function) > 1:
            wrong = f"no option {unknown[0]!r}" if unknown else "one function at a time"
            raise ReliveError(
                f"relive.memo has {wrong}; write @relive.memo({', '.join(MemoOptions.__slots__)}), all by name"
            )
        chosen = MemoOptions(**options)
        if function:
            return Memoised(function[0], chosen).wrap()
        return lambda decorated: Memoised(decorated, chosen).wrap()
