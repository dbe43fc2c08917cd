"""State that a function both reads and changes: who changed it last decides whether it is an input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relive.errors import Unstable
from relive.memo.code import StateRoot

_Place = tuple[int, str]


class _Identity:
    """Equal for the same object only. Holds it, so that no other object gets its address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class ChangingState:
    """The state of one function in this process.

    State counts as it was when somebody else last changed it; what the function's own calls add to it, as to a cache,
    does not count. So a cache is no input, in this process and the next, and a setting is one.
    """

    def __init__(self, hash_value: Callable[[Any], str]) -> None:
        self._hash = hash_value
        self._known: dict[_Place, tuple[Any, str | _Identity, str]] = {}  # holder, content after the last look, token

    def tokens(self, roots: Sequence[StateRoot]) -> dict[str, str]:
        """Returns what counts of each state; raises `Unstable` if somebody else put something there without a hash."""
        found = {}
        for root in roots:
            place, now = _place(root), self._content(root.read())
            known = self._known.get(place)
            if known is not None and known[1] == now:
                found[root.label] = known[2]
                continue
            if not isinstance(now, str):
                raise Unstable(f"{root.label}: no stable hash for an object of type {type(now.value).__qualname__}")
            self._known[place] = root.holder, now, now
            found[root.label] = now
        return found

    def watch(self, roots: Sequence[StateRoot]) -> Callable[[], dict[str, bool]]:
        """Returns a function to call after a computation: it returns what this has changed, and whether only by adding.

        What is added to a dict or set, or replaces None, is a cache: a hit that does not add it changes no result.
        """
        before = [(root, value := root.read(), self._content(value), self._filled(value)) for root in roots]

        def changed() -> dict[str, bool]:
            found = {}
            for root, old, content, filled in before:
                value = root.read()
                now = self._content(value)
                if now == content:
                    continue
                known = self._known.get(_place(root))
                token = known[2] if known is not None else str(content)
                self._known[_place(root)] = root.holder, now, token
                is_added = filled is not None and self._filled(value, filled[0]) == filled
                found[root.label] = old is None or is_added
            return found

        return changed

    def _content(self, value: Any) -> str | _Identity:
        """Returns the hash of a value; its identity if it has none."""
        try:
            return self._hash(value)
        except Unstable:
            return _Identity(value)

    def _filled(self, value: Any, names: Any = None) -> tuple[Any, Any] | None:
        """Returns the keys and the hash of those items of a dict, set or object that are not None."""
        if isinstance(value, set):
            items: dict[Any, Any] = dict.fromkeys(value, True)
        elif isinstance(value, dict):
            items = value
        else:
            items = getattr(value, "__dict__", {})
            if not items:
                return None
        kept = [key for key, item in items.items() if item is not None] if names is None else names
        return kept, self._content([items.get(key) for key in kept])


def _place(root: StateRoot) -> _Place:
    return id(root.holder), root.name
