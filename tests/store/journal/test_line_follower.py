"""Lines of a journal that grows, read once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relive.errors import Damaged
from relive.store.journal import RECORD_KINDS, LineFollower, encode_line, line_schema, read_lines, record_builder

TAGS = frozenset({"tag", "end"})


def tag(seq: int, value: str = "x") -> bytes:
    return encode_line(line_schema.Tag(seq=seq, t=seq, loop=1, i=0, name=f"tag {seq}", value=value))


def value(seq: int) -> bytes:
    return encode_line(line_schema.ValueLogged(seq=seq, t=seq, loop=1, i=0, name=1, value="a text"))


def append(path: Path, *rows: bytes) -> None:
    with path.with_name(path.name + ".lines").open("ab") as file:
        file.writelines(rows)


def test_a_follower_gives_what_reading_all_gives_at_every_moment(tmp_path: Path):
    path = tmp_path / "0"
    follower = LineFollower(path, TAGS, 1 << 20)
    assert follower.lines() == []
    for number in range(1, 40):
        append(path, (tag if number % 3 else value)(number)[: None if number % 7 else -5])
        if number % 7 == 0:  # a line that is being written
            follower.lines()
            append(path, (tag if number % 3 else value)(number)[-5:])
        whole = read_lines(path).lines
        assert follower.lines() == [one for one in whole if one is whole[-1] or type(one) is line_schema.Tag]


def test_damaged_lines_are_left_out(tmp_path: Path):
    path = tmp_path / "0"
    append(path, tag(1), tag(2).replace(b"tag 2", b"tag 3"), b"no json\n", tag(4))

    assert [line.seq for line in LineFollower(path, TAGS, 1 << 20).lines()] == [1, 4]


def test_a_file_that_was_rewritten_is_read_anew(tmp_path: Path):
    path = tmp_path / "0"
    append(path, tag(1), tag(2))
    follower = LineFollower(path, TAGS, 1 << 20)
    follower.lines()
    (tmp_path / "new").write_bytes(tag(1, "***") + tag(2))
    (tmp_path / "new").rename(tmp_path / "0.lines")

    assert follower.lines()[0].value == "***"


def test_too_much_is_refused_and_not_read_further(tmp_path: Path):
    path = tmp_path / "0"
    append(path, *(tag(seq, "x" * 10_000) for seq in range(1, 3_000)))
    follower = LineFollower(path, TAGS, 1 << 20)
    for _ in range(2):
        with pytest.raises(Damaged, match="describes the run in more than 1 MiB"):
            follower.lines()


def test_the_followed_kinds_are_all_that_a_record_is_built_from():
    source = Path(record_builder.__file__).read_text()
    named = {getattr(line_schema, word, None) for word in re.findall(r"lines_of\((?:line_schema\.)?(\w+)", source)}
    tags = {kind.__struct_config__.tag for kind in named if kind is not None}

    assert len(tags) > 8
    assert tags <= RECORD_KINDS
