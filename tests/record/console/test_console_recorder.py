"""What a run prints is recorded, bounded and without secrets; the script does not notice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from relive.record.console.console_recorder import ConsoleRecorder
from relive.record.provenance import SecretFilter
from relive.store.console import read_console
from relive.store.console.console_text import ConsoleText

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----\n"


def folder_of(script) -> Path:
    (run,) = (script.home / "runs").iterdir()
    return run


def texts(found: ConsoleText) -> list[str]:
    return [line.text for line in found.lines]


def test_both_streams_are_recorded_in_order_and_the_traceback_of_the_error(script):
    ended = script(
        """
        import relive, sys
        print("before the run")
        relive.log("x", 1)
        print("one", 1)
        print("two", file=sys.stderr)
        print("three")
        raise ValueError("password=hunter2horse")
        """,
        check=False,
    )

    found = read_console(folder_of(script))

    assert ended.stdout == "before the run\none 1\nthree\n"
    assert [(line.stream, line.text) for line in found.lines][:3] == [
        ("out", "one 1"),
        ("err", "two"),
        ("out", "three"),
    ]
    assert found.lines[-1].text == "ValueError: password=***"
    record = script.relive("show", "last", "--json").stdout
    assert "Traceback (most recent call last)" in record
    assert "hunter2horse" not in record
    shown = script.relive("show", "last", "--console").stdout
    assert shown.startswith("one 1\ntwo\nthree\nTraceback")


def test_the_streams_stay_what_they_were(script):
    source = """
        import relive, sys, io, os
        before = sys.stdout, sys.stdout.buffer, type(sys.stdout), sys.stdout.isatty(), sys.stdout.fileno()
        relive.log("x", 1)
        after = sys.stdout, sys.stdout.buffer, type(sys.stdout), sys.stdout.isatty(), sys.stdout.fileno()
        assert before == after and sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper)
        assert sys.stdout.write("four") == 4
        sys.stdout.writelines([" lines", "\\n"])
        try:
            sys.stdout.write(b"bytes")
        except TypeError as error:
            print(error)
        with __import__("contextlib").redirect_stdout(io.StringIO()):
            print("elsewhere")
    """
    with_relive = script(source)
    without = script(None, env={"RELIVE_CONSOLE": "off"})

    assert with_relive.stdout == without.stdout
    runs = sorted((script.home / "runs").iterdir(), key=lambda run: run.stat().st_mtime)
    assert texts(read_console(runs[0]))[0] == "four lines"
    assert "elsewhere" not in texts(read_console(runs[0]))
    assert [path.name for path in runs[1].iterdir() if "console" in path.name] == []


def test_a_killed_run_keeps_what_it_printed_until_the_last_second_with_its_progress_bar(script):
    process = script.start(
        """
        import relive, sys, time
        relive.log("x", 1)
        print("kept", flush=True)
        for i in range(10_000):
            sys.stderr.write(f"\\rbar {i}")
            sys.stderr.flush()
            time.sleep(0.01)
        """
    )
    process.stdout.readline()
    deadline = time.monotonic() + 30
    while True:
        found = read_console(folder_of(script))
        if len(found.lines) == 2 and found.lines[1].text != "bar 0":
            break
        assert time.monotonic() < deadline, "nothing was recorded"
        time.sleep(0.05)

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    found = read_console(folder_of(script))
    assert [line.text[:4] for line in found.lines] == ["kept", "bar "]
    assert found.lines[1].is_open
    assert found.damaged == 0


def test_children_and_replays_leave_the_console_alone(script):
    script(
        """
        import relive, os, sys
        relive.log("x", 1)
        print("parent", flush=True)
        pid = os.fork()
        if not pid:
            print("child", flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        for epoch in relive.loop("epoch", range(2)):
            print("epoch", epoch)
        """
    )
    before = texts(read_console(folder_of(script)))
    source = (
        (script.project / "train.py")
        .read_text()
        .replace('print("epoch", epoch)', 'print("epoch", epoch); relive.log("y", epoch)')
    )
    script.write(source)

    script.relive("replay", "y", "--yes", "--keep-going")

    assert before == ["parent", "epoch 0", "epoch 1"]
    assert texts(read_console(folder_of(script))) == before


def test_each_rank_has_its_own(script):
    source = 'import relive\nrelive.log("x", 1)\nimport os\nprint("rank", os.environ["RANK"])\n'
    for rank in ("0", "1"):
        script(source, env={"RANK": rank, "WORLD_SIZE": "2", "RELIVE_LAUNCH": "one"})

    folder = folder_of(script)
    assert [texts(read_console(folder, rank)) for rank in (0, 1)] == [["rank 0"], ["rank 1"]]


def test_the_innermost_run_records(script):
    script(
        """
        import relive
        relive.log("x", 1)
        print("outer")
        with relive.run("inner"):
            print("inner")
        print("outer again")
        """
    )

    found = sorted(texts(read_console(run)) for run in (script.home / "runs").iterdir())
    assert found == [["inner"], ["outer", "outer again"]]


# --- lines ------------------------------------------------------------------------------------------------------------


class Printed:
    """A recorder whose queue is written to by hand."""

    def __init__(self, folder: Path, *, max_bytes: int = 100_000, patterns: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._recorder = ConsoleRecorder(folder, 0, max_bytes=max_bytes, secrets=SecretFilter(patterns))

    def __call__(self, *writes: str) -> Printed:
        for text in writes:
            self._recorder._queue.put(text)
        self._recorder.flush()
        return self

    def read(self) -> list[str]:
        return texts(read_console(self.folder))

    def close(self) -> list[str]:
        self._recorder.close()
        return self.read()


def test_overwritten_lines_collapse_to_their_last_state(tmp_path):
    printed = Printed(tmp_path)

    printed("\r 0%|", "\r 50%|##", "windows\r\n")
    printed("\r100%|####|", "\n", "no end")

    assert printed.close() == [" 50%|##windows", "100%|####|", "no end"]


def test_an_unfinished_line_is_shown_and_then_finished(tmp_path):
    printed = Printed(tmp_path)

    assert printed("loading ").read() == ["loading "]
    assert printed("weights\n").read() == ["loading weights"]


@pytest.mark.parametrize("pieces", [[KEY], list(KEY.splitlines(keepends=True)), [KEY[:50], KEY[50:]]])
def test_a_private_key_is_hidden_however_it_is_printed(tmp_path, pieces):
    printed = Printed(tmp_path)
    for piece in pieces:
        printed(piece)

    printed("after\n")

    assert "MIIE" not in "".join(path.read_text() for path in tmp_path.iterdir())
    assert printed.read()[-1] == "after"


def test_secrets_are_removed_and_what_looks_alike_stays(tmp_path):
    printed = Printed(tmp_path, patterns=("acme-[0-9]{4}",))

    printed("password=hunter2horse tokens=512\n", "hf_" + "a" * 30 + "\n", "acme-1234\n", "tokens/s: 5000\n")

    assert printed.close() == ["password=*** tokens=512", "***", "***", "tokens/s: 5000"]


def test_the_working_folder_is_no_secret_whatever_its_variable_is_called(tmp_path):
    recorder = ConsoleRecorder(tmp_path, 0, max_bytes=100_000, secrets=SecretFilter())
    recorder.start({"PWD": str(tmp_path), "MY_SECRET": "hunter2horse"})
    recorder._queue.put(f"{tmp_path}/train.py hunter2horse\n")
    recorder.close()

    assert texts(read_console(tmp_path)) == [f"{tmp_path}/train.py ***"]


def test_the_beginning_and_the_end_are_kept_within_the_bound(tmp_path):
    printed = Printed(tmp_path, max_bytes=40_000)

    for part in range(100):
        printed("".join(f"line {part * 100 + i}\n" for i in range(100)))

    lines = read_console(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 44_000
    assert lines.lines[0].text == "line 0"
    assert lines.lines[-1].text == "line 9999"
    assert lines.total == 10_000
    assert sum(count for _, count in lines.omitted) + len(lines.lines) == 10_000
    assert all(line.text == f"line {line.number}" for line in lines.lines)


def test_a_long_line_is_cut_and_odd_texts_are_recorded(tmp_path):
    printed = Printed(tmp_path)

    printed("x" * 20_000 + "\n", "lone \ud800 surrogate\n", "\x1b[31mred\x1b[0m \x07bell\x1b]0;title\x07\n")

    long, odd, red = printed.close()
    assert len(long) < 10_100
    assert odd == "lone ? surrogate"
    assert red == "red bell"


def test_a_damaged_record_is_skipped(tmp_path):
    Printed(tmp_path)("one\n")("two\n")
    path = tmp_path / "0.console"
    path.write_bytes(path.read_bytes().replace(b"one", b"eno"))

    found = read_console(tmp_path)

    assert texts(found) == ["two"]
    assert (found.damaged, found.omitted) == (1, [(0, 1)])


def test_a_full_disk_ends_the_record_with_a_warning_and_nothing_else(tmp_path, capfd):
    class FullDisk:
        def append(self, record):
            raise OSError(28, "No space left on device")

    printed = Printed(tmp_path)
    printed._recorder._file = FullDisk()

    printed("one\n")("two\n").close()

    assert "console-lost" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_secret_after_the_name_of_an_error_is_removed():
    secrets = SecretFilter()

    assert secrets.message("ValueError: password=hunter2horse") == "ValueError: password=***"
    assert secrets.message("a=b=c: api_key='hunter2horse'") == "a=b=c: api_key='***'"
    assert secrets.message("INFO: epoch=3: loss=0.25") == "INFO: epoch=3: loss=0.25"


def test_scrub_removes_a_text_from_the_console_too(script):
    script('import relive\nrelive.log("x", 1)\nprint("the word is swordfish")\n')

    script.relive("scrub", "last", "swordfish")

    assert texts(read_console(folder_of(script))) == ["the word is ***"]
