"""Tables, columns, curves and events: what the web page reads, over HTTP."""

from __future__ import annotations

import gzip
import json
import time
import urllib.error
import urllib.request

import pytest

from ..conftest import Server
from ..written_runs import write_runs

TRAIN = """
import math, relive
lr = relive.arg("lr", 0.1)
model = relive.arg("model", "<b>small</b>")
for epoch in relive.loop("epoch", range(3)):
    for step in relive.loop("step", range(100)):
        if step % 10 == 0:
            relive.log("loss", math.nan if (epoch, step) == (1, 50) else lr + epoch + step / 100)
    relive.log("val_acc", epoch / 10 + lr)
for n in relive.loop("n", range(500)):
    relive.log("line", float(n))
relive.log("big", 2**60 + 1)
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Server:
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("page")
    server = Server(folder / "team", "--open").start()
    (folder / "train.py").write_text(TRAIN)
    import os

    env = {**os.environ, "RELIVE_HOME": str(folder / "team"), "RELIVE_VERSIONS": "0"}
    for lr in ("0.1", "0.2", "0.3"):
        subprocess.run([sys.executable, "train.py", "--kwargs", f"lr={lr}"], cwd=folder, env=env, check=True)
    yield server
    server.kill()


def ask(server: Server, path: str, body: object = None, headers: dict[str, str] | None = None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}{path}", data, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def table(server: Server, **body):
    status, _, raw = ask(server, "/api/table", body)
    return status, json.loads(raw)


def curves(server: Server, **body):
    _, found = table(server, columns=["arg:lr"], sort=[{"column": "arg:lr"}])
    runs = [row["run"] for row in found["rows"]]
    status, _, raw = ask(server, "/api/series", {"runs": runs, "pixels": 1000, **body})
    return status, json.loads(raw)


def test_a_table_has_the_columns_that_were_asked_for(filled):
    columns = ["name", "lr", "metric:val_acc", "max(loss)", "big", "outcome"]
    status, found = table(filled, columns=columns, where="lr > 0.15", sort=[{"column": "lr", "descending": True}])

    assert status == 200
    assert found["total"] == 2
    assert found["all"] == 3
    assert [row["cells"]["lr"] for row in found["rows"]] == [0.3, 0.2]
    assert found["rows"][0]["cells"]["metric:val_acc"] == 0.2 + 0.3
    assert found["rows"][0]["cells"]["big"] == f"$int:{2**60 + 1}"
    assert found["rows"][0]["cells"]["max(loss)"] == 0.3 + 2 + 0.9
    assert [column["kind"] for column in found["columns"]] == ["run", "arg", "metric", "metric", "metric", "run"]
    assert not found["rows"][0]["live"]


def test_a_table_is_paged_and_grouped(filled):
    _, found = table(filled, columns=[], group=["model"], limit=1, offset=1)

    assert found["total"] == 3
    assert len(found["rows"]) == 1
    assert [(group["values"], group["count"]) for group in found["groups"]] == [(["<b>small</b>"], 3)]


def test_runs_that_are_to_come_first_do_so_in_the_order_of_the_table(filled):
    _, every = table(filled, columns=["lr"], sort=[{"column": "lr"}])
    run = {row["cells"]["lr"]: row["run"] for row in every["rows"]}
    terms = {"columns": ["lr"], "sort": [{"column": "lr"}], "first": [run[0.3], run[0.2]]}
    _, sorted_rows = table(filled, **terms)
    _, found = table(filled, **terms, where="lr < 0.25")

    assert [row["cells"]["lr"] for row in sorted_rows["rows"]] == [0.2, 0.3, 0.1]
    assert [row["cells"]["lr"] for row in found["rows"]] == [0.2, 0.3, 0.1]
    assert (found["total"], found["matching"], found["all"]) == (3, 2, 3)
    assert table(filled, first=["x"] * 1001)[0] == 422


@pytest.mark.parametrize(
    ("where", "position", "length", "suggestion"),
    [("lr > 0.1 and lrr < 3", 13, 3, "lr"), ("lr >> ", 3, 1, None), ("lr = = 3", 5, 1, None)],
)
def test_an_error_in_a_where_has_its_place(filled, where, position, length, suggestion):
    status, found = table(filled, where=where)

    assert status == 422
    assert (found["position"], found["length"], found["suggestion"]) == (position, length, suggestion)
    assert "\n" not in found["error"]


@pytest.mark.parametrize(
    "body", [{"whre": "x"}, {"limit": 1001}, {"limit": -1}, {"columns": 3}, {"columns": ["nothing"]}]
)
def test_what_a_table_does_not_know_is_refused(filled, body):
    status, found = table(filled, **body)

    assert status == 422
    assert "error" in found


def test_columns_are_completed(filled):
    _, _, raw = ask(filled, "/api/columns?prefix=l&limit=3")
    names = [(one["name"], one["kind"], one["runs"]) for one in json.loads(raw)["columns"]]

    assert names == [("lr", "arg", 3), ("line", "metric", 3), ("loss", "metric", 3)]
    assert ask(filled, "/api/columns?prefx=l")[0] == 422


def test_columns_say_which_args_differ_and_which_values_are_numbers(filled):
    _, _, raw = ask(filled, "/api/columns")
    known = {(one["kind"], one["name"]): one for one in json.loads(raw)["columns"]}

    assert [known["arg", name]["values"] for name in ("lr", "model")] == [3, 1]
    assert known["metric", "loss"]["is_number"]
    assert known["run", "outcome"]["values"] is None


def test_the_same_answer_is_not_sent_twice_and_is_compressed(filled):
    _, headers, raw = ask(filled, "/api/columns", headers={"Accept-Encoding": "gzip"})
    again, _, rest = ask(filled, "/api/columns", headers={"If-None-Match": headers["ETag"]})

    assert json.loads(gzip.decompress(raw))["total"] > 20
    assert (again, rest) == (304, b"")


def test_x_is_the_step_and_not_the_index(filled):
    _, found = curves(filled, names=["line", "loss", "val_acc"])
    line, loss, acc = (
        next(one for one in found["series"] if one["name"] == name) for name in ("line", "loss", "val_acc")
    )

    assert line["x"] == list(range(500))
    assert loss["x"] == [epoch * 100 + step for epoch in range(3) for step in range(0, 100, 10)]
    assert acc["x"] == [0, 1, 2]
    assert acc["last"] == [0.1, 0.1 + 0.1, 0.2 + 0.1]
    assert loss["last"][15] == "NaN"
    assert loss["nonfinite"] == [{"x": 150, "kind": "NaN"}]


def test_x_may_be_a_loop_or_a_time(filled):
    _, by_epoch = curves(filled, names=["loss", "line"], x="epoch")
    _, by_time = curves(filled, names=["line"], x="relative")
    loss = by_epoch["series"][0]

    assert loss["x"][:12] == [*[n / 10 for n in range(10)], 1.0, 1.1]
    assert "not logged in a loop 'epoch'" in by_epoch["series"][3]["note"]
    assert by_epoch["series"][3]["x"] == []
    assert all(0 < x < 60 for x in by_time["series"][0]["x"])


def test_few_pixels_keep_the_lowest_and_the_highest(filled):
    _, found = curves(filled, names=["line"], pixels=10)
    line = found["series"][0]

    assert line["count"] == 500
    assert line["x"] == line["last"] == line["high"] == [0, *(min(56 * n, 499) for n in range(1, 10))]
    assert line["low"] == [0, *(56 * n + 1 for n in range(9))]


def test_a_window_is_finer(filled):
    _, found = curves(filled, names=["line"], pixels=100, **{"from": 200, "to": 210})

    assert found["series"][0]["x"] == list(range(199, 212))


def test_too_much_at_once_is_refused(filled):
    _, found = table(filled)
    runs = [row["run"] for row in found["rows"]]
    names = [f"name {n}" for n in range(400)]
    status, _, raw = ask(filled, "/api/series", {"runs": runs, "names": names, "pixels": 20_000})

    assert status == 400
    assert "fewer" in json.loads(raw)["error"]
    assert ask(filled, "/api/series", {"runs": runs, "names": ["line"], "pixels": 0})[0] == 422
    assert ask(filled, "/api/series", {"runs": runs, "names": ["line"], "pixels": 10, "y": 1})[0] == 422


def test_a_run_that_is_not_there_is_named(filled):
    status, _, raw = ask(filled, "/api/series", {"runs": ["000000000000"], "names": ["line"], "pixels": 10})

    assert status == 200
    assert json.loads(raw)["missing"] == ["000000000000"]


@pytest.mark.long
def test_events_tell_of_new_runs_of_their_values_and_of_their_end(serve, script):
    server = serve()
    request = urllib.request.urlopen(f"{server.url}/api/events", timeout=30)
    process = script.start(
        "import time, relive\nfor n in relive.loop('n', range(40)):\n    relive.log('v', n)\n    time.sleep(0.1)\n",
        env={"RELIVE_SERVER": server.url, "RELIVE_VERSIONS": "0"},
    )
    kinds, deadline, last = [], time.monotonic() + 30, ""
    while "ended" not in kinds and time.monotonic() < deadline:
        line = request.readline().decode()
        if line.startswith("event:"):
            kinds.append(line.split()[1])
        if line.startswith("id:"):
            last = line.split()[1]
    process.wait(timeout=30)
    _, _, again = ask(server, "/api/events?once=1", headers={"Last-Event-ID": last})
    _, _, lost = ask(server, "/api/events?once=1", headers={"Last-Event-ID": "other-7"})

    assert kinds[0] == "runs"
    assert kinds.count("points") >= 2
    assert kinds[-1] == "ended"
    assert b"event:" not in again
    assert b"event: reset" in lost


def test_a_run_that_begins_once_a_stream_is_open_is_told_as_new(serve):
    server = serve()
    with urllib.request.urlopen(f"{server.url}/api/events", timeout=30) as stream:
        write_runs(server.store)
        told = next(line for line in stream if line.startswith(b"data:"))

    assert json.loads(told[5:])["kind"] == "runs"
    assert [facts["new"] for facts in json.loads(told[5:])["runs"].values()] == [True]


@pytest.mark.long
def test_a_server_with_open_streams_stops_at_once(serve):
    server = serve()
    stream = urllib.request.urlopen(f"{server.url}/api/events", timeout=30)
    begun = time.monotonic()
    code, _ = server.stop()

    assert code == 0
    assert time.monotonic() - begun < 8
    stream.close()


def test_pages_that_ask_the_same_at_once_share_an_answer_and_none_waits_in_vain(filled):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: table(filled, columns=["lr"]), range(60)))
        wrong = list(pool.map(lambda _: table(filled, where="lrr > 1"), range(20)))

    assert {status for status, _ in found} == {200}
    assert all(answer == found[0][1] for _, answer in found)
    assert {status for status, _ in wrong} == {422}


HUGE = 12 << 20  # a run may be described in 16 MiB; an answer has at most 32


@pytest.fixture(scope="module")
def with_huge_runs(tmp_path_factory):
    store = tmp_path_factory.mktemp("huge") / "team"
    write_runs(store, 2, note="short")
    write_runs(store, 3, note="x" * HUGE, listed=["y" * 100] * 1_000, args={"big": "<b>" * 20_000})
    server = Server(store, "--open").start()
    yield server
    server.kill()


@pytest.mark.long
def test_runs_with_huge_tags_hurt_no_table(with_huge_runs):
    columns = ["tag:note", "tag:listed", "arg:big", "arg:number"]
    status, found = table(with_huge_runs, columns=columns, group=["tag:note"])
    assert status == 200
    rows = {row["cells"]["tag:note"][:5]: row for row in found["rows"]}

    assert rows["short"]["cells"]["tag:note"] == "short"
    assert rows["short"]["cut"] == []
    assert rows["xxxxx"]["cells"]["tag:note"] == "x" * 1000 + "…"
    assert rows["xxxxx"]["cells"]["tag:listed"].startswith('["yyy')
    assert rows["xxxxx"]["cut"] == ["tag:note", "tag:listed", "arg:big"]
    assert sorted(group["count"] for group in found["groups"]) == [2, 3]


@pytest.mark.long
def test_runs_with_huge_tags_hurt_no_list(with_huge_runs):
    status, _, raw = ask(with_huge_runs, "/api/runs")
    assert status == 200
    rows = json.loads(raw)["runs"]

    assert [row["cut"] for row in rows if row["tags"]["note"] == "short"] == [[], []]
    bad = next(row for row in rows if row["tags"]["note"] != "short")
    assert bad["cut"] == ["tags", "args"]
    assert len(raw) < 100_000
