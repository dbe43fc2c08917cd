"""TensorBoard and trackio with the same curves, in the same browser: from their address until the curves are seen."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

STARTS_S = 300
CHARTS = {"x": 310, "y": 150, "width": 700, "height": 550}  # of the window, in all three pages
COLOURED = 15_000  # pixels of it, when a hundred curves are there
FILL_TRACKIO = """
import random, sys
from trackio.sqlite_storage import SQLiteStorage
runs, points = int(sys.argv[1]), int(sys.argv[2])
for run in range(runs):
    metrics = [{"loss": random.random()} for _ in range(points)]
    SQLiteStorage.bulk_log("bench", f"run{run}", metrics, steps=list(range(points)))
"""


def seen_s(browser: Any, url: str, is_whole: str = "true") -> float:
    """Returns how long it takes from an address until its curves are on the screen, as pictures of it tell."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    begun = time.monotonic()
    page.goto(url, wait_until="commit")
    while True:
        at = time.monotonic()
        picture = page.screenshot(clip=CHARTS, timeout=STARTS_S * 1000)  # a page that is busy is not photographed
        if _coloured(picture) >= COLOURED and page.evaluate(f"() => Boolean({is_whole})"):
            page.close()
            return at - begun
        assert at - begun < STARTS_S, f"{url} shows no curves"


def _coloured(picture: bytes) -> int:
    """Returns how many pixels are neither white nor grey."""
    with Image.open(io.BytesIO(picture)) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    return int((pixels.max(axis=2) - pixels.min(axis=2) > 60).sum())


def measure_peers(browser: Any, folder: Path, runs: int, points: int, trackio_python: str) -> dict[str, Any]:
    """Measures those that are installed."""
    from playwright.sync_api import Error as PageError

    found: dict[str, Any] = {"peer_points": points}
    of_trackio = functools.partial(trackio, python=trackio_python)
    for name, measure in (("tensorboard", tensorboard), ("trackio", of_trackio)):
        try:
            found |= measure(browser, folder / name, runs, points)
        except ImportError:
            print(f"page_speed: {name} is not installed and is left out", file=sys.stderr)
        except (AssertionError, PageError, subprocess.SubprocessError, OSError) as error:
            print(f"page_speed: {name} could not be measured ({error})", file=sys.stderr)
    return found


def tensorboard(browser: Any, folder: Path, runs: int, points: int) -> dict[str, float]:
    """Of each curve it samples 1000 values when it loads, so that more change the time of loading only."""
    from torch.utils.tensorboard import SummaryWriter

    program = Path(sys.executable).with_name("tensorboard")
    if not program.exists():
        raise ImportError("tensorboard")
    for run in range(runs):
        with SummaryWriter(str(folder / f"run{run}")) as writer:
            for step in range(points):
                writer.add_scalar("loss", random.random(), step)
    port = 6106
    with _served([str(program), "--logdir", str(folder), "--port", str(port), "--reload_interval", "3600"]) as begun:
        tags = f"http://127.0.0.1:{port}/data/plugin/scalars/tags"
        _wait(lambda: len(_json(tags)) >= runs)
        loads_s = time.monotonic() - begun
        took_s = seen_s(browser, f"http://127.0.0.1:{port}/#timeseries")
    return {"opened_tensorboard_s": took_s, "tensorboard_loads_s": loads_s}


def trackio(browser: Any, folder: Path, runs: int, points: int, python: str = sys.executable) -> dict[str, float]:
    """It shows all values."""
    if subprocess.run([python, "-c", "import trackio"], capture_output=True, check=False).returncode:
        raise ImportError("trackio")
    port = 6107
    env = {"TRACKIO_DIR": str(folder), "GRADIO_SERVER_PORT": str(port)}
    filling = [python, "-c", FILL_TRACKIO, str(runs), str(points)]
    subprocess.run(filling, env={**os.environ, **env}, check=True, capture_output=True)
    code = f"import trackio; trackio.show(project='bench', block_thread=True, open_browser=False, server_port={port})"
    with _served([python, "-c", code], **env) as begun:
        _wait(lambda: _answers(f"http://127.0.0.1:{port}/"))
        loads_s = time.monotonic() - begun
        took_s = seen_s(browser, f"http://127.0.0.1:{port}/?project=bench")
    return {"opened_trackio_s": took_s, "trackio_loads_s": loads_s}


@contextlib.contextmanager
def _served(command: list[str], **env: str) -> Iterator[float]:
    """Runs a server for the block; yields when it was started."""
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **env}
    )  # fmt: skip
    try:
        yield time.monotonic()
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(is_ready: Any) -> None:
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # it does not listen yet
            if is_ready():
                return
        time.sleep(0.5)
    raise AssertionError("it did not load the curves")


def _json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def _answers(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.status == 200
