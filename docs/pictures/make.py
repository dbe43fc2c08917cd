"""Makes the pictures of the docs: records some runs, serves them, and photographs the page with Chromium.

usage: .venv/bin/python docs/pictures/make.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
SIZE = {"width": 1280, "height": 760}
TRAIN = """
import math
import numpy as np
import relive

lr = relive.arg("lr", 0.02)
batch = relive.arg("batch", 64)
model = relive.arg("model", "mlp")
seed = relive.arg("seed", 0)
rng = np.random.default_rng(seed)
relive.data("digits", b"first" if seed < 8 else b"second")
quality = {"mlp": 0.90, "cnn": 0.965, "vit": 0.95}[model] - 0.03 * abs(math.log10(lr / 0.02))
weights = rng.normal(size=(64, 16))
with relive.checkpointing(weights=weights):
    for epoch in relive.loop("epoch", range(12)):
        for step in relive.loop("step", range(60)):
            t = (epoch * 60 + step) / 720
            weights += lr * 0.01 * rng.normal(size=weights.shape)
            loss = 2.3 * math.exp(-6 * t * (quality - 0.2)) + 0.3 * (1.1 - quality) + abs(rng.normal()) * 0.3 * lr**0.5
            relive.log("train/loss", math.nan if lr > 0.4 and epoch == 7 and step == 11 else loss)
            relive.log("train/grad_norm", abs(rng.normal(1.2, 0.3)) * math.exp(-2 * t) + 0.05)
        relive.log("val/acc", min(quality * (1 - math.exp(-4 * (epoch + 1) / 12)) + rng.normal() * 0.004, 0.999))
        relive.log("val/loss", loss * 1.1 + 0.05)
        relive.log("system/memory_bytes", 250_000_000 + epoch * 12_345)
relive.log("test/f1", quality * 0.98 + rng.normal() * 0.003)
"""
RUNS = [
    *[f"model={m} lr={lr} seed={s}" for m in ("mlp", "cnn", "vit") for lr in (0.005, 0.02, 0.1) for s in (0, 1)],
    "model=cnn lr=0.5 seed=3",
    "model=cnn lr=0.02 seed=9",
]
SHOTS = {
    "workspace": ("/?smooth=0.6", "light"),
    "groups": ("/?group=arg:model&top=18&where=lr <= 0.1", "dark"),
    "leaderboard": ("/leaderboard?metric=val/acc&by=best", "light"),
    "explore": (
        "/explore?target=metric:val/acc&axes=arg:lr,arg:model,arg:seed,metric:val/loss,metric:val/acc",
        "light",
    ),
}

# Another project, of which `relive ui` shows a run with its media, and plans a question.
MEDIA = """
import numpy as np
import relive

rng = np.random.default_rng(0)
lr = relive.arg("lr", 0.1)
weights = rng.normal(size=(64, 32))
y, x = np.mgrid[-1:1:48j, -1:1:48j]
with relive.checkpointing(weights=weights, every=1):
    for epoch in relive.loop("epoch", range(12)):
        for step in relive.loop("step", range(20)):
            weights -= lr * (weights - np.sign(weights)) * 0.02
        relive.log("loss", float(np.abs(weights - np.sign(weights)).mean()))
        relive.log("weights/fc1", weights)
        sharp = 1 / (1 + np.exp(np.clip((np.hypot(x, y) - 0.6) * (1 + 2 * epoch), -30, 30)))
        relive.log("samples/disk", (255 * np.stack([sharp, sharp * 0.6, 1 - sharp], axis=-1)).astype("uint8"))
        if epoch % 4 == 3:
            relive.log("samples/caption", f"epoch {epoch}: a disk that becomes sharper")
"""
STATEMENT = 'relive.log("largest", float(weights.max()))'


def main() -> None:
    photograph_a_sweep()
    photograph_one_run()
    shrink()


def photograph_one_run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(MEDIA)
        subprocess.run([sys.executable, "train.py"], cwd=folder, check=True)
        command = [sys.executable, "-m", "relive", "ui", "--no-browser", "--port", "0"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server, chromium() as browser:
            try:
                page = browser.new_context(viewport={**SIZE, "height": 1040}).new_page()
                page.goto(server.stdout.readline().strip())  # type: ignore[union-attr]
                page.locator("[data-chart='weights/fc1']").scroll_into_view_if_needed()
                page.wait_for_timeout(10_000)  # until the histograms are computed and drawn
                page.screenshot(path=HERE / "media.png")
                page.set_viewport_size({**SIZE, "height": 840})
                page.get_by_role("link", name="Ask").first.click()
                page.get_by_label("a statement").fill(STATEMENT)
                page.get_by_role("button", name="Line 16", exact=True).click()
                page.get_by_role("button", name=re.compile("plan", re.IGNORECASE)).first.click()
                page.wait_for_timeout(6000)
                page.screenshot(path=HERE / "ask.png")
            finally:
                server.terminate()


@contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def photograph_a_sweep() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / ".relive"
        (Path(folder) / "train.py").write_text(TRAIN)
        env = {**os.environ, "RELIVE_HOME": str(home)}
        for run in RUNS:
            subprocess.run([sys.executable, "train.py", "--kwargs", *run.split()], cwd=folder, env=env, check=True)
        command = [sys.executable, "-m", "relive", "serve", "--store", str(home), "--open", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                photograph(server.stdout.readline().split()[-1])  # type: ignore[union-attr]
            finally:
                server.terminate()


def photograph(url: str) -> None:
    with chromium() as browser:
        for name, (path, theme) in SHOTS.items():
            page = browser.new_context(viewport=SIZE, color_scheme=theme).new_page()
            page.goto(url + path)
            page.wait_for_timeout(3000)
            if name == "workspace":
                box = page.locator("[data-chart='train/loss'] .u-over").bounding_box()
                page.mouse.move(box["x"] + box["width"] * 0.55, box["y"] + box["height"] * 0.4)
                page.wait_for_timeout(500)
            page.screenshot(path=HERE / f"{name}.png")


def shrink() -> None:
    """Makes the files smaller where Pillow is there: 160 colours are enough for a page."""
    try:
        from PIL import Image
    except ImportError:
        return
    for name in (*SHOTS, "media", "ask"):
        path = HERE / f"{name}.png"
        Image.open(path).convert("RGB").quantize(160, dither=Image.Dither.NONE).save(path, optimize=True)


main()
