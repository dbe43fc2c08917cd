"""A column that nobody logged, asked for over HTTP: planned, priced, replayed and stopped, by those who may."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import relive
from relive.server import Tokens

from ...conftest import Server
from ...ui_process import Ui

pytestmark = pytest.mark.long

TRAIN = """
import relive, torch
torch.manual_seed(relive.arg("seed", 0))
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=relive.arg("lr", 0.1))
data = torch.randn(32, 4)
with relive.checkpointing(model=net, optimizer=opt):
    for epoch in relive.loop("epoch", range(4)):
        for step in relive.loop("step", range(3)):
            loss = (net(data) - 1).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            relive.log("loss", loss.item())
relive.log("end", 1.0)
"""
STATEMENT = 'relive.log("grad_norm", sum(p.grad.norm().item() for p in net.parameters()))'


@pytest.fixture(scope="module")
def page(shared_script) -> Iterator[Ui]:
    shared_script(TRAIN)
    shared_script(TRAIN.replace("randn(32, 4)", "randn(64, 4)"), "--kwargs", "lr=0.2")
    started = Ui(shared_script.project)
    started.enter()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def runs(page: Ui) -> tuple[str, str]:
    new, old = (run["run"] for run in page.json("/api/runs")["runs"])
    return new, old


def post(page: Ui, path: str, body: Any = None, method: str = "POST") -> tuple[int, Any]:
    status, _, raw = page.get(path, method, body, Origin=f"http://127.0.0.1:{page.port}")
    return status, msgspec.json.decode(raw)


def line_of(page: Ui, run: str, text: str) -> int:
    rows = page.json(f"/api/runs/{run}/code?path=train.py")["text"].splitlines()
    return next(number for number, row in enumerate(rows, 1) if text in row)


def finish(page: Ui, question: str) -> dict[str, Any]:
    deadline = time.monotonic() + 240
    while (found := page.json(f"/api/ask/questions/{question}"))["state"] in ("waiting", "running"):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def metric_of(page: Ui, run: str, name: str) -> dict[str, Any]:
    """Returns the summary of a name, once the index has it."""
    deadline = time.monotonic() + 60
    while True:
        found = {one["name"]: one for one in page.json(f"/api/runs/{run}")["metrics"]}
        if name in found:
            return found[name]
        assert time.monotonic() < deadline, f"no {name} in the table"
        time.sleep(0.1)


def test_a_statement_given_as_text_fills_a_column_of_both_versions(page, runs, shared_script):
    new, old = runs
    line = line_of(page, old, "opt.step()")

    status, plan = post(page, "/api/ask/plan",
                        {"statement": STATEMENT, "file": "train.py", "line": line, "source": old})  # fmt: skip
    assert status == 200, plan
    assert {row["run"] for row in plan["rows"]} == {new, old}
    assert plan["names"] == ["grad_norm"]
    assert plan["total_s"] > 0
    for row in plan["rows"]:
        assert row["lands"] == f"train.py:{line}"
        assert row["confidence"] == "high"
        assert f"+            {STATEMENT}" in row["patch"]
    status, started = post(page, f"/api/ask/{plan['plan']}/start")
    assert status == 202
    found = finish(page, started["question"])

    assert found["state"] == "done", found
    assert (found["values"], found["done"], found["errors"]) == (24, found["of"], [])
    assert set(found["verdicts"]) <= {"proven", "reproduced"}
    metric = metric_of(page, old, "grad_norm")
    assert (metric["count"], metric["verdict"]) == (12, found["runs"][0]["verdict"])
    frame = relive.dataframe("grad_norm", home=shared_script.home)
    assert frame["grad_norm"].notna().sum() == 24
    assert "grad_norm" not in (shared_script.project / "train.py").read_text()  # the project is as it was
    assert page.json("/api/ask/questions")["questions"][0]["id"] == started["question"]
    status, refusal = post(page, f"/api/ask/{plan['plan']}/start")
    assert status == 422
    assert "started already" in refusal["error"]


def test_the_values_equal_those_that_logging_then_would_have_given(page, runs, shared_script, tmp_path):
    new, _ = runs
    line = line_of(page, new, "opt.step()")
    statement = STATEMENT.replace("grad_norm", "grad_again")
    _, plan = post(page, "/api/ask/plan",
                   {"statement": statement, "file": "train.py", "line": line, "runs": [new]})  # fmt: skip
    question = post(page, f"/api/ask/{plan['plan']}/start")[1]["question"]
    assert finish(page, question)["state"] == "done"

    source = (shared_script.project / "train.py").read_text().splitlines(keepends=True)
    source.insert(line - 1, f"            {statement}\n")
    shared_script("".join(source), "--kwargs", "lr=0.2", env={"RELIVE_HOME": str(tmp_path / "then")}, name="then.py")

    logged = relive.dataframe("grad_again", home=tmp_path / "then")["grad_again"].tolist()
    replayed = relive.dataframe("grad_again", home=shared_script.home).dropna(subset=["grad_again"])
    assert replayed["grad_again"].tolist() == logged


def test_a_question_is_stopped_and_its_end_is_told(page, runs):
    line = line_of(page, runs[1], "opt.step()")
    slow = 'import time; time.sleep(2); relive.log("slow", 1.0)'
    body = {"statement": slow, "file": "train.py", "line": line, "source": runs[1], "runs": [runs[1]]}
    _, plan = post(page, "/api/ask/plan", body)
    question = post(page, f"/api/ask/{plan['plan']}/start")[1]["question"]
    while not page.json(f"/api/ask/questions/{question}")["took_s"]:
        time.sleep(0.05)

    status, stopped = post(page, f"/api/ask/questions/{question}", method="DELETE")

    assert status == 200
    assert stopped["state"] == "stopped", stopped
    assert finish(page, question)["state"] == "stopped"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "no column is named"),
        ({"names": ["x"], "wrong": 1}, "wrong"),
        ({"statement": STATEMENT}, "needs its place"),
        ({"statement": STATEMENT, "file": "no.py", "line": 1}, "no.py is not among"),
        ({"statement": STATEMENT, "file": "../train.py", "line": 1}, "is not among"),
        ({"statement": STATEMENT, "file": "train.py", "line": 10_000}, "lines; choose one"),
        ({"statement": "if", "file": "train.py", "line": 1}, "no Python statement"),
        ({"statement": "x = 1", "file": "train.py", "line": 1}, "no column is named"),
        ({"names": ["loss"], "where": "nonsense ="}, ""),
    ],
)  # fmt: skip
def test_a_question_that_can_t_be_answered_is_refused_with_the_reason(page, body, why):
    status, told = post(page, "/api/ask/plan", body)

    assert status == 422 or told.get("rows") == [], told
    assert why in (told.get("error") or " ".join(one["why"] for one in told["refused"]))
    assert "Traceback" not in str(told)


def test_an_unknown_plan_or_question_is_not_found(page):
    assert post(page, "/api/ask/0123456789ab/start")[0] == 404
    assert page.get("/api/ask/questions/0123456789ab")[0] == 404


def test_others_get_the_command_to_copy(shared_script, page, tmp_path):
    store = tmp_path / "team"
    reader, _ = Tokens(store).create("ada", ["read"])
    replayer, _ = Tokens(store).create("eve", ["read", "replay"])
    server = Server(store).start()
    body = {"statement": STATEMENT, "file": "train.py", "line": 3, "names": ["grad_norm"], "where": "lr < 0.2"}
    try:
        for token in (reader, replayer):
            request = urllib.request.Request(
                f"{server.url}/api/ask/plan", msgspec.json.encode(body), {"Authorization": f"Bearer {token}"}
            )
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(request, timeout=30)
            told = msgspec.json.decode(refusal.value.read())
            refusal.value.close()
            assert refusal.value.code == 403
            assert told["commands"] == [
                f"# add before train.py:3: {STATEMENT}", "relive replay grad_norm --where 'lr < 0.2'",
            ]  # fmt: skip
    finally:
        server.kill()


def test_a_token_with_the_scope_asks_a_server_that_replays(shared_script, page, runs):
    store = shared_script.home
    allowed, _ = Tokens(store).create("ada", ["read", "replay"])
    limited, _ = Tokens(store).create("eve", ["read", "replay"], projects=["project"])
    server = Server(store, "--replay").start()
    place = {"file": "train.py", "line": line_of(page, runs[1], "opt.step"), "source": runs[1]}
    body = {"statement": 'relive.log("again", loss.item())', **place, "runs": [runs[1]]}

    def ask(token: str) -> Any:
        head = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{server.url}/api/ask/plan", msgspec.json.encode(body), head)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return msgspec.json.decode(answer.read())

    try:
        plan = ask(allowed)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            ask(limited)
        refusal.value.close()
    finally:
        code, _ = server.stop()

    assert [row["run"] for row in plan["rows"]] == [runs[1]]
    assert refusal.value.code == 403
    assert code == 0


def test_the_page_says_that_it_can_ask(page):
    assert page.json("/api/session")["can_ask"] is True
