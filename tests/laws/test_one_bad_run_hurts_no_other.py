"""Whatever the journals of one run hold, the other runs are listed, queried and ranked as if it were not there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from relive.query import QueryEngine
from relive.query.compare import LeaderboardTerms, build_leaderboard, leaderboard_rows
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import ROOT, SLOTS_MAGIC
from relive.store.journal.line_schema import kinds

EXAMPLES = int(os.environ.get("LAW_EXAMPLES", "40"))
GOOD, BAD = "0123456789ab", "ba0000000000"

scalars = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8)
tagged = st.dictionaries(
    st.sampled_from(["$float", "$int", "$array", "$tensor", "$frame", "$text", "$tuple", "$dict", "$bytes", "$"]),
    scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=5), scalars, max_size=2),
    min_size=1, max_size=1,
)  # fmt: skip
anything = st.recursive(scalars | tagged, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.text(max_size=6), inner, max_size=3), max_leaves=6)  # fmt: skip
numbers = st.integers(0, 5) | st.sampled_from([1 << 24, (1 << 32) - 1, 1 << 62])


@st.composite
def lines(draw: st.DrawFn) -> dict[str, Any]:
    """A line of a known kind; its fields hold what they should, or anything, or are missing."""
    kind = draw(st.sampled_from(sorted(kinds())))
    made: dict[str, Any] = {"v": 1, "seq": draw(st.integers(1, 30)), "t": draw(numbers), "k": kind,
                            "loop": draw(numbers), "i": draw(numbers)}  # fmt: skip
    for field in kinds()[kind].__struct_fields__[5:]:
        if draw(st.integers(0, 4)):
            made[field.removesuffix("_")] = draw(anything | numbers | st.sampled_from(["loss", "0" * 64, "finished"]))
    return made


slots = st.lists(
    st.tuples(numbers, numbers, st.binary(min_size=8, max_size=8), st.binary(min_size=4, max_size=4), st.integers(0, 4),
              st.sampled_from([1, 2, 3, 4, 5, 8, 20, 32, 44, 64, 65, 66, 67, 68, 69, 255])), max_size=12,
)  # fmt: skip


def slot_bytes(parts: tuple[int, int, bytes, bytes, int, int]) -> bytes:
    loop, iteration, value, time, name, kind = parts
    head = (loop & 0xFFFFFFFF).to_bytes(4, "little") + (iteration & 0xFFFFFFFF).to_bytes(4, "little")
    return head + value + time + (kind << 24 | name).to_bytes(4, "little")


def write_journal(folder: Path, lines: list[dict[str, Any]], slots: bytes = b"") -> None:
    folder.mkdir(parents=True)
    (folder / "0.slots").write_bytes(SLOTS_MAGIC + slots)
    (folder / "0.lines").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def line(kind: str, seq: int, **content: Any) -> dict[str, Any]:
    return {"v": 1, "seq": seq, "t": 1, "k": kind, "loop": ROOT, "i": 0, **content}


GOOD_LINES = [
    line("run", 1, run=GOOD, wall_ns=10**18, clock_ns=1), line("name", 2, id=1, name="loss"),
    line("end", 4, outcome="finished"),
]  # fmt: skip
GOOD_SLOTS = b"".join(
    slot_bytes((ROOT, 0, value, bytes(4), name, kind))
    for value, name, kind in [(bytes(8), 0, 5), (bytes(8), 0, 5), (struct.pack("<d", 0.5), 1, 1), (bytes(8), 0, 5)]
)


@contextlib.contextmanager
def home_with_a_good_run() -> Iterator[Home]:
    folder = Path(tempfile.mkdtemp())
    try:
        home = Home(folder / "home")
        home.create()
        write_journal(home.run_folder(GOOD), GOOD_LINES, GOOD_SLOTS)
        yield home
    finally:
        shutil.rmtree(folder)


def check_that_the_good_run_answers(home: Home, *, updates_catalog: bool) -> None:
    with contextlib.closing(Index(home, updates_catalog=updates_catalog)) as index:
        entries = index.runs()
        assert GOOD in {entry.record.run for entry in entries}
        index.refresh()
        index.loops(entries)
        index.checkpoints(entries)
        assert [summary.name for summary in index.summaries(entries)[GOOD]] == ["loss"]
        assert "loss" in index.names(entries)
        board = build_leaderboard(index, "loss", LeaderboardTerms(guard=()))
        assert GOOD in {row["run"] for row in leaderboard_rows(board)}
    frame = QueryEngine(home).dataframe(["loss"], where=None, ranks="all")
    assert 0.5 in frame["loss"].tolist()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bad=st.lists(lines(), max_size=6), slots=slots, with_header=st.booleans(), has_ended=st.booleans())
@example(bad=[line("tag", 2, value=1)], slots=[], with_header=True, has_ended=True)
@example(
    bad=[line("run", 2, run=BAD, wall_ns=1, clock_ns=1, world_size=1 << 60)],
    slots=[],
    with_header=False,
    has_ended=True,
)
def test_whatever_one_run_holds_the_others_answer(
    bad: list[dict[str, Any]], slots: list[tuple[int, int, bytes, bytes, int, int]], with_header: bool, has_ended: bool
):
    header = [line("run", 1, run=BAD, wall_ns=1, clock_ns=1)] if with_header else []
    end = [line("end", 40, outcome="finished")] if has_ended else []
    with home_with_a_good_run() as home:
        write_journal(home.run_folder(BAD), header + bad + end, b"".join(map(slot_bytes, slots)))

        check_that_the_good_run_answers(home, updates_catalog=True)
        check_that_the_good_run_answers(home, updates_catalog=False)
