"""A real browser, and a server with runs for it to show."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="no browser to drive; pip install playwright")
ROOT = Path(__file__).parents[3]
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

TRAIN = """
import math, relive
lr = relive.arg("lr", 0.1)
model = relive.arg("model", "small")
seed = relive.arg("seed", 0)
relive.data("train", b"one" if seed < 9 else b"two")
for epoch in relive.loop("epoch", range(4)):
    for step in relive.loop("step", range(25)):
        t = epoch * 25 + step
        relive.log("train/loss", math.nan if (lr, t) == (0.3, 60) else 1 / (1 + t * lr) + seed / 100)
        relive.log("train/memory_bytes", 25_275_000 + t)
    relive.log("val/acc", 1 - lr / (1 + epoch) - seed / 1000)
for n in relive.loop("n", range(501)):
    relive.log("probe", float(n % 50 == 0 and n == 450))
relive.log("f1", 0.9 - lr / 10)
relive.log("<img src=x onerror=alert(1)>", 1.0)
relive.log("note", "<script>window.harmed = 1</script>")
relive.artifact({"w": [1, 2]}, name="weights")
"""


# Everything that is no number, what a run leaves, and an error at its end with `broken=1`.
RICH = """
import csv, sys, time
import numpy as np, pandas, relive

seed, broken = relive.arg("seed", 0), relive.arg("broken", 0)
rng = np.random.default_rng(seed)

@relive.memo
def prepare(n):
    time.sleep(0.05)
    return list(range(n))

prepare(10)
w = rng.normal(size=(40, 50))
with relive.checkpointing(w=w):
    for epoch in relive.loop("epoch", range(6)):
        for step in relive.loop("step", range(5)):
            w *= 0.9
            relive.log("loss", 1 / (1 + epoch * 5 + step))
        relive.log("odd", [np.inf, -np.inf, np.nan, 1.0, 2.0, 3.0][epoch])
        relive.log("media/weights", w)
        relive.log("media/counted", np.histogram(w, 12))
        relive.log("media/picture", np.full((16, 16, 3), 40 * epoch, "uint8"))
        relive.log("media/batch", np.full((3, 1, 8, 8), epoch / 5, "float32"))
        relive.log("media/caption", f"epoch {epoch}: <b onclick=alert(1)>bold</b>")
        relive.log("media/frame", pandas.DataFrame({"guess": [epoch, 2], "<i>p</i>": [0.5, 1 / 3]}))
        print("epoch", epoch, "<script>alert(1)</script>")
        print("careful", file=sys.stderr)
for n in range(1200 if broken else 0):
    print("line", n)
with open("table.csv", "w", newline="") as file:
    csv.writer(file).writerows([["name", "value"], ["<b>x</b>", 1], ["y", 2]])
with open("notes.txt", "w") as file:
    file.write("hello notes <script>alert(1)</script>")
relive.artifact("table.csv", name="table.csv")
relive.artifact("notes.txt", name="notes.txt")
relive.artifact({"w": [1, 2]}, name="weights")
if broken:
    raise ValueError("the data has <b>holes</b>")
"""
RANKS = """
import os, relive
for step in relive.loop("step", range(30)):
    relive.log("loss", 1 / (1 + step) + 0.01 * int(os.environ["RANK"]) * step)
    relive.log("twice", 2.0 * step)
print("rank", os.environ["RANK"])
"""


def record(
    folder: Path, home: Path, source: str, *kwargs: str, name: str = "train.py", check: bool = True, **env: str
) -> None:
    (folder / name).write_text(source)
    env = {**os.environ, "RELIVE_HOME": str(home), "PYTHONWARNINGS": "", **env}
    command = [sys.executable, name, *(["--kwargs", *kwargs] if kwargs else [])]
    subprocess.run(command, cwd=folder, env=env, check=check, capture_output=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine; apt install chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An open server with eight runs: two models, four learning rates, one of them on other data."""
    folder = tmp_path_factory.mktemp("filled")
    home = folder / "team"
    for model in ("small", "large"):
        for lr in ("0.1", "0.2", "0.3"):
            record(folder, home, TRAIN, f"lr={lr}", f"model={model}")
    record(folder, home, TRAIN, "lr=0.4", "seed=9")
    record(folder, home, TRAIN, "model=<b>bold</b>", "seed=1")
    server = Server(home, "--open").start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An open server with two runs of `RICH`, one that failed, and one of three ranks."""
    folder = tmp_path_factory.mktemp("rich")
    home = folder / "team"
    record(folder, home, RICH, "seed=1", name="rich.py")
    record(folder, home, RICH, "seed=2", name="rich.py")
    record(folder, home, RICH, "seed=3", "broken=1", name="rich.py", check=False)
    for rank in range(3):
        ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3"}
        record(folder, home, RANKS, name="ranks.py", MASTER_ADDR="127.0.0.1", MASTER_PORT="29931", **ranks)
    server = Server(home, "--open").start()
    yield server
    server.kill()


def runs_of(server: Server, script: str) -> list[str]:
    """Returns the runs of a script, the newest first."""
    with urllib.request.urlopen(f"{server.url}/api/runs", timeout=20) as answer:
        return [one["run"] for one in json.load(answer)["runs"] if one["filename"] == script]


def _note(said: Any, wrongs: list[str]) -> None:
    """Notes what the page says on its console; that a request was refused is shown on the page itself."""
    if said.type == "error" and "Failed to load resource" not in said.text:
        wrongs.append(said.text)


@pytest.fixture
def open_page(browser: Any, filled: Server) -> Iterator[Callable[..., Any]]:
    """Opens a path of the server; fails if the page said anything wrong or loaded something from elsewhere."""
    contexts, wrongs = [], []

    def go(path: str = "/", *, server: Server = filled, viewport: dict[str, int] = WIDE, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: wrongs.append(str(error)))
        page.on("console", lambda said: _note(said, wrongs))
        page.on("dialog", lambda dialog: wrongs.append(f"dialog {dialog.message}"))
        page.on(
            "request", lambda asked: None if asked.url.startswith((server.url, "blob:")) else wrongs.append(asked.url)
        )
        page.goto(f"{server.url}{path}")
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrongs == []


def until(page: Any, condition: str) -> None:
    """Waits until an expression is true in the page. Playwright's own waiting would need `eval`, which ours forbids."""
    deadline = time.monotonic() + 20
    while not page.evaluate(f"() => Boolean({condition})"):
        assert time.monotonic() < deadline, f"it did not become true: {condition}"
        page.wait_for_timeout(50)


def charts_drawn(page: Any, count: int = 1) -> None:
    """Waits until so many charts have been drawn."""
    until(page, f"document.querySelectorAll('.plot .u-over').length >= {count}")
    page.wait_for_timeout(150)
