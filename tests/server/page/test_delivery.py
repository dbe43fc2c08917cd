"""How the page gets to people: live, behind a proxy with a prefix, through login, and not with an expired token."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from relive.server import Tokens

from ..conftest import Server
from .conftest import charts_drawn, until

pytestmark = pytest.mark.long
LIVE = """
import time, relive
for step in relive.loop("step", range(100_000)):
    relive.log("loss", 1 / (1 + step))
    if step == 30:
        print("logged", flush=True)
    time.sleep(0.05)
"""


def test_a_live_run_appears_and_grows_without_a_reload(open_page, serve, script):
    server = serve()
    page = open_page("/", server=server)
    page.get_by_text("No runs yet").wait_for()
    process = script.start(LIVE, env={"RELIVE_SERVER": server.url, "RELIVE_VERSIONS": "0"})
    assert process.stdout.readline() == "logged\n"
    page.get_by_text("1 runs, 1 shown").wait_for()
    charts_drawn(page)
    page.locator(".row .live").wait_for()
    read = "document.querySelector('.plot').getAttribute('aria-label')"
    assert "loss, 1 curves" in page.evaluate(read)
    box = page.locator(".plot .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    page.locator(".readings b").wait_for()
    first = int(page.inner_text(".readings b").split()[1])
    page.mouse.move(box["x"] + 5, box["y"] + 20)
    page.wait_for_timeout(2500)
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    until(page, f"Number(document.querySelector('.readings b').innerText.split(' ')[1]) > {first + 10}")

    process.kill()


class Prefix(BaseHTTPRequestHandler):
    """A proxy that serves a server below /team/tools."""

    protocol_version = "HTTP/1.0"
    target = 0

    def do_GET(self) -> None:
        if not self.path.startswith("/team/tools"):
            self.send_error(404)
            return
        inner = http.client.HTTPConnection("127.0.0.1", self.target, timeout=20)
        length = int(self.headers.get("content-length") or 0)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "accept-encoding")}
        headers["X-Forwarded-Prefix"] = "/team/tools"
        inner.request(self.command, self.path.removeprefix("/team/tools") or "/", self.rfile.read(length), headers)
        answer = inner.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.end_headers()
        try:
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            return
        finally:
            answer.close()
            inner.close()

    do_POST = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def prefixed(filled):
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Prefix,), {"target": filled.port}))
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{proxy.server_address[1]}"
    proxy.shutdown()
    proxy.server_close()


def test_a_path_prefix_of_a_proxy_is_kept(browser, prefixed):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page, wrongs = context.new_page(), []
    page.on("response", lambda answer: wrongs.append(answer.url) if answer.status >= 400 else None)
    page.goto(f"{prefixed}/team/tools/")
    charts_drawn(page)
    page.locator(".row .who a").first.click()
    page.get_by_role("link", name="Charts", exact=True).click()
    charts_drawn(page)
    address = page.url
    page.reload()
    charts_drawn(page)
    page.get_by_role("link", name="Leaderboard").click()
    page.get_by_role("heading", name="Leaderboard").wait_for()

    assert address.startswith(f"{prefixed}/team/tools/runs/")
    assert page.url == f"{prefixed}/team/tools/leaderboard"
    assert wrongs == []
    context.close()


def test_a_deep_link_leads_through_login_and_a_lost_token_leads_there_again(tmp_path, browser):
    store = tmp_path / "team"
    word, token = Tokens(store).create("ada", ["read"])
    server = Server(store, "--host", "127.0.0.1").start()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{server.url}/leaderboard?by=best")
        assert page.url.startswith(f"{server.url}/login?next=")
        page.get_by_label("Token").fill("relive_wrong_word")
        page.click("button")
        page.get_by_label("Token").fill(word)
        page.click("button")
        page.wait_for_url(f"{server.url}/leaderboard?by=best")
        page.get_by_role("heading", name="Leaderboard").wait_for()
        (cookie,) = context.cookies()
        assert cookie["httpOnly"]

        Tokens(store).remove(token.id)
        page.get_by_role("link", name="Explore").click()
        page.wait_for_url(f"{server.url}/login?next=*")
    finally:
        context.close()
        server.kill()


def test_who_logs_out_is_out(tmp_path, browser):
    store = tmp_path / "team"
    word, _ = Tokens(store).create("ada", ["read"])
    server = Server(store, "--host", "127.0.0.1").start()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{server.url}/login")
        page.get_by_label("Token").fill(word)
        page.click("button")
        page.get_by_text("No runs yet").wait_for()
        page.get_by_title("You and the look").click()
        page.get_by_role("button", name="log out").click()
        page.wait_for_url(f"{server.url}/login")

        assert context.cookies() == []
    finally:
        context.close()
        server.kill()
