"""The web page in a real Chromium: how soon curves, tables and new points are seen, and what the server needs."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench.filling import fill_home
from bench.measuring import clean_environment, report
from bench.page_peers import measure_peers, seen_s

GOALS = {
    "overlay_s": "< 1.5", "tensorboard_ratio": "> 1", "trackio_ratio": "> 1", "point_seen_s": "< 1.5", "table_s": "< 1",
    "tabs_p95_ms": "< 300", "pan_frames_per_s": ">= 30", "server_memory_mb": "< 400",
}  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Resolves when what the canvas was told to draw is really there: reading a pixel waits for the rasterizer.
PAINTED = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
    document.querySelector('.plot canvas').getContext('2d').getImageData(0, 0, 1, 1);
    done();
})))"""
# Moves the window a little in every frame for three seconds; answers with the frames per second.
PAN = """() => new Promise((done) => {
    const over = document.querySelector('.plot .u-over');
    const { left, top } = over.getBoundingClientRect();
    const tell = (target, kind, x) => target.dispatchEvent(
        new MouseEvent(kind, { bubbles: true, cancelable: true, shiftKey: true,
                               clientX: left + x, clientY: top + 100 }));
    tell(over, 'mousedown', 900);
    const begun = performance.now();
    let frames = 0;
    const next = () => {
        frames++;
        tell(window, 'mousemove', 900 - (frames % 100) * 4);
        if (performance.now() - begun < 3000) { requestAnimationFrame(next); return; }
        document.querySelector('.plot canvas').getContext('2d').getImageData(0, 0, 1, 1);
        const rate = (frames * 1000) / (performance.now() - begun);
        tell(window, 'mouseup', 500);
        done(rate);
    };
    requestAnimationFrame(next);
})"""
LIVE = """
import sys, time, relive
for step in relive.loop("step", range(10_000)):
    relive.log("live/loss", float(step))
    print(step, time.time(), flush=True)
    time.sleep(0.2)
"""


def main() -> None:
    """Fills two homes, serves each, and measures with a browser."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100, help="curves of the overlay")
    parser.add_argument("--points", type=int, default=100_000, help="values of each")
    parser.add_argument("--table", type=int, default=1_000, help="runs of the table")
    parser.add_argument("--peer-points", type=int, default=10_000, help="values of each curve in the other tools")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--trackio", default=sys.executable, help="a Python that has trackio")
    given = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("page_speed: skipped; playwright is not installed")
        return
    if CHROMIUM is None:
        print("page_speed: skipped; there is no Chromium")
        return
    numbers: dict[str, Any] = {"curves": given.runs, "points": given.points, "table_runs": given.table}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        fill_home(folder / "long", runs=given.runs, steps=given.points, names=["loss"])
        with Served(folder / "long") as server:
            server.wait_for_index(given.runs)
            numbers |= overlay(browser, server, given.runs)
            numbers["server_memory_mb"] = server.memory_mb()
        fill_home(folder / "many", runs=given.table, steps=50, names=[f"m{n}/x" for n in range(10)])
        with Served(folder / "many") as server:
            server.wait_for_index(given.table)
            numbers |= table(browser, server)
            numbers |= tabs(server)
            numbers |= live(browser, server, folder)
            numbers["server_memory_mb"] = max(numbers["server_memory_mb"], server.memory_mb())
        if not given.without_peers:
            numbers |= measure_peers(browser, folder, given.runs, given.peer_points, given.trackio)
            numbers |= {
                f"{name}_ratio": numbers[f"opened_{name}_s"] / numbers["opened_s"]
                for name in ("tensorboard", "trackio")
                if f"opened_{name}_s" in numbers
            }
        numbers["load"] = os.getloadavg()[0]
        browser.close()
    report("page_speed", GOALS, **numbers)


class Served:
    """`relive serve --open` on a home."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __enter__(self) -> Served:
        command = [sys.executable, "-m", "relive", "serve", "--store", str(self.home), "--open", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment())
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)

    def post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def wait_for_index(self, runs: int) -> None:
        """Waits until all runs are indexed, and long ones have their pyramids."""
        deadline = time.monotonic() + 600
        while self.post("/api/table", {"limit": 1, "columns": []})["total"] < runs:
            assert time.monotonic() < deadline, "the runs were not indexed"
            time.sleep(0.5)
        before = -1
        while time.monotonic() < deadline:
            found = sum(1 for _ in self.home.glob("index/pyramids/*/*.bin"))
            segments = sum(path.stat().st_size for path in self.home.glob("index/**/*.parquet"))
            if found + segments == before and segments:
                return
            before = found + segments
            time.sleep(4)

    def memory_mb(self) -> float:
        """The memory of the server and its processes; what they share counts once."""
        total = 0
        for pid in _family(self.process.pid):
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total / 1024


