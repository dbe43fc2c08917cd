"""Why a call is a hit or a miss: its key compared with those of stored calls of the same function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relive.errors import NotFound, ReliveError, Unstable
from relive.hashing import stable_hash
from relive.memo.home_stores import HOMES
from relive.memo.memoized_function import ATTRIBUTE, MemoizedFunction
from relive.memo.sqlite_memoizer import Sqlite
from relive.store.chunks import MemoRow, MemoTable, MissRow
from relive.store.journal import from_json

_MAX_COMPARED = 500
_MAX_CHANGES = 8

ArgumentFacts = Mapping[str, Sequence[str]]  # argument → (hash, short description)
_NOT_STORED_REASONS = {
    "filtered": "filtered: the store hook rejected the result, so it is computed every time",
    "raised": "the call raised an exception, which is not stored (list the types to store in exceptions=)",
    "unstorable": "the result can't be pickled, so it is computed every time",
    "unsettled": "the call changed what it had read, so its result was not stored",
}
_REJECTED_REASONS = {
    "expired": "expired: there is an entry, but the reuse hook rejected it",
    "unreadable": "there was an entry, but it could not be read",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether a call is a hit, and the reasons; printed with one reason per line."""

    function: str
    is_hit: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        first = "hit" if self.is_hit else "miss"
        return "\n".join([f"{self.function}: {first}", *(f"  {reason}" for reason in self.reasons)])


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """The parts of a call's key, to be compared with those of other calls."""

    key: str
    function: str
    code: str
    extra: str
    arguments: ArgumentFacts

    @classmethod
    def of(cls, row: MemoRow | MissRow) -> CallIdentity:
        return cls(row.key, row.function, row.code, row.extra, from_json(row.arguments))

    def differing_arguments(self, other: CallIdentity) -> list[str]:
        names = dict.fromkeys([*self.arguments, *other.arguments])
        return [name for name in names if _argument_hash(self.arguments, name) != _argument_hash(other.arguments, name)]


def explain(
    facts: CallIdentity, others: Sequence[CallIdentity], parts_of: Callable[[str], Mapping[str, str]]
) -> list[str]:
    """Returns what differs between a call and the most similar stored call of the same function."""
    if not others:
        return ["first call: no call of this function is stored"]
    near = min(others, key=lambda one: _distance(facts, one))
    reasons = []
    if near.code != facts.code:
        reasons += [
            f"new code: {change}" for change in _describe_code_changes(parts_of(near.code), parts_of(facts.code))
        ]
    if near.extra != facts.extra:
        reasons.append("new version, or a change in a file or variable listed in depends=")
    reasons += [
        f"new argument: {_describe_argument_change(facts, near, name)}" for name in facts.differing_arguments(near)
    ]
    return reasons or ["nothing differs: the entry was removed since, or is being computed now"]


def _distance(facts: CallIdentity, other: CallIdentity) -> tuple[int, int]:
    changed = len(facts.differing_arguments(other))
    return changed + (other.code != facts.code) + (other.extra != facts.extra), changed


def _describe_code_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    changed = [f"{name} changed" for name in after if name in before and before[name] != after[name]]
    new = [f"{name} is new" for name in after if name not in before]
    gone = [f"{name} is no longer used" for name in before if name not in after]
    return (changed + new + gone)[:_MAX_CHANGES] or ["some names refer to other functions or values than before"]


def _describe_argument_change(facts: CallIdentity, near: CallIdentity, name: str) -> str:
    now = facts.arguments.get(name, ("", "absent"))[1]
    before = near.arguments.get(name, ("", "absent"))[1]
    if now == before:
        return f"{name} = {now} has different content"
    return f"{name} = {now} (stored: {before})"


def _argument_hash(arguments: ArgumentFacts, name: str) -> str | None:
    return arguments[name][0] if name in arguments else None


# --- in Python -------------------------------------------------------------------------------------------------------


