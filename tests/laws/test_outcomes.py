"""The law of outcomes: how a run ended is what its exit code says, also when nobody was left to write it down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import relive
from relive.store import Home
from relive.store.catalog import Index


def records(home: Path) -> list[Any]:
    index = Index(Home(home))
    found = [entry.record for entry in index.runs()]
    index.close()
    return found


def only_record(home: Path) -> Any:
    (record,) = records(home)
    return record


@pytest.mark.long
@pytest.mark.parametrize(
    ("ending", "code", "outcome", "error"),
    [
        ("", 0, "finished", None),
        ("sys.exit()", 0, "finished", None),
        ("sys.exit(0)", 0, "finished", None),
        ("sys.exit(None)", 0, "finished", None),
        ("sys.exit(3)", 3, "failed", ("SystemExit", "3")),
        ("sys.exit('no data')", 1, "failed", ("SystemExit", "no data")),
        ("raise SystemExit", 0, "finished", None),
        ("{}['lr']", 1, "failed", ("KeyError", "'lr'")),
        ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted", ("KeyboardInterrupt", "")),
        (
            "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)",
            -signal.SIGINT,
            "interrupted",
            ("KeyboardInterrupt", ""),
        ),
        ("raise SystemExit(3)", 3, "failed", ("SystemExit", "3")),
        ("raise SystemExit('no data')", 1, "failed", ("SystemExit", "no data")),
        ("code = 4\nif code:\n    raise SystemExit(\n        code\n    )", 4, "failed", ("SystemExit", "4")),
        ("raise SystemExit(0)", 0, "finished", None),
        ("def main():\n    return None\nraise SystemExit(main())", 0, "finished", None),
        ("try:\n    sys.exit(1)\nexcept SystemExit:\n    pass", 0, "finished", None),
        ("try:\n    sys.exit(1)\nexcept SystemExit:\n    relive.log('after', 1)", 0, "finished", None),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass", 0, "finished", None),
        ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    sys.excepthook(type(e), e, None)", 0, "finished", None),
        ("threading.Thread(target=sys.exit, args=(1,)).start()", 0, "finished", None),
        ("atexit.register(sys.exit, 1)", 0, "finished", None),
        ("argparse.ArgumentParser().parse_args(['--nope'])", 2, "failed", ("SystemExit", "2")),
        ("os._exit(0)", 0, "killed", None),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "killed", None),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "killed", None),
        ("os.abort()", -signal.SIGABRT, "killed", None),
    ],
)
def test_the_outcome_is_how_the_script_ended(script, ending: str, code: int, outcome: str, error: Any) -> None:
    imports = "import argparse, atexit, os, signal, sys, threading, time, relive"

    done = script(f"{imports}\nrelive.log('v', 1)\n{ending}\n", check=False)

    record = only_record(script.home)
    assert done.returncode == code
    assert record.outcome == outcome
    assert (record.error and (record.error["type"], record.error["message"])) == error
    assert relive.dataframe("v", home=script.home).v.tolist() == [1]


SLOW_PACKAGES = """
import threading
from relive.record.provenance import runtime_environment
asked = threading.Event()
assert runtime_environment.installed_packages
runtime_environment.installed_packages = lambda: asked.wait() and {}
"""


@pytest.mark.parametrize(
    ("ending", "code", "outcome"),
    [
        ("for step in relive.loop('step', range(3)):\n    sys.exit(3)", 3, "failed"),
        ("with relive.checkpointing():\n    for e in relive.loop('e', range(3)):\n        sys.exit(3)", 3, "failed"),
        ("try:\n    sys.exit(3)\nfinally:\n    relive.log('cleanup', 1.0)", 3, "failed"),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    relive.log('cleanup', 1.0)\n    raise", 3, "failed"),
        (
            "def work():\n    while True:\n        relive.log('t', 1.0)\n"
            "threading.Thread(target=work, daemon=True).start()\n"
            "try:\n    sys.exit(3)\nfinally:\n    time.sleep(0.1)",
            3, "failed",
        ),
        # our own thread writes what it has found out after sys.exit was called, and before the run is closed
        (
            SLOW_PACKAGES + "relive.log('v', 2)\ntry:\n    sys.exit(3)\nfinally:\n    asked.set()\n    time.sleep(0.1)",
            3, "failed",
        ),
        ("try:\n    sys.exit(1)\nexcept SystemExit:\n    pass\nraise SystemExit(0)", 0, "finished"),
        ("try:\n    sys.exit(1)\nexcept SystemExit:\n    raise SystemExit(0)", 0, "finished"),
        ("thread = threading.Thread(target=sys.exit, args=(1,))\nthread.start()\nthread.join()\nraise SystemExit", 0,
         "finished"),
    ],
)  # fmt: skip
def test_what_is_logged_after_sys_exit_changes_nothing(script, ending: str, code: int, outcome: str) -> None:
    imports = "import sys, threading, time, relive"
    first = "" if "packages" in ending else "relive.log('v', 1)"

    done = script(f"{imports}\n{first}\n{ending}\n", check=False)

    assert done.returncode == code
    assert only_record(script.home).outcome == outcome


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ("", "pruned"),
        ("class TrialPruned(Exception): pass\nraise TrialPruned", "pruned"),
        ("1 / 0", "failed"),
        ("raise KeyboardInterrupt", "interrupted"),
    ],
)
def test_a_run_that_a_pruner_stopped_is_pruned_unless_it_ended_otherwise(script, ending: str, outcome: str) -> None:
    tag = "from relive.record.session import session\nsession.driver.tag('pruned', {'step': 3})"

    script(f"import relive\nrelive.log('v', 1)\n{tag}\n{ending}\n", check=False)

    assert only_record(script.home).outcome == outcome


def test_a_failure_is_told_with_its_type_message_and_place(script) -> None:
    script.write("def load():\n    raise FileNotFoundError('no \\ud800 data')\n", "loading.py")
    script(
        """
        import relive
        from loading import load
        relive.log("v", 1)
        load()
        """,
        check=False,
    )

    error = only_record(script.home).error
    assert error.pop("traceback").endswith("FileNotFoundError: no ? data\n")
    assert error == {
        "type": "FileNotFoundError",
        "message": "no ? data",
        "place": f"{script.project / 'loading.py'}:2",
    }
    assert "FileNotFoundError: no ? data at" in script.relive("show", "last").stdout


def test_an_exception_that_cannot_even_be_shown_is_a_failure_all_the_same(script) -> None:
    done = script(
        """
        import relive
        class Rude(Exception):
            def __str__(self): raise ValueError
        relive.log("v", 1)
        raise Rude
        """,
        check=False,
    )

    record = only_record(script.home)
    assert done.returncode == 1
    assert (record.outcome, record.error["type"]) == ("failed", "Rude")


@pytest.mark.parametrize(
    ("body", "outcome", "code"),
    [
        ("pass", "finished", 0), ("sys.exit(0)", "finished", 0), ("sys.exit(2)", "failed", 2),
        ("raise SystemExit(2)", "failed", 2), ("raise KeyboardInterrupt", "interrupted", -signal.SIGINT),
        ("os._exit(3)", "killed", 3),
    ],
)  # fmt: skip
def test_a_with_block_ends_as_it_was_left(script, body: str, outcome: str, code: int) -> None:
    source = f"import os, sys, relive\nwith relive.run('inside'):\n    relive.log('v', 1)\n    {body}\n"

    done = script(source, check=False)

    assert done.returncode == code
    assert only_record(script.home).outcome == outcome


def test_a_run_inside_an_except_block_or_a_closed_generator_did_not_fail(script) -> None:
    script(
        """
        import relive
        try:
            1 / 0
        except ZeroDivisionError:
            with relive.run("handled"):
                relive.log("v", 1)
        def batches():
            with relive.run("generator"):
                yield relive.log("v", 2)
        source = batches()
        next(source)
        source.close()
        """
    )

    assert [(r.name, r.outcome) for r in records(script.home)] == [("handled", "finished"), ("generator", "finished")]


def test_a_live_run_is_marked_and_shows_its_values_and_is_killed_once_it_is_gone(script) -> None:
    process = script.start(
        """
        import time, relive
        for step in relive.loop("step", range(3)):
            relive.log("loss", step / 2)
        print("logged", flush=True)
        time.sleep(60)
        """
    )
    assert process.stdout.readline() == "logged\n"

    listed = script.relive("runs").stdout
    alive = only_record(script.home)
    seen = relive.dataframe("loss", home=script.home).loss.tolist()
    process.kill()
    process.wait()

    assert "● running" in listed
    assert (alive.outcome, alive.ended_us) == ("running", None)
    assert seen == [0.0, 0.5, 1.0]
    assert only_record(script.home).outcome == "killed"
    assert "killed" in script.relive("runs").stdout
    assert relive.dataframe("loss", home=script.home).loss.tolist() == seen


def test_a_stopped_process_is_alive(script) -> None:
    process = script.start("import time, relive\nrelive.log('v', 1)\nprint(1, flush=True)\ntime.sleep(60)\n")
    process.stdout.readline()
    os.kill(process.pid, signal.SIGSTOP)

    assert only_record(script.home).outcome == "running"


@pytest.mark.parametrize("stamp", ["another boot", "another start"])
def test_a_pid_that_was_given_to_another_process_is_not_the_run(script, stamp: str) -> None:
    """Ours is alive, but the journal says that its process was started at another time."""
    script("import os, relive\nrelive.log('v', 1)\nos._exit(0)\n")
    (lines,) = (script.home / "runs").glob("*/0.lines")
    rows = lines.read_text().splitlines(keepends=True)
    header = json.loads(rows[0])
    boot, _, start = header["start"].partition(":")
    changed = f"{boot}0:{start}" if stamp == "another boot" else f"{boot}:{int(start) + 1}"
    header |= {"pid": os.getpid(), "start": changed}
    lines.write_text(json.dumps(header) + "\n" + "".join(rows[1:]))

    assert only_record(script.home).outcome == "killed"
    assert relive.dataframe("v", home=script.home).v.tolist() == [1]


def test_an_interactive_session_goes_on_after_an_error(script) -> None:
    code = "import relive\nrelive.log('v', 1)\n1 / 0\nrelive.log('v', 2)\n"

    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=code, cwd=script.project, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip

    assert "ZeroDivisionError" in done.stderr
    assert only_record(script.home).outcome == "finished"
    assert relive.dataframe("v", home=script.home).v.tolist() == [1, 2]


def test_the_time_that_a_run_took_does_not_depend_on_the_wall_clock(script) -> None:
    script(
        """
        import time, relive
        relive.log("v", 1)
        time.time_ns = lambda: 1
        time.time = lambda: 1e-9
        relive.log("v", 2)
        """
    )

    record = only_record(script.home)
    frame = relive.sql("select tstamp from logs order by seq", home=script.home)
    assert 0 < record.took_s < 60
    assert abs(record.started_us / 1e6 - time.time()) < 60
    assert frame.tstamp[1] >= frame.tstamp[0]
