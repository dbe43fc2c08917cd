"""Laws of the watch that detects the files a run reads."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.record.provenance import input_watch
from relive.record.provenance.input_watch import InputWatch, ignore_reads, input_role


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    folder = tmp_path / "user" / "project"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def watch(root: Path) -> Iterator[InputWatch]:
    watching = InputWatch(root=str(root), home=str(root / "home"))
    watching.start()
    yield watching
    watching.stop()


def make(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with ignore_reads():
        path.write_text(content)
    return path


def test_files_opened_for_reading_are_seen_once_in_order_however_they_are_named(
    root: Path, watch: InputWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (make(root / name) for name in ("one.csv", "two.bin", "three"))
    monkeypatch.chdir(root)

    one.read_text()
    with open("two.bin", "rb"), open(b"two.bin", "rb"), open(str(one)):
        os.close(os.open("three", os.O_RDONLY))
    assert watch.seen() == [str(one), str(two), str(three)]


def test_the_usual_readers_are_detected(root: Path, watch: InputWatch) -> None:
    np = pytest.importorskip("numpy")
    pd = pytest.importorskip("pandas")
    table, array = root / "table.csv", root / "array.npy"
    with ignore_reads():
        table.write_text("a,b\n1,2\n")
        np.save(array, np.arange(3))

    pd.read_csv(table)
    np.load(array)
    np.memmap(array, mode="r+", dtype="u1")
    assert watch.seen() == [str(table), str(array)]


def test_what_the_run_wrote_itself_is_no_input(root: Path, watch: InputWatch) -> None:
    for name, mode in (("w.csv", "w"), ("a.csv", "a"), ("x.csv", "x"), ("wp.csv", "w+")):
        (root / name).open(mode).close()
        (root / name).read_text()
    (root / "new.tmp").write_text("saved")
    os.replace(root / "new.tmp", root / "model.pt")
    (root / "model.pt").read_text()

    assert watch.seen() == []


def test_what_was_read_before_it_was_written_stays_an_input(root: Path, watch: InputWatch) -> None:
    state = make(root / "state.bin")
    state.read_text()
    state.write_text("new")
    state.read_text()

    assert watch.seen() == [str(state)]


def test_code_libraries_system_hidden_and_own_files_are_no_inputs(root: Path, watch: InputWatch) -> None:
    names = ["m.py", "m.pyc", "l.so", ".cache/x", "home/journal", "lib/site-packages/p/data.json", ".git/HEAD"]
    excluded = [make(root / name) for name in names]
    excluded += [make(root.parent / ".cache" / "hub" / "model.bin"), make(root.parent / ".netrc")]
    excluded += [Path("/etc/hostname"), Path("/proc/self/status"), Path(os.__file__)]
    for path in excluded:
        path.read_bytes()

    assert watch.seen() == []
    included = [make(root / ".env"), make(root.parent / "data" / "x"), make(root.parent.parent / ".hidden" / "x")]
    for path in included:
        path.read_bytes()
    assert watch.seen() == [str(path) for path in included]


def test_a_project_below_a_system_folder_still_has_inputs() -> None:
    scope = input_watch.InputFilter("/usr/src/app", "/usr/src/app/.relive")

    assert scope.may_be_input("/usr/src/app/data.csv")
    assert not scope.may_be_input("/usr/share/data.csv")
    assert not scope.may_be_input("/usr/src/app/.relive/x")


def test_only_ordinary_files_that_exist_are_inputs(root: Path, watch: InputWatch) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s"))
        for path, flags in ((root, os.O_RDONLY), (root / "pipe", os.O_RDONLY | os.O_NONBLOCK)):
            os.close(os.open(path, flags))
        for missing in (root / "missing", root / "s"):
            with pytest.raises(OSError):
                missing.open()
        with open(os.open(os.devnull, os.O_RDONLY)):
            pass

    assert watch.seen() == []


def test_a_stopped_watch_detects_nothing_and_another_can_follow(root: Path, watch: InputWatch) -> None:
    file = make(root / "a.csv")
    watch.stop()
    file.read_text()
    assert watch.seen() == []

    second = InputWatch(root=str(root), home=str(root / "home"))
    second.start()
    watch.stop()  # of one that isn't on: nothing happens
    file.read_text()
    second.stop()
    assert (watch.seen(), second.seen()) == ([], [str(file)])


def test_each_new_file_is_reported_once_and_an_error_there_is_ignored(root: Path, watch: InputWatch) -> None:
    file, other = make(root / "a.csv"), make(root / "b.csv")
    announced = []

    def announce(path: str) -> None:
        announced.append(path)
        other.read_text()  # an open inside the callback is not reported again
        raise ValueError(path)

    watch.on_new = announce
    assert [file.read_text(), file.read_text()] == ["x", "x"]
    assert announced == watch.seen() == [str(file)]


def test_the_first_ten_thousand_files_are_recorded(
    root: Path, watch: InputWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_watch, "MAX_FILES", 3)
    files = [make(root / f"{n}.csv") for n in range(5)]
    for file in files:
        file.read_text()

    assert watch.seen() == [str(file) for file in files[:3]]
    assert watch.truncated


def test_threads_do_not_miss_or_double_files(root: Path, watch: InputWatch) -> None:
    files = [make(root / f"{n}.csv") for n in range(50)]
    announced: list[str] = []
    watch.on_new = announced.append

    def read_all() -> None:
        for file in files:
            file.read_text()

    threads = [threading.Thread(target=read_all) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(watch.seen()) == sorted(announced) == sorted(map(str, files))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_its_own_watch_and_never_calls_its_parents_callback(root: Path, watch: InputWatch) -> None:
    known, new = make(root / "known.csv"), make(root / "new.csv")
    announced: list[str] = []
    watch.on_new = announced.append
    known.read_text()
    with watch._lock:  # as another thread might, at the moment of the fork
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                new.read_text()
                fine = announced == [str(known)] and watch.seen() == [str(known), str(new)]
                os._exit(0 if fine else 1)
            os._exit(2)

    assert os.waitpid(child, 0)[1] == 0
    assert watch.seen() == [str(known)]


AT_THE_END = """
import sys
from relive.record.provenance.input_watch import InputWatch
class Late:
    def __del__(self, open=open, print=print):
        with open(sys_path) as file:
            print(file.read())
sys_path = sys.argv[1]
watch = InputWatch(root="/nowhere", home="/nowhere/home")
watch.start()
sys.late = Late()
"""


def test_files_can_still_be_opened_while_python_exits(tmp_path: Path) -> None:
    file = make(tmp_path / "a.txt", "read")
    ran = subprocess.run([sys.executable, "-c", AT_THE_END, str(file)], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "size", "expected"),
    [
        ("/a/conf.yaml", 1, "config"), ("/a/C.YML", 1, "config"), ("/a/x.toml", 1 << 20, "config"),
        ("/a/.env", 1, "config"), ("/a/x.json", 64 << 10, "config"), ("/a/x.json", (64 << 10) + 1, "data"),
        ("/a/x.csv", 1, "data"), ("/a/x", 1, "data"),
    ],
)  # fmt: skip
def test_small_settings_files_are_configuration(path: str, size: int, expected: str) -> None:
    assert input_role(path, size) == expected
