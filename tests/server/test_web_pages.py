"""The pages, in a real browser: they show live values, load nothing from elsewhere, and let nobody in unasked."""

from __future__ import annotations

import shutil

import pytest

from relive.server import Tokens

from .conftest import Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="no browser to drive; pip install playwright")
if CHROMIUM is None:
    pytest.skip("no Chromium on this machine; apt install chromium", allow_module_level=True)

LIVE = """
import time, relive
relive.arg("lr", 0.25)
relive.data("train", b"some data")
for step in relive.loop("step", range(400)):
    relive.log("loss", 1 / (1 + step))
    relive.log("<b>name</b>", float(step))
relive.log("val_acc", 0.75)
relive.artifact({"w": [1, 2]}, name="weights")
print("logged", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.long
def test_the_pages_show_a_run_while_it_goes_on(script, serve, browser):
    server = serve()
    process = script.start(LIVE, env={"RELIVE_SERVER": server.url, "RELIVE_VERSIONS": "0"})
    assert process.stdout.readline() == "logged\n"
    context = browser.new_context()
    page, asked, wrongs = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrongs.append(str(error)))
    page.on("console", lambda told: wrongs.append(told.text) if told.type == "error" else None)

    page.goto(server.url)
    page.get_by_text("val_acc=0.75").wait_for()
    assert "lr=0.25" in page.inner_text("tbody")
    assert "running" in page.inner_text("tbody")
    page.get_by_label("Search").fill("lr=0.3")
    page.get_by_text("0 runs").wait_for()
    page.get_by_label("Search").fill("LR=0.25")
    page.get_by_text("1 runs").wait_for()
    page.click("tbody a")
    page.wait_for_selector("figure svg .trace")
    assert page.locator("figure").count() == 2
    text = page.inner_text("main")
    for field in ("Config", "Code", "Data", "Metrics", "Environment", "Artifacts", "weights", "<b>name</b>"):
        assert field in text
    page.goto(f"{server.url}/leaderboard?metric=val_acc")
    page.get_by_text("lr=0.25").wait_for()
    page.goto(f"{server.url}/registry")
    page.get_by_text("No models yet").wait_for()

    assert all(url.startswith(server.url) for url in asked)
    assert [wrong for wrong in wrongs if "favicon" not in wrong] == []
    context.close()


@pytest.mark.long
def test_a_browser_needs_a_token_too(tmp_path, browser):
    store = tmp_path / "team"
    word, token = Tokens(store).create("ada", ["read"])
    server = Server(store, "--host", "127.0.0.1").start()
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{server.url}/leaderboard")
        assert page.url == f"{server.url}/login?next=%2Fleaderboard"
        page.get_by_label("Token").fill("relive_wrong_word")
        page.click("button")
        assert page.url == f"{server.url}/login?next=%2Fleaderboard"
        page.get_by_label("Token").fill(word)
        page.click("button")
        page.wait_for_url(f"{server.url}/leaderboard")
        page.goto(server.url)
        page.get_by_text("0 runs").wait_for()
        (cookie,) = context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Lax"
        Tokens(store).remove(token.id)
        page.wait_for_url(f"{server.url}/login", timeout=10_000)
        context.close()
    finally:
        server.kill()


@pytest.mark.long
def test_ten_thousand_values_are_a_short_answer(script, serve):
    server = serve()
    source = (
        "import relive\nfor n in relive.loop('n', range(20000)):\n    relive.log('v', float('nan') if n == 7 else n)\n"
    )
    script(source, env={"RELIVE_SERVER": server.url, "RELIVE_VERSIONS": "0"})
    import json
    import urllib.request

    run = json.load(urllib.request.urlopen(f"{server.url}/api/runs", timeout=10))["runs"][0]["run"]
    with urllib.request.urlopen(f"{server.url}/api/runs/{run}/series?name=v&points=100", timeout=10) as answer:
        line = json.load(answer)

    assert line["count"] == 20_000
    assert line["nan"] == 1
    assert len(line["at"]) == len(line["last"]) == 100
    assert line["lowest"][0] == 0
    assert line["highest"][-1] == line["last"][-1] == 19_999
    assert line["at"][-1] == 19_999
