"""Why a call was computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive
from relive.errors import NotFound, QueryError, ReliveError
from relive.memo import parse_condition, why_text
from relive.memo.explanation import CallIdentity, explain
from relive.memo.memoizer import InMemory
from relive.store.chunks import MemoRow, MemoTable

space: dict[str, Any] = {"__name__": "steps", "relive": relive}
STEPS = """
def clean(x):
    return x

@relive.memo
def features(path, *, size=128, verbose=False):
    return clean(path) * size
"""


@pytest.fixture
def features() -> Any:
    exec(STEPS, space)
    return space["features"]


def test_a_first_call_is_explained(features: Any):
    explained = relive.memo.why(features, "a")

    assert not explained.is_hit
    assert explained.reasons == ("first call: no call of this function is stored",)


def test_a_hit_is_explained(features: Any):
    features("a")

    assert relive.memo.why(features, "a").is_hit
    assert str(relive.memo.why(features, "a")).startswith("steps.features: hit\n  computed 0.0 days ago")


def test_a_new_argument_is_named(features: Any):
    features("a")
    features("b", size=3)

    assert relive.memo.why(features, "c").reasons == ("new argument: path = 'c' (stored: 'a')",)
    assert relive.memo.why(features, "b", size=4).reasons == ("new argument: size = 4 (stored: 3)",)


def test_a_path_whose_content_is_new_is_named(features: Any, tmp_path: Path):
    @relive.memo
    def read(path: Path) -> str:
        return path.read_text()

    path = tmp_path / "x"
    path.write_text("1")
    read(path)
    path.write_text("2")

    (reason,) = relive.memo.why(read, path).reasons
    assert reason.startswith("new argument: path = PosixPath(")
    assert reason.endswith("has different content")


def test_new_code_names_the_helper(features: Any):
    features("a")
    exec("def clean(x):\n    return x.strip()\n", space)

    assert relive.memo.why(features, "a").reasons == ("new code: steps.clean changed",)
    assert relive.memo.why(features, "b").reasons == (
        "new code: steps.clean changed",
        "new argument: path = 'b' (stored: 'a')",
    )


def test_filtered_expired_and_raised_calls_are_explained(home: Path):
    @relive.memo(store=lambda call, result: False)
    def filtered(x: int) -> int:
        return x

    @relive.memo(reuse=lambda call, entry: False)
    def expired(x: int) -> int:
        return x

    @relive.memo
    def raises(x: int) -> int:
        raise ValueError(x)

    filtered(1)
    expired(1)
    with pytest.raises(ValueError, match="1"):
        raises(1)

    assert relive.memo.why(filtered, 1).reasons[0].startswith("filtered")
    assert relive.memo.why(expired, 1).reasons[0].startswith("expired")
    assert "raised an exception" in relive.memo.why(raises, 1).reasons[0]
    memos = MemoTable(home / "memo.sqlite")
    assert why_text(memos, "filtered(1)").reasons[0].startswith("filtered")


def test_a_changed_version_or_dependency_is_explained(home: Path):
    def f(x: int) -> int:
        return x

    relive.memo(version=1)(f)(1)

    assert relive.memo.why(relive.memo(version=2)(f), 1).reasons[0].startswith("new version")


def test_a_memoizer_without_history_and_relive_off_are_explained(features: Any, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ReliveError, match="decorate it"):
        relive.memo.why(len, "x")
    in_memory = relive.memo(memoizer=InMemory())(space["clean"])
    assert "has no entry for the call" in relive.memo.why(in_memory, 1).reasons[0]
    monkeypatch.setenv("RELIVE_OFF", "1")
    assert "off" in relive.memo.why(features, 1).reasons[0]


def test_a_call_given_as_text_is_explained(features: Any, home: Path):
    features("a")
    features("b", size=3)
    memos = MemoTable(home / "memo.sqlite")

    assert why_text(memos, "features").reasons[0] == "new argument: path = 'b' (stored: 'a')"
    assert why_text(memos, "features('c')").reasons[:2] == (
        "no call with these arguments is recorded",
        "new argument: path = 'c' (stored: 'b')",
    )
    assert why_text(memos, "steps.features('a')").reasons[0].startswith("first call")
    for text, message in [
        ("nothing", "recorded functions: steps.features"),
        ("features(open('x'))", "literal arguments"),
        ("features(", "literal arguments"),
        ("features(1, 2, 3, 4)", "does not match"),
        ("features(wrong=1)", "does not match"),
    ]:
        with pytest.raises((NotFound, ReliveError), match=message):
            why_text(memos, text)


def test_a_call_is_compared_with_the_most_similar_stored_call():
    def facts(code: str, **arguments: str) -> CallIdentity:
        return CallIdentity("", "f", code, "", {name: (text, text) for name, text in arguments.items()})

    others = [facts("old", a="1", b="1"), facts("new", a="2", b="1"), facts("new", a="3", b="3")]
    parts = {"old": {"f": "1", "g": "1", "gone": "1"}, "new": {"f": "1", "g": "2", "h": "1"}}

    assert explain(facts("new", a="1", b="1"), others, parts.__getitem__) == [
        "new code: g changed", "new code: h is new", "new code: gone is no longer used",
    ]  # fmt: skip
    assert explain(facts("new", a="2", b="9"), others, parts.__getitem__) == ["new argument: b = 9 (stored: 1)"]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("age > 30d", True),
        ("age > 41d", False),
        ("age > 30d and size > 10MB", False),
        ("unused >= 1h and took < 2s and kind = result", True),
        ("size <= 5kB and run != 'abc'", False),
        ("function = steps.f", True),
    ],
)
def test_conditions_on_entries(text: str, fits: bool):
    now_us = 10**15
    row = MemoRow("k", "steps.f", "result", b"", "", "", 4000, "", "", "", "", "abc", now_us - 40 * 86400 * 10**6,
                  now_us - 3600 * 10**6, 1.0)  # fmt: skip

    assert parse_condition(text, now_us / 1e6)(row) == fits


@pytest.mark.parametrize(
    "text", ["age", "age > ", "age > 3x", "size > 1.2.3MB", "wrong > 3", "age > 3d or age < 1d", ""]
)
def test_an_invalid_condition_raises_with_the_syntax(text: str):
    with pytest.raises(QueryError, match="write"):
        parse_condition(text)
