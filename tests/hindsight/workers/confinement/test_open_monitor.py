"""Laws of the monitor: the kernel tells what is opened, by whom ever, and another file can take its place."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs seccomp, which Linux has")
# A process of its own: a filter can't be removed.
PROGRAM = """
import ctypes, os, subprocess, sys, threading
from relive.hindsight.workers.confinement.open_monitor import OpenRules, start_monitor

folder = {folder!r}
rules = OpenRules(
    watched_path=lambda path: os.path.realpath(path) if os.path.realpath(path).startswith(folder + "/") else "",
    path_for=lambda path, flags: {instead},
    is_left_alone=lambda path: path.endswith("kept"),
    before_write=lambda path, flags: None,
    times=lambda path: (os.stat(path).st_size,) if os.path.exists(path) else (),
    is_beyond_doubt=lambda path, times: path.endswith("old"),
)
monitor = start_monitor(rules)
assert monitor is not None
{body}
print([(os.path.basename(one.path), one.flags & 3, one.times) for one in monitor.take()])
"""


def run(folder: Path, body: str, instead: str = "path") -> str:
    code = PROGRAM.format(folder=str(folder), body=body, instead=instead)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "body",
    [
        "open('a').close()",
        "libc = ctypes.CDLL(None); libc.close(libc.open(b'a', 0))",
        "here = os.open('.', 0); os.close(os.open('a', 0, dir_fd=here))",
        "subprocess.run(['cat', 'a'], stdout=subprocess.DEVNULL)",
        "pid = os.fork(); pid or (open('a').close(), os._exit(0)); os.waitpid(pid, 0)",
        "one = threading.Thread(target=open, args=('a',)); one.start(); one.join()",
    ],
    ids=["Python", "C", "relative to a folder", "another program", "a fork", "a thread"],
)
def test_whoever_opens_a_file_is_seen(tmp_path: Path, body: str):
    (tmp_path / "a").write_text("abc")

    assert "('a', 0, (3,))" in run(tmp_path, body)


def test_a_file_is_noted_as_it_was_before_it_was_opened(tmp_path: Path):
    assert run(tmp_path, "open('new', 'w').write('text')") == "[('new', 1, ())]"


def test_what_is_beyond_doubt_is_not_noted_unless_it_is_written(tmp_path: Path):
    (tmp_path / "old").write_text("abc")

    assert run(tmp_path, "open('old').close(); open('old', 'a').close()") == "[('old', 1, (3,))]"


def test_another_file_is_opened_in_its_place(tmp_path: Path):
    (tmp_path / "a").write_text("original")
    body = "print(open('a').read()); open('a', 'w').write('changed')"

    said = run(tmp_path, body, instead="path + '.copy' if flags & 3 else '/proc/self/comm'")

    assert said.startswith("python")
    assert (tmp_path / "a").read_text() == "original"
    assert (tmp_path / "a.copy").read_text() == "changed"


@pytest.mark.parametrize("call", ["libc.rename(b'new', b'a')", "libc.renameat(-100, b'new', -100, b'a')"])
def test_what_gets_the_name_of_a_file_becomes_its_copy(tmp_path: Path, call: str):
    (tmp_path / "a").write_text("original")
    body = f"open('new', 'w').write('changed'); libc = ctypes.CDLL(None); assert {call} == 0"

    said = run(tmp_path, body, instead="path + '.copy' if path.endswith('/a') else path")

    assert (tmp_path / "a").read_text() == "original"
    assert (tmp_path / "a.copy").read_text() == "changed"
    assert not (tmp_path / "new").exists()
    assert said == "[('new', 1, ()), ('a', 1, (8,))]"


def test_files_that_must_stay_seem_to_be_gone_when_they_are_removed(tmp_path: Path):
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "kept").write_text("original")
    body = """
import shutil
shutil.rmtree('old')
os.makedirs('old')
try:
    open('old/kept')
except FileNotFoundError:
    print('gone')
open('old/kept', 'w').write('again')
print(open('old/kept').read())
"""

    said = run(tmp_path, body, instead="folder + '/copy' if path.endswith('kept') else path")

    assert said.startswith("gone\nagain")
    assert (folder / "kept").read_text() == "original"


def test_files_that_must_stay_are_not_truncated(tmp_path: Path):
    (tmp_path / "kept").write_text("original")
    body = "libc = ctypes.CDLL(None); print(libc.truncate(b'kept', 2))"

    said = run(tmp_path, body, instead="path + '.copy' if flags & 3 else path")

    assert said.startswith("-1")  # there is no copy here
    assert (tmp_path / "kept").read_text() == "original"


def test_errors_are_those_of_the_file(tmp_path: Path):
    body = """
try:
    open('missing')
except FileNotFoundError as error:
    print('missing', error.errno)
"""

    assert run(tmp_path, body).startswith("missing 2")


def test_if_there_can_be_no_copy_the_original_is_not_opened(tmp_path: Path):
    (tmp_path / "a").write_text("original")
    body = """
try:
    open('a', 'w')
except OSError as error:
    print(error.strerror)
"""

    said = run(tmp_path, body, instead="'/nowhere/at/all' if flags & 3 else path")

    assert said.startswith("No such file or directory")
    assert (tmp_path / "a").read_text() == "original"


def test_the_monitor_ends_with_what_it_monitors(tmp_path: Path):
    children = "open(f'/proc/self/task/{os.getpid()}/children').read()"
    pid = int(run(tmp_path, f"print({children}, flush=True); os._exit(0)"))

    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not Path(f"/proc/{pid}").exists()
