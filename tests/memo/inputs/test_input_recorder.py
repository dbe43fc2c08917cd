"""Which files of a computation are its inputs, and when its result is reused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.errors import ReliveWarning
from relive.memo.inputs import InputRecorder

computed: list[str] = []


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    computed.clear()


@relive.memo
def read(path: str) -> str:
    computed.append(path)
    with open(path) as file:
        return file.read()


def test_a_file_that_is_edited_is_a_miss_and_restored_a_hit():
    data = Path("data.txt")
    found = []
    for text in ("one", "two", "one"):
        data.write_text(text)
        found.append(read("data.txt"))

    assert found == ["one", "two", "one"]
    assert len(computed) == 2


def test_a_file_that_is_touched_or_replaced_by_an_equal_one_is_a_hit():
    Path("data.txt").write_text("one")
    read("data.txt")
    os.utime("data.txt", (1, 1))
    read("data.txt")
    Path("other.txt").write_text("one")
    os.replace("other.txt", "data.txt")
    read("data.txt")

    assert len(computed) == 1


def test_the_inputs_of_a_remembered_call_are_inputs_of_its_caller():
    @relive.memo
    def outer(path: str) -> str:
        return read(path).upper()

    Path("data.txt").write_text("one")
    read("data.txt")  # so that the outer call reuses it, and opens nothing
    first = outer("data.txt")
    Path("data.txt").write_text("two")

    assert [first, outer("data.txt")] == ["ONE", "TWO"]


def test_what_an_earlier_call_has_read_into_memory_counts_for_later_ones():
    space: dict[str, Any] = {"__name__": "steps"}
    exec(
        "from pathlib import Path\nTABLE = None\n"
        "def table():\n    global TABLE\n    if TABLE is None:\n        TABLE = Path('data.txt').read_text()\n"
        "    return TABLE\n"
        "def f(x):\n    return table() * x\n",
        space,
    )
    Path("data.txt").write_text("a")
    remembered = relive.memo(space["f"])
    with pytest.warns(ReliveWarning, match=r"\[memo-state\].*TABLE"):
        first = [remembered(1), remembered(2)]
    space["TABLE"] = None  # as in a new process
    Path("data.txt").write_text("b")
    again = relive.memo(space["f"])

    assert first == ["a", "aa"]
    assert [again(1), again(2)] == ["b", "bb"]


def test_files_that_the_computation_writes_are_no_inputs(tmp_path: Path):
    Path("data.txt").write_text("one")
    with InputRecorder() as recorder:
        Path("out").mkdir()
        Path("out/a.txt").write_text(Path("data.txt").read_text())
        Path("out/a.txt").read_text()
        os.listdir("out")
        os.path.exists("out/b.txt")
        Path("new.tmp").write_text("x")
        os.rename("new.tmp", "new.txt")
        Path("new.txt").read_text()

    assert [(one.kind, one.name) for one in recorder.inputs()] == [("file", "data.txt")]
    assert recorder.changed_inputs() == []


def test_a_file_that_is_changed_in_place_is_state_and_not_remembered():
    def count() -> int:
        with open("count.txt", "r+") as file:
            n = int(file.read()) + 1
            file.seek(0)
            file.write(str(n))
        return n

    Path("count.txt").write_text("1")
    remembered = relive.memo(count)
    with pytest.warns(ReliveWarning, match=r"\[memo-state\] count.txt was read"):
        found = [remembered(), remembered()]

    assert found == [2, 3]


def test_why_names_the_file_that_changed():
    Path("data.txt").write_text("one")
    read("data.txt")
    hit = relive.memo.why(read, "data.txt")
    Path("data.txt").write_text("two")

    assert hit.is_hit
    assert str(relive.memo.why(read, "data.txt")).endswith("miss\n  changed since it was read: data.txt")


def test_stat_is_as_before_when_nothing_computes():
    before = os.stat
    with InputRecorder() as recorder:
        os.path.exists("nothing.txt")

    assert os.stat is before
    assert [(one.kind, one.name, one.value) for one in recorder.inputs()] == [("status", "nothing.txt", None)]
