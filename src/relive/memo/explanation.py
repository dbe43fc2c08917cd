"""Why a call was, or would be, computed: compared with what is remembered of the same function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relive.errors import NotFound, ReliveError, Unstable
from relive.hashing import stable_hash
from relive.memo.home_stores import HOMES
from relive.memo.memoised import ATTRIBUTE, Memoised
from relive.memo.sqlite_memoizer import Sqlite
from relive.store.chunks import MemoRow, MemoTable, MissRow
from relive.store.journal import from_text

_COMPARED = 500
_SHOWN = 8

Looks = Mapping[str, Sequence[str]]  # argument → hash and how it looked
_KEPT = {
    "filtered": "filtered: the store hook declined the result, so it is computed every time",
    "raised": "it raised an exception, which is not stored (say which may be with exceptions=)",
    "unstorable": "the result can't be pickled, so it is computed every time",
}
_FOUND = {
    "expired": "expired: there is an entry, and the reuse hook declined it",
    "unreadable": "there was an entry, and it could not be read",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a call is remembered, and the reasons; printing it gives one reason a line."""

    function: str
    is_hit: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        first = "hit" if self.is_hit else "miss"
        return "\n".join([f"{self.function}: {first}", *(f"  {reason}" for reason in self.reasons)])


@dataclass(frozen=True, slots=True)
class CallComparison:
    """What a call is known by, in parts that can be compared."""

    key: str
    function: str
    code: str
    extra: str
    arguments: Looks

    @classmethod
    def of(cls, row: MemoRow | MissRow) -> CallComparison:
        return cls(row.key, row.function, row.code, row.extra, from_text(row.arguments))

    def differing(self, other: CallComparison) -> list[str]:
        names = dict.fromkeys([*self.arguments, *other.arguments])
        return [name for name in names if _hash(self.arguments, name) != _hash(other.arguments, name)]


def explain(
    facts: CallComparison, others: Sequence[CallComparison], parts_of: Callable[[str], Mapping[str, str]]
) -> list[str]:
    """What is new about a call, against the nearest of the same function that are remembered."""
    if not others:
        return ["first call: nothing of this function is remembered"]
    near = min(others, key=lambda one: _distance(facts, one))
    reasons = []
    if near.code != facts.code:
        reasons += [f"new code: {told}" for told in _changes(parts_of(near.code), parts_of(facts.code))]
    if near.extra != facts.extra:
        reasons.append("new version, or a file or variable that it depends on changed")
    reasons += [f"new argument: {_change(facts, near, name)}" for name in facts.differing(near)]
    return reasons or ["nothing is new: it was removed since, or is being computed"]


def _distance(facts: CallComparison, other: CallComparison) -> tuple[int, int]:
    changed = len(facts.differing(other))
    return changed + (other.code != facts.code) + (other.extra != facts.extra), changed


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    changed = [f"{name} changed" for name in after if name in before and before[name] != after[name]]
    new = [f"{name} is new" for name in after if name not in before]
    gone = [f"{name} is no longer used" for name in before if name not in after]
    told = changed + new + gone
    return told[:_SHOWN] or ["names mean other functions or values than before"]


def _change(facts: CallComparison, near: CallComparison, name: str) -> str:
    now = facts.arguments.get(name, ("", "absent"))[1]
    before = near.arguments.get(name, ("", "absent"))[1]
    if now == before:
        return f"{name} = {now} has another content than before"
    return f"{name} = {now} (remembered: {before})"


def _hash(arguments: Looks, name: str) -> str | None:
    return arguments[name][0] if name in arguments else None


# --- in Python -------------------------------------------------------------------------------------------------------


