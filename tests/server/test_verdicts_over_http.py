"""Laws of verdicts over HTTP: whoever asks a server sees the same marks as whoever asks the home."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relive.cli.main import main
from relive.model import Verdict
from relive.store.catalog import Index
from tests.hindsight.test_verdict_tables import Replayed

from .conftest import Server


@pytest.mark.long
def test_a_server_gives_the_verdicts(tmp_path: Path, serve: Callable[..., Server]) -> None:
    run = Replayed(tmp_path)
    run.replay(1.0, 2.0, 3.0, verdicts=[Verdict.PROVEN, Verdict.UNVERIFIED, Verdict.CONTRADICTED])
    index = Index(run.home)
    index.refresh()  # a server reads the summaries of runs that it has not indexed from their own journals only
    index.close()
    server = serve(store=run.home.path)

    def ask(path: str) -> Any:
        with urllib.request.urlopen(server.url + path, timeout=30) as answer:
            return json.load(answer)

    listed, found = ask("/api/runs")["runs"][0], ask(f"/api/runs/{run.run}")
    series = ask(f"/api/runs/{run.run}/series?name=x")
    shown = CliRunner().invoke(main, ["show", run.run, "--server", server.url], catch_exceptions=False).stdout

    assert listed["marked"] == {"x": "unverified"}
    assert {one["name"]: one["verdict"] for one in found["metrics"]} == {"loss": "recorded", "x": "unverified"}
    assert found["replays"][0]["verdicts"] == {"x": {"proven": 1, "unverified": 1, "contradicted": 1}}
    assert (series["count"], series["verdicts"]) == (2, {"proven": 1, "unverified": 1})
    assert "2 ?   2 values" in shown
    assert "x: 1 proven, 1 unverified, 1 contradicted" in shown
