"""`relive ui`: one browser gets in by the address, nobody else; it lives beside runs that are being recorded."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.server.access import LocalAccess

from .ui_process import Ui

LIVE = """
import time, relive
for step in relive.loop("step", range(100_000)):
    relive.log("loss", float(step))
    time.sleep(0.01)
    if step == 3:
        print("logged", flush=True)
"""


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[Ui]:
    (tmp_path / ".relive" / "runs").mkdir(parents=True)
    started = Ui(tmp_path)
    yield started
    if started.process.poll() is None:
        started.stop()


@pytest.mark.long
def test_the_address_lets_one_browser_in_once(ui):
    assert ui.get("/api/session")[0] == 401

    headers = ui.enter()

    assert "HttpOnly" in headers["set-cookie"]
    assert f"relive_ui_{ui.port}=" in headers["set-cookie"]
    session = ui.json("/api/session")
    assert session["scopes"] == ["read", "promote", "replay"]
    assert session["home"].endswith(".relive")
    assert ui.get(ui.ticket_path)[0] == 303  # the same browser opens it again
    ui.cookie = ""
    status, headers, _ = ui.get(ui.ticket_path)
    assert status == 401
    assert "set-cookie" not in headers


@pytest.mark.long
def test_a_link_preview_does_not_use_the_address_up(ui):
    assert ui.get(ui.ticket_path, "HEAD")[0] == 200
    assert ui.get("/login?ticket=wrong")[0] == 401

    ui.enter()


@pytest.mark.long
def test_other_hosts_and_pages_of_other_sites_are_refused(ui):
    assert ui.get(ui.ticket_path, Host="evil.example")[0] == 403
    ui.enter()

    assert ui.get("/api/runs", Host="evil.example")[0] == 403
    assert ui.get("/logout", "POST", Origin="http://evil.example")[0] == 403
    assert ui.get("/logout", "POST", Origin=f"http://127.0.0.1:{ui.port}")[0] == 303


@pytest.mark.long
def test_it_takes_no_runs_in(ui):
    ui.enter()

    assert ui.get("/api/runs/0123456789ab/journals/0", "POST")[0] == 404


@pytest.mark.long
def test_a_promotion_carries_the_name_of_the_account(script):
    import getpass

    script('import relive\nrelive.data("d", b"x")\nrelive.log("acc", 1.0)\nrelive.artifact({"w": 1}, name="weights")\n')
    page = Ui(script.project)
    try:
        page.enter()
        run = page.json("/api/runs")["runs"][0]["run"]
        status, _, body = page.get("/api/registry/net", "POST", {"run": run, "aliases": ["best"], "force": True})
        history = page.json("/api/registry/net")["history"]
    finally:
        page.stop()

    assert status == 201, body
    assert {change["by"] for change in history} == {getpass.getuser()}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(ui, number):
    ui.enter()

    code, said = ui.stop(number)

    assert code == 0
    assert "Traceback" not in said


@pytest.mark.long
def test_it_shows_a_run_that_is_being_recorded_and_two_of_them_live_beside_it(script, tmp_path):
    process = script.start(LIVE, env={"RELIVE_VERSIONS": "0"})
    assert process.stdout.readline() == "logged\n"
    one, two = Ui(script.project), Ui(script.project)
    try:
        for page in (one, two):
            page.enter()
            first = page.json("/api/runs")["runs"][0]
            assert first["outcome"] == "running"
            deadline = time.monotonic() + 20
            while page.json("/api/runs")["runs"][0]["last"]["loss"] <= first["last"]["loss"]:
                assert time.monotonic() < deadline, "no new value arrived"
    finally:
        one.stop()
        two.stop()
        process.kill()


@pytest.mark.long
def test_a_page_that_needs_login_is_kept_in_mind(ui):
    status, headers, _ = ui.get("/runs/0123456789ab?tab=code")
    assert (status, headers["location"]) == (303, "/login?next=%2Fruns%2F0123456789ab%3Ftab%3Dcode")

    status, headers, _ = ui.get(f"{ui.ticket_path}&next=%2Fruns%2F0123456789ab%3Ftab%3Dcode")

    assert headers["location"] == "/runs/0123456789ab?tab=code"


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["//evil.example", "https://evil.example", "/%5Cevil.example", "javascript:1", "x"])
def test_login_leads_to_no_other_site(ui, wrong):
    assert ui.get(f"{ui.ticket_path}&next={wrong}")[1]["location"] == "/"


@pytest.mark.long
def test_login_works_below_a_prefix(ui):
    where = {"X_Forwarded_Prefix": "/relive"}
    assert ui.get("/runs/0123456789ab", **where)[1]["location"].startswith("/relive/login?next=%2Frelive%2Fruns")
    wrong = {"X_Forwarded_Prefix": "//evil.example"}
    assert ui.get("/runs/0123456789ab", **wrong)[1]["location"].startswith("/login?")

    _, headers, _ = ui.get(f"{ui.ticket_path}&next=%2Felsewhere", **where)

    assert headers["location"] == "/relive/"
    assert "Path=/relive;" in headers["set-cookie"]


def test_a_ticket_is_redeemed_once_and_only_if_it_is_right():
    access = LocalAccess("ada", 5006)
    assert access.redeem("wrong") is None
    assert not access.knows("")

    secret = access.redeem(access.ticket)

    assert secret is not None
    assert access.knows(secret)
    assert access.redeem(access.ticket) is None