def why(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Whether calling a remembered function like this would be a hit now, and if not, why; the call isn't made.

    >>> print(relive.memo.why(features, "data.csv", size=64))
    """
    memoised = getattr(function, ATTRIBUTE, None)
    if not isinstance(memoised, Memoised):
        raise ReliveError(f"{function!r} is not remembered; decorate it with @relive.memo")
    store = memoised.options.memoizer or HOMES.store()
    name = memoised.keys.name
    if store is None:
        return Explanation(name, False, ("relive is off, so every call is computed",))
    try:
        call = memoised.keys.make(memoised.keys.bind(args, kwargs))
    except Unstable as error:
        return Explanation(name, False, (f"not remembered: {error}",))
    entry = store.look_up(call.key)
    if entry is not None:
        if memoised.may_reuse(call, entry):
            return Explanation(name, True, (_told(entry.run, entry.age_days),))
        return Explanation(name, False, (_FOUND["expired"],))
    if not isinstance(store, Sqlite):
        return Explanation(name, False, ("it is not in this memoizer",))
    facts = CallComparison(call.key, name, call.code, call.extra, call.looks())
    parts = {call.code: call.parts()}
    return Explanation(name, False, tuple(_reasons(store.memos, facts, parts)))


def _told(run: str, age_days: float) -> str:
    return f"computed {age_days:.1f} days ago" + (f" in run {run}" if run else " outside of any run")


def _reasons(memos: MemoTable, facts: CallComparison, parts: Mapping[str, Mapping[str, str]]) -> list[str]:
    last = memos.misses("function = ? and key = ?", (facts.function, facts.key), limit=1)
    if last and last[0].kept in _KEPT:
        return [_KEPT[last[0].kept]]
    others = [CallComparison.of(row) for row in memos.rows("function = ?", (facts.function,), limit=_COMPARED)]

    def parts_of(code: str) -> Mapping[str, str]:
        return parts.get(code) or from_text(memos.parts(code))

    return explain(facts, [one for one in others if one.key != facts.key], parts_of)


# --- from the command line -------------------------------------------------------------------------------------------


def why_text(memos: MemoTable, text: str) -> Explanation:
    """The same for a function, or a call of one, that is written down; the code is as it was last seen."""
    name, args, kwargs = _parsed(text)
    function = find_function(memos, name)
    known: list[MissRow | MemoRow] = [*memos.misses("function = ?", (function,), limit=_COMPARED)]
    known += memos.rows("function = ?", (function,), limit=_COMPARED)
    if args is None:
        return _why_last(memos, known[0])
    wanted = _wanted(text, function, CallComparison.of(known[0]), args, kwargs)
    same = next((row for row in known if _fits(CallComparison.of(row), wanted)), None)
    if same is not None:
        return _why_last(memos, same)
    last = CallComparison.of(known[0])
    facts = replace(last, key="", arguments={**last.arguments, **wanted})
    return Explanation(function, False, ("no such call was made yet", *_reasons(memos, facts, {})))


def find_function(memos: MemoTable, name: str) -> str:
    """A function by its name, or by the end of it."""
    known = memos.functions()
    fitting = [one for one in known if one == name or one.endswith(f".{name}")]
    if not fitting:
        raise NotFound(f"nothing is known of a function {name!r}; known are {', '.join(known) or 'none'}")
    if len(fitting) > 1 and name not in fitting:
        raise NotFound(f"{name!r} could be {', '.join(fitting)}; write the whole name")
    return name if name in fitting else fitting[0]


def _why_last(memos: MemoTable, row: MissRow | MemoRow) -> Explanation:
    entry = memos.get(row.key)
    if isinstance(row, MissRow):
        # The entry that this miss left behind must not be compared with itself, nor later ones with it.
        reasons = [_FOUND[row.found]] if row.found in _FOUND else []
        if row.kept in _KEPT:
            reasons.append(_KEPT[row.kept])
        if not reasons:
            older = memos.rows("function = ? and created_us < ? and key != ?", (row.function, row.time_us, row.key))
            facts = CallComparison.of(row)
            reasons = explain(
                facts, [CallComparison.of(one) for one in older[:_COMPARED]], lambda c: from_text(memos.parts(c))
            )
        if entry is not None:
            reasons.append("since then it is remembered: the same call is a hit, as long as the code is the same")
        return Explanation(row.function, False, tuple(reasons))
    return Explanation(row.function, True, (f"remembered under {row.key[:12]}, as long as the code is the same",))


def _parsed(text: str) -> tuple[str, list[Any] | None, dict[str, Any]]:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            return ast.unparse(tree), None, {}
        args = [ast.literal_eval(one) for one in tree.args]
        kwargs = {one.arg: ast.literal_eval(one.value) for one in tree.keywords if one.arg is not None}
    except (SyntaxError, ValueError) as error:
        raise ReliveError(
            f"{text!r} can't be understood; write features or features('data.csv', size=64) with plain values, "
            f"or ask relive.memo.why(features, …) in Python"
        ) from error
    return ast.unparse(tree.func), args, kwargs


def _wanted(
    text: str, function: str, last: CallComparison, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Hash and looks of the arguments that were written down, by name; those left out may be anything."""
    names = list(last.arguments)
    given = list(args)
    unknown = [name for name in kwargs if name not in names]
    if len(given) > len(names) or unknown:
        raise ReliveError(f"{text!r} does not fit {function}({', '.join(names)}); correct it")
    named = dict(zip(names, given, strict=False)) | dict(kwargs)
    counted = {name: value for name, value in named.items() if last.arguments[name][0]}
    return {name: (stable_hash(value)[:32], repr(value)[:80]) for name, value in counted.items()}


def _fits(facts: CallComparison, wanted: Looks) -> bool:
    return all(_hash(facts.arguments, name) == told[0] for name, told in wanted.items())