def why(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Whether calling a memoized function with these arguments would be a hit, and why; does not make the call.

    >>> print(relive.memo.why(features, "data.csv", size=64))
    """
    memoised = getattr(function, ATTRIBUTE, None)
    if not isinstance(memoised, MemoizedFunction):
        raise ReliveError(f"{function!r} is not memoized; decorate it with @relive.memo")
    store = memoised.options.memoizer or HOMES.store()
    name = memoised.keys.name
    if store is None:
        return Explanation(name, False, ("relive is off, so every call is computed",))
    try:
        call = memoised.keys.make(memoised.keys.bind(args, kwargs))
    except Unstable as error:
        return Explanation(name, False, (f"not remembered: {error}",))
    entry = memoised.find_entry(call, store)
    if entry is not None:
        if memoised.may_reuse(call, entry):
            return Explanation(name, True, (_describe_origin(entry.run, entry.age_days),))
        return Explanation(name, False, (_REJECTED_REASONS["expired"],))
    changed = memoised.changed_inputs(call, store)
    if changed:
        return Explanation(name, False, tuple(f"changed since it was read: {one}" for one in changed[:_MAX_CHANGES]))
    if not isinstance(store, Sqlite):
        return Explanation(name, False, ("this memoizer has no entry for the call",))
    facts = CallIdentity(call.key, name, call.code, call.extra, call.describe_arguments())
    parts = {call.code: call.parts()}
    return Explanation(name, False, tuple(_miss_reasons(store.memos, facts, parts)))


def _describe_origin(run: str, age_days: float) -> str:
    return f"computed {age_days:.1f} days ago" + (f" in run {run}" if run else " outside of any run")


def _miss_reasons(memos: MemoTable, facts: CallIdentity, parts: Mapping[str, Mapping[str, str]]) -> list[str]:
    last = memos.misses("function = ? and key = ?", (facts.function, facts.key), limit=1)
    if last and last[0].kept in _NOT_STORED_REASONS:
        return [_NOT_STORED_REASONS[last[0].kept]]
    others = [CallIdentity.of(row) for row in memos.rows("function = ?", (facts.function,), limit=_MAX_COMPARED)]

    def parts_of(code: str) -> Mapping[str, str]:
        return parts.get(code) or from_json(memos.parts(code))

    return explain(facts, [one for one in others if one.key != facts.key], parts_of)


# --- from the command line -------------------------------------------------------------------------------------------


def why_text(memos: MemoTable, text: str) -> Explanation:
    """Explains a function name or a call given as text; assumes the code as last recorded."""
    name, args, kwargs = _parse_call(text)
    function = find_function(memos, name)
    known: list[MissRow | MemoRow] = [*memos.misses("function = ?", (function,), limit=_MAX_COMPARED)]
    known += memos.rows("function = ?", (function,), limit=_MAX_COMPARED)
    if args is None:
        return _explain_row(memos, known[0])
    given_hashes = _hash_given_arguments(text, function, CallIdentity.of(known[0]), args, kwargs)
    same = next((row for row in known if _matches(CallIdentity.of(row), given_hashes)), None)
    if same is not None:
        return _explain_row(memos, same)
    last = CallIdentity.of(known[0])
    facts = replace(last, key="", arguments={**last.arguments, **given_hashes})
    return Explanation(function, False, ("no call with these arguments is recorded", *_miss_reasons(memos, facts, {})))


def find_function(memos: MemoTable, name: str) -> str:
    """Returns the full name of a function, given its name or the last parts of it."""
    known = memos.functions()
    matching = [one for one in known if one == name or one.endswith(f".{name}")]
    if not matching:
        raise NotFound(
            f"no calls of a function {name!r} are recorded; recorded functions: {', '.join(known) or 'none'}"
        )
    if len(matching) > 1 and name not in matching:
        raise NotFound(f"{name!r} is ambiguous: {', '.join(matching)}; write the full name")
    return name if name in matching else matching[0]


def _explain_row(memos: MemoTable, row: MissRow | MemoRow) -> Explanation:
    entry = memos.get(row.key)
    if isinstance(row, MissRow):
        # Compare with older entries only: this miss may have stored an entry itself.
        reasons = [_REJECTED_REASONS[row.found]] if row.found in _REJECTED_REASONS else []
        if row.kept in _NOT_STORED_REASONS:
            reasons.append(_NOT_STORED_REASONS[row.kept])
        if not reasons:
            older = memos.rows("function = ? and created_us < ? and key != ?", (row.function, row.time_us, row.key))
            facts = CallIdentity.of(row)
            reasons = explain(
                facts, [CallIdentity.of(one) for one in older[:_MAX_COMPARED]], lambda c: from_json(memos.parts(c))
            )
        if entry is not None:
            reasons.append("the result is stored now: the same call is a hit as long as the code stays the same")
        return Explanation(row.function, False, tuple(reasons))
    return Explanation(
        row.function, True, (f"stored under key {row.key[:12]}; a hit as long as the code stays the same",)
    )


def _parse_call(text: str) -> tuple[str, list[Any] | None, dict[str, Any]]:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            return ast.unparse(tree), None, {}
        args = [ast.literal_eval(one) for one in tree.args]
        kwargs = {one.arg: ast.literal_eval(one.value) for one in tree.keywords if one.arg is not None}
    except (SyntaxError, ValueError) as error:
        raise ReliveError(
            f"{text!r} is not a function name or a call with literal arguments; write features or "
            f"features('data.csv', size=64), or call relive.memo.why(features, …) in Python"
        ) from error
    return ast.unparse(tree.func), args, kwargs


def _hash_given_arguments(
    text: str, function: str, last: CallIdentity, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns hash and description of the given arguments by name; omitted arguments match anything."""
    names = list(last.arguments)
    positional = list(args)
    unknown = [name for name in kwargs if name not in names]
    if len(positional) > len(names) or unknown:
        raise ReliveError(f"{text!r} does not match the signature {function}({', '.join(names)}); correct it")
    named = dict(zip(names, positional, strict=False)) | dict(kwargs)
    counted = {name: value for name, value in named.items() if last.arguments[name][0]}
    return {name: (stable_hash(value)[:32], repr(value)[:80]) for name, value in counted.items()}


def _matches(facts: CallIdentity, given_hashes: ArgumentFacts) -> bool:
    return all(_argument_hash(facts.arguments, name) == fact[0] for name, fact in given_hashes.items())
