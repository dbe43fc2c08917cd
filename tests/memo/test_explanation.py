"""Why a call was computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import relive
from relive.errors import NotFound, QueryError, ReliveError
from relive.memo import parse_condition, why_text
from relive.memo.explanation import CallComparison, explain
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


def test_a_first_call_is_told(features: Any):
    told = relive.memo.why(features, "a")

    assert not told.is_hit
    assert told.reasons == ("first call: nothing of this function is remembered",)


def test_a_hit_is_told(features: Any):
    features("a")

    assert relive.memo.why(features, "a").is_hit
    assert str(relive.memo.why(features, "a")).startswith("steps.features: hit\n  computed 0.0 days ago")


def test_a_new_argument_is_named(features: Any):
    features("a")
    features("b", size=3)

    assert relive.memo.why(features, "c").reasons == ("new argument: path = 'c' (remembered: 'a')",)
    assert relive.memo.why(features, "b", size=4).reasons == ("new argument: size = 4 (remembered: 3)",)


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
    assert reason.endswith("has another content than before")


def test_new_code_names_the_helper(features: Any):
    features("a")
    exec("def clean(x):\n    return x.strip()\n", space)

    assert relive.memo.why(features, "a").reasons == ("new code: steps.clean changed",)
    assert relive.memo.why(features, "b").reasons == (
        "new code: steps.clean changed",
        "new argument: path = 'b' (remembered: 'a')",
    )


def test_filtered_expired_and_raised_are_told(home: Path):
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


def test_an_extra_that_changed_is_told(home: Path):
    def f(x: int) -> int:
        return x

    relive.memo(version=1)(f)(1)

    assert relive.memo.why(relive.memo(version=2)(f), 1).reasons[0].startswith("new version")


def test_it_is_told_when_there_is_nothing_to_compare(features: Any, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ReliveError, match="decorate it"):
        relive.memo.why(len, "x")
    in_memory = relive.memo(memoizer=InMemory())(space["clean"])
    assert "not in this memoizer" in relive.memo.why(in_memory, 1).reasons[0]
    monkeypatch.setenv("RELIVE_OFF", "1")
    assert "off" in relive.memo.why(features, 1).reasons[0]


def test_the_command_line_knows_calls_by_their_text(features: Any, home: Path):
    features("a")
    features("b", size=3)
    memos = MemoTable(home / "memo.sqlite")

    assert why_text(memos, "features").reasons[0] == "new argument: path = 'b' (remembered: 'a')"
    assert why_text(memos, "features('c')").reasons[:2] == (
        "no such call was made yet",
        "new argument: path = 'c' (remembered: 'b')",
    )
    assert why_text(memos, "steps.features('a')").reasons[0].startswith("first call")
    for text, message in [
        ("nothing", "known are steps.features"),
        ("features(open('x'))", "plain values"),
        ("features(", "plain values"),
        ("features(1, 2, 3, 4)", "does not fit"),
        ("features(wrong=1)", "does not fit"),
    ]:
        with pytest.raises((NotFound, ReliveError), match=message):
            why_text(memos, text)


def test_the_nearest_is_compared_with():
    def facts(code: str, **arguments: str) -> CallComparison:
        return CallComparison("", "f", code, "", {name: (told, told) for name, told in arguments.items()})

    others = [facts("old", a="1", b="1"), facts("new", a="2", b="1"), facts("new", a="3", b="3")]
    parts = {"old": {"f": "1", "g": "1", "gone": "1"}, "new": {"f": "1", "g": "2", "h": "1"}}

    assert explain(facts("new", a="1", b="1"), others, parts.__getitem__) == [
        "new code: g changed", "new code: h is new", "new code: gone is no longer used",
    ]  # fmt: skip
    assert explain(facts("new", a="2", b="9"), others, parts.__getitem__) == ["new argument: b = 9 (remembered: 1)"]


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
def test_conditions_that_are_not_understood_say_what_would_be(text: str):
    with pytest.raises(QueryError, match="write"):
        parse_condition(text)