def _family(pid: int) -> list[int]:
    found = [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]
    return [pid, *(one for child in found for one in _family(child))]


def _page(browser: Any, url: str) -> Any:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(url)
    return page


def _until(page: Any, condition: str, patience_s: float = 120) -> float:
    """Returns when an expression became true."""
    deadline = time.monotonic() + patience_s
    while not page.evaluate(f"() => Boolean({condition})"):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(10)
    return time.monotonic()


def overlay(browser: Any, server: Served, runs: int) -> dict[str, float]:
    """From the click on `all` until every curve is drawn; then the frames while the window moves."""
    page = _page(browser, f"{server.url}/?top=1&size=l")
    _until(page, "document.querySelector('.plot .u-over')")
    page.wait_for_timeout(1500)
    page.get_by_role("button", name="show ▾").click()
    begun = time.monotonic()
    page.get_by_role("button", name=f"all {runs}").click()
    drawn = f"document.querySelector('.plot').getAttribute('aria-label').includes(', {runs} curves')"
    _until(page, drawn)
    page.evaluate(PAINTED)
    took_s = time.monotonic() - begun
    frames = page.evaluate(PAN)
    page.close()
    whole = drawn.replace("querySelector('.plot').", "querySelector('.plot')?.").replace("label').", "label')?.")
    opened_s = seen_s(browser, f"{server.url}/?top={runs}&size=l", whole)
    return {"overlay_s": took_s, "pan_frames_per_s": frames, "opened_s": opened_s}


def table(browser: Any, server: Served) -> dict[str, float]:
    """From the address until the rows are there and one can be clicked."""
    _page(browser, f"{server.url}/?view=table").close()
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    begun = time.monotonic()
    page.goto(f"{server.url}/?view=table")
    took_s = _until(page, "document.querySelectorAll('.row .eye').length > 15") - begun
    page.close()
    return {"table_s": took_s}


def tabs(server: Served) -> dict[str, float]:
    """Twenty tabs that ask for what a refreshed workspace asks for."""
    runs = [row["run"] for row in server.post("/api/table", {"limit": 10, "columns": []})["rows"]]

    def refresh(_tab: int) -> list[float]:
        took = []
        for _ in range(5):
            for path, body in (
                ("/api/table", {"limit": 200, "columns": ["metric:m0/x", "arg:lr", "tstamp"]}),
                ("/api/series", {"runs": runs, "names": ["m0/x", "m1/x", "m2/x"], "pixels": 600}),
            ):
                begun = time.monotonic()
                server.post(path, body)
                took.append(time.monotonic() - begun)
            time.sleep(2)  # the page waits as long after an event
        return took

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        took = [one for found in pool.map(refresh, range(20)) for one in found]
    return {
        "tabs_p95_ms": statistics.quantiles(took, n=20)[-1] * 1000,
        "tabs_median_ms": statistics.median(took) * 1000,
    }


def live(browser: Any, server: Served, folder: Path) -> dict[str, float]:
    """From a log call until the chart has the value."""
    (folder / "live.py").write_text(LIVE)
    env = {**clean_environment(), "RELIVE_HOME": str(server.home), "RELIVE_VERSIONS": "0"}
    script = subprocess.Popen(
        [sys.executable, "live.py"], cwd=folder, env=env, stdout=subprocess.PIPE, text=True, bufsize=1
    )  # fmt: skip
    assert script.stdout is not None
    took = []
    try:
        script.stdout.readline()
        page = _page(browser, f"{server.url}/?top=1&find=live/loss&size=l")
        _until(page, "document.querySelector('.plot .u-over')")
        os.set_blocking(script.stdout.fileno(), True)
        box = page.locator(".plot .u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 50)
        for _ in range(8):
            step, logged = 0, 0.0
            while logged < time.time() - 0.15:
                words = script.stdout.readline().split()
                step, logged = int(words[0]), float(words[1])
            seen = f"Number((document.querySelector('.readings b')?.innerText ?? 'step 0').split(' ')[1]) >= {step}"
            while not page.evaluate(f"() => {seen}"):
                page.mouse.move(box["x"] + box["width"] - 2 - time.time() % 1, box["y"] + 50)
                page.wait_for_timeout(20)
            took.append(time.time() - logged)
        page.close()
    finally:
        script.kill()
        script.wait()
    return {"point_seen_s": statistics.median(took), "point_seen_worst_s": max(took)}


if __name__ == "__main__":
    main()
