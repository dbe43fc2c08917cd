"""A column that nobody logged, asked for on the page: planned, replayed, seen in the table."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ..ui_process import Ui
from .conftest import charts_drawn

pytestmark = pytest.mark.long
TRAIN = """\
import relive

lr = relive.arg("lr", 0.5)
weight = [0.0]
with relive.checkpointing(weight=weight):
    for epoch in relive.loop("epoch", range(5)):
        for step in relive.loop("step", range(10)):
            weight[0] += lr
        relive.log("loss", 1 / (1 + weight[0]))
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    env = {**os.environ, "PYTHONWARNINGS": ""}
    for lr in ("0.5", "0.25"):
        subprocess.run([sys.executable, "train.py", "--kwargs", f"lr={lr}"], cwd=tmp_path, env=env, check=True)
    ui = Ui(tmp_path)
    yield ui
    ui.stop()


def test_a_column_that_nobody_logged_is_priced_and_filled_by_a_click(project, browser):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(project.address)
    page.get_by_text("2 runs, 2 shown").wait_for()
    page.get_by_role("link", name="ask", exact=True).click()
    page.get_by_label("a statement").fill('relive.log("weight", weight[0])')
    page.get_by_role("button", name="Line 9").click()
    page.get_by_role("button", name="plan it").click()
    plan = page.get_by_role("region", name="Plan").last
    plan.wait_for()
    assert "train.py" in plan.inner_text()
    page.get_by_role("button", name="replay 2 runs").click()
    page.get_by_text("done", exact=True).wait_for()
    page.get_by_role("link", name="see the values").click()
    charts_drawn(page)

    page.get_by_role("gridcell", name="25").first.wait_for()
    page.get_by_role("gridcell", name="12.5").first.wait_for()
    assert "↺" in page.inner_text("[data-chart=weight] header")
    context.close()


SLOW = """\
import time
import relive

total = 0.0
for epoch in relive.loop("epoch", range(40)):
    time.sleep(0.25)
    total += 1
    relive.log("loss", 1 / total)
"""


def test_a_question_is_stopped_and_keeps_what_it_has(tmp_path, browser):
    (tmp_path / "train.py").write_text(SLOW)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env={**os.environ, "PYTHONWARNINGS": ""}, check=True)
    ui = Ui(tmp_path)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(ui.address)
        page.get_by_role("link", name="ask", exact=True).click()
        page.get_by_label("a statement").fill('relive.log("total", total)')
        page.get_by_role("button", name="Line 8").click()
        page.get_by_role("button", name="plan it").click()
        page.get_by_role("button", name="replay 1 run").click()
        page.get_by_role("button", name="stop", exact=True).click()
        page.get_by_text("stopped", exact=True).wait_for()

        assert page.get_by_role("button", name="stop", exact=True).count() == 0
        address = page.url
        page.reload()
        page.get_by_text("stopped", exact=True).wait_for()
        assert page.url == address
    finally:
        context.close()
        ui.stop()
