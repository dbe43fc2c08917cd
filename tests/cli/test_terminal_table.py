"""Tables fit the terminal, keep what was asked for whole, and name what they leave out."""

from __future__ import annotations

import datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.cli.display import differing_args, format_times
from relive.cli.terminal_table import TerminalColumn, arrange, columns_of, cut, pick, printable, text_width

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)


@st.composite
def tables(draw) -> list[TerminalColumn]:
    rows, count = draw(st.integers(0, 5)), draw(st.integers(1, 7))
    return [
        TerminalColumn(
            f"c{at}", draw(st.lists(TEXTS, min_size=rows, max_size=rows)), rank=draw(st.integers(0, 4)),
            is_number=draw(st.booleans()), is_cut=draw(st.booleans()), stays=draw(st.booleans()),
        )
        for at in range(count)
    ]  # fmt: skip


@given(tables(), st.integers(1, 120))
def test_a_table_fits_unless_only_columns_that_are_always_shown_are_left(columns, width):
    found = arrange(columns, width)

    lines = found.lines() if found.columns else []
    if any(text_width(line) > width for line in lines):
        assert all(column.rank == 0 for column in found.columns)
    told = [*(column.title for column in found.columns), *(name for name, _ in found.common), *found.left_out]
    silent = {column.title for column in columns if not any(map(printable, column.cells)) and not column.stays}
    assert {column.title for column in columns} - silent <= {*told}
    assert len(told) == len({*told})


@given(tables(), st.integers(1, 120))
def test_what_is_always_shown_is_whole(columns, width):
    shown = {column.title: column for column in arrange(columns, width).columns}

    for column in columns:
        if column.rank == 0:
            assert [*shown[column.title].cells] == [printable(cell) for cell in column.cells] or column.is_cut


@given(tables())
def test_without_a_width_everything_is_shown(columns):
    found = arrange(columns, None)

    assert [column.title for column in found.columns] == [column.title for column in columns]
    assert not found.common
    assert not found.left_out


@given(TEXTS, st.integers(2, 40))
def test_a_cut_text_fits_and_shows_that_it_was_cut(text, width):
    found = cut(text, width)

    assert text_width(found) <= max(width, 2)
    assert found == text or found.endswith("…")


@given(TEXTS)
def test_texts_from_elsewhere_do_not_steer_the_terminal(text):
    assert printable(text).isprintable()


def test_what_is_equal_in_all_rows_is_said_once():
    columns = [
        TerminalColumn("run", ["a", "b"], rank=0),
        TerminalColumn("script", ["t.py", "t.py"]),
        TerminalColumn("lr", ["1", "2"]),
    ]
    found = arrange(columns, 80)

    assert found.common == [("script", "t.py")]
    assert found.lines() == ["run  lr", "a    1", "b    2"]


def test_numbers_are_aligned_at_the_right_and_wide_characters_count_twice():
    found = arrange(
        columns_of([TerminalColumn("名前"), TerminalColumn("n", is_number=True)], [["語", "1"], ["ab", "100"]]), 80
    )

    assert found.lines() == ["名前    n", "語      1", "ab    100"]


def test_columns_are_picked_in_their_order():
    columns = [TerminalColumn("a", ["1"]), TerminalColumn("b", ["2"])]

    assert [column.title for column in pick(columns, "b, a")] == ["b", "a"]
    with pytest.raises(click.UsageError, match="no column 'c'; there are a, b"):
        pick(columns, "c")


def test_args_that_are_equal_in_all_runs_are_told_apart():
    own, equal = differing_args([{"lr": 1, "seed": 0, "new": 1}, {"lr": 2, "seed": 0}])

    assert own == [{"lr": 1, "new": 1}, {"lr": 2}]
    assert equal == {"seed": 0}
    assert differing_args([{"lr": 1}]) == ([{"lr": 1}], {})


def test_times_are_as_short_as_they_can_be():
    now = datetime.datetime(2026, 5, 2, 12, tzinfo=datetime.UTC).astimezone()
    at = [int(now.timestamp() * 1e6) - ago * 1_000_000 for ago in (60, 3 * 86_400, 400 * 86_400)]

    assert [len(one) for one in format_times(at[:1], now)] == [len("11:59:00")]
    assert {len(one) for one in format_times(at[:2], now)} == {len("05-02 11:59")}
    assert {len(one) for one in format_times(at, now)} == {len("2026-05-02 11:59")}
