"""What a run on another machine prints is on the server, bounded as it was recorded, and only its sender's to write."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

from relive.server import Tokens
from relive.store import Home
from relive.store.console import read_console
from relive.store.console.console_file import encode_record
from relive.store.sync import RunFetch, ServerClient

from .conftest import Server
from .written_runs import write_runs

PRINTS = """
import sys, time, relive
for step in relive.loop("step", range(3)):
    relive.log("loss", step)
    print("step", step)
print("to stderr", file=sys.stderr)
"""
MUCH = """
import relive
for step in relive.loop("step", range(40)):
    relive.log("loss", step)
    for line in range(200):
        print(f"step {step} line {line} " + "x" * 40)
"""
LIVE = """
import sys, time, relive
for step in relive.loop("step", range(100)):
    relive.log("loss", step)
    if step == 0:
        print("begun", flush=True)
        print("half a line", end="", flush=True)
    time.sleep(1)
"""


def lines_of(server: Server, run: str, **query: object) -> dict:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    with urllib.request.urlopen(f"{server.url}/api/runs/{run}/console?{words}", timeout=10) as answer:
        return json.load(answer)


def the_run(server: Server) -> str:
    with urllib.request.urlopen(f"{server.url}/api/runs", timeout=10) as answer:
        (run,) = json.load(answer)["runs"]
    return run["run"]


def test_what_a_run_prints_elsewhere_is_on_the_server(serve, script):
    server = serve()
    script(PRINTS, env={"RELIVE_SERVER": server.url})

    found = lines_of(server, the_run(server))
    assert [(line["stream"], line["text"]) for line in found["lines"]] == [
        ("out", "step 0"), ("out", "step 1"), ("out", "step 2"), ("err", "to stderr"),
    ]  # fmt: skip


def test_beginning_and_end_of_much_output_are_the_same_on_both_sides(serve, script):
    server = serve()
    script(MUCH, env={"RELIVE_SERVER": server.url, "RELIVE_CONSOLE_BYTES": "40000"})
    run = the_run(server)
    here = read_console(Home(script.project / ".relive").run_folder(run))

    found = lines_of(server, run, limit=1000)
    assert found["printed"] == 8000
    assert found["truncated"]
    assert [line["text"] for line in found["lines"]] == [line.text for line in here.lines]
    assert found["lines"][-1]["text"].startswith("step 39 line 199 ")


def test_a_run_that_was_recorded_without_the_server_is_sent_with_its_console(serve, script):
    server = serve()
    script(PRINTS)
    script.relive("sync", "--server", server.url)

    assert len(lines_of(server, the_run(server))["lines"]) == 4


def test_what_was_scrubbed_on_the_server_stays_so(serve, script):
    server = serve()
    script(PRINTS, env={"RELIVE_SERVER": server.url})
    run = the_run(server)
    asked = urllib.request.Request(
        f"{server.url}/api/runs/{run}/scrub", json.dumps({"pattern": "stderr"}).encode(), method="POST"
    )
    urllib.request.urlopen(asked, timeout=30).read()
    script.relive("sync", "--all", "--server", server.url, check=False)

    assert lines_of(server, run)["lines"][-1]["text"] == "to ***"


def put(server: Server, run: str, file: str, body: bytes, *, at: int = 0, token: str = "") -> tuple[int, dict]:
    asked = urllib.request.Request(
        f"{server.url}/api/runs/{run}/console/{file}?at={at}&bytes={len(body)}", body, method="PUT",
        headers={"Content-Type": "application/octet-stream", **({"Authorization": f"Bearer {token}"} if token else {})},
    )  # fmt: skip
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_nothing_but_console_records_is_taken(serve, script):
    server = serve()
    script(PRINTS, env={"RELIVE_SERVER": server.url})
    run = the_run(server)
    good = encode_record({"v": 1, "n": 0, "t": 1, "s": "out", "text": "hello"})

    assert put(server, run, "7.console", b"hello\n")[0] == 400
    assert put(server, run, "7.console", good[:-1])[0] == 400
    assert put(server, run, "07.console", good)[0] == 404
    assert put(server, run, "..%2F0.lines", good)[0] == 404
    assert put(server, run, "0.lines", good)[0] == 404
    assert put(server, "0123456789ab", "0.console", good)[0] == 404
    assert put(server, run, "7.console", good, at=5)[0] == 409
    status, answer = put(server, run, "0.console", good)  # the run has ended: its console is kept
    assert (status, answer["final"]) == (409, True)
    assert put(server, run, "7.console", good)[0] == 200
    assert lines_of(server, run, rank=7)["lines"][0]["text"] == "hello"
    assert not (server.store / "runs" / run / "07.console").exists()


def test_only_who_sends_a_run_may_send_its_console(tmp_path, serve, script):
    store = tmp_path / "team"
    ada, _ = Tokens(store).create("ada", ["write"])
    eve, _ = Tokens(store).create("eve", ["write"])
    reader, _ = Tokens(store).create("rea", ["read"])
    server = serve("--host", "127.0.0.1", store=store)
    script(PRINTS, env={"RELIVE_SERVER": server.url, "RELIVE_TOKEN": ada})
    (run,) = Home(store).run_ids()
    record = encode_record({"v": 1, "n": 0, "t": 1, "s": "out", "text": "not mine"})

    assert put(server, run, "1.console", record, token=eve)[0] == 403
    assert put(server, run, "1.console", record, token=reader)[0] == 403
    assert put(server, run, "1.console", record)[0] == 401
    assert put(server, run, "1.console", record, token=ada)[0] == 200


def test_what_a_live_run_prints_is_there_while_it_runs(serve, script):
    server = serve()
    process = script.start(LIVE, env={"RELIVE_SERVER": server.url, "RELIVE_VERSIONS": "0"})
    assert process.stdout.readline() == "begun\n"
    deadline = time.monotonic() + 30
    found: list[str] = []
    while "half a line" not in found:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
        with urllib.request.urlopen(f"{server.url}/api/runs", timeout=10) as answer:
            runs = json.load(answer)["runs"]
        found = [line["text"] for line in lines_of(server, runs[0]["run"])["lines"]] if runs else []
    process.kill()

    assert found == ["begun", "half a line"]


def fetch(home: Home, server: Server, run: str) -> RunFetch:
    remote = ServerClient(server.url, "", keeps_open=False)
    fetched = RunFetch(home, run, remote)
    fetched.journals()
    remote.close()
    return fetched


def test_a_fetched_run_has_what_it_printed(serve, script, tmp_path):
    server = serve()
    script(MUCH, env={"RELIVE_SERVER": server.url, "RELIVE_CONSOLE_BYTES": "40000"})
    run, home = the_run(server), Home(tmp_path / "elsewhere")
    there = read_console(Home(server.store).run_folder(run))
    fetch(home, server, run)
    again = fetch(home, server, run)

    assert read_console(home.run_folder(run)) == there
    assert len(there.lines) > 100
    assert again.got_bytes == 0


def test_the_console_of_a_live_run_is_fetched_up_to_now(serve, tmp_path):
    server, home = serve(), Home(tmp_path / "elsewhere")
    write_runs(server.store, 1)
    (run,) = Home(server.store).run_ids()
    folder = Home(server.store).run_folder(run)
    record = encode_record({"v": 1, "n": 0, "t": 1, "s": "out", "x": "first"})
    (folder / "0.console").write_bytes(record + record[:20])
    (folder / "0.console-open").write_bytes(encode_record({"v": 1, "open": {"out": "half"}}))
    fetch(home, server, run)
    before = sorted(path.name for path in home.run_folder(run).glob("*.console*"))
    (folder / "0.console-open").unlink()
    fetch(home, server, run)

    assert before == ["0.console", "0.console-open"]
    assert (home.run_folder(run) / "0.console").read_bytes() == record  # whole records only
    assert not (home.run_folder(run) / "0.console-open").exists()
