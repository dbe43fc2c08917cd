"""Every released disk format can be read for ever: one home of each is kept here, as its release wrote it."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import relive
from relive.cli import main
from relive.store import Home
from relive.store.catalog import Index
from relive.store.chunks import Chunks
from relive.store.gc import check_home
from relive.store.journal import decode_value, from_json, parse_run
from relive.store.journal.line_schema import JOURNAL_FORMAT, ValueLogged, lines_of
from relive.store.versions import code_versions

FORMATS = Path(__file__).parent


@pytest.fixture(params=sorted(path.name for path in FORMATS.iterdir() if (path / "home").is_dir()))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, since reading makes an index. Its files are old: fresh ones would pass for those of a live run."""
    copy = Path(shutil.copytree(FORMATS / request.param / "home", tmp_path / "home"))
    for path in copy.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return copy


def records(home: Path) -> dict[str, Any]:
    """The two runs of the script, and the two runs inside, by what they are."""
    found = [entry.record for entry in Index(Home(home)).runs()]
    keys = {(False, "finished"): "finished", (False, "killed"): "killed", (True, "finished"): "inside"}
    return {keys[record.name == "inside", record.outcome]: record for record in found}


def test_the_current_format_is_among_them():
    assert (FORMATS / str(JOURNAL_FORMAT) / "home").is_dir(), "make it with tests/formats/make_home.py"


def test_every_run_is_there_with_its_record(home: Path):
    found = records(home)
    record = found["finished"]

    assert sorted(found) == ["finished", "inside", "killed"]
    assert len(Index(Home(home)).runs()) == 4
    assert (record.project, record.filename, record.world_size, record.ranks) == ("digits", "train.py", 1, (0,))
    assert record.config["args"]["lr"] == {"value": 0.1, "default": 0.1, "origin": "default"}
    assert found["killed"].config["args"]["lr"] == {"value": 0.5, "default": 0.1, "origin": "kwargs"}
    assert "abc" not in json.dumps(record.config)
    assert record.data["declared"]["train"]["size_bytes"] == 8
    assert [Path(read["path"]).name for read in record.data["read"]] == ["config.yaml"]
    assert record.data_version == found["killed"].data_version
    assert record.environment["hostname"] == "elsewhere"
    assert record.took_s is not None
    assert record.took_s > 0
    assert found["inside"].parent in {record.run, found["killed"].run}


def test_every_value_is_what_it_was(home: Path):
    run = records(home)["finished"].run
    chunks = Chunks(Home(home).chunks)
    forms = {
        line.name: decode_value(line.value, chunks.get)
        for journal in parse_run(Home(home), run)
        for line in lines_of(ValueLogged, journal.lines)
    }
    names = relive.sql(f"select name, value, type from logs where run = '{run}'", home=home).set_index("name")

    long, array = ("x" * 5_000), np.arange(200.0).reshape(2, 100)
    assert {type(value).__name__ for value in forms.values()} >= {"list", "bytes", "str", "ndarray", "complex", "int"}
    assert 10**30 in [value for value in forms.values() if isinstance(value, int)]
    assert {"né", long} <= {value for value in forms.values() if isinstance(value, str)}
    assert [1, {"a": (2,)}] in [value for value in forms.values() if isinstance(value, list)]
    assert any(isinstance(value, np.ndarray) and np.array_equal(value, array) for value in forms.values())
    assert math.isnan(names.value["nan"])
    assert names.value["inf"] == -math.inf
    assert (names.value["float32"], names.type["float32"]) == (0.5, "numpy.float32")
    assert (names.value["int8"], names.type["int8"]) == (-3, "numpy.int8")
    assert names.value["twice"].tolist() == [1, 2]
    assert names.value["child"] == 7
    assert names.type["none"] == "none"


def test_the_wide_table_has_its_loops(home: Path):
    frame = relive.dataframe("lr", "loss", "count", where="lr < 0.4 and loss is not null", home=home)
    frame = frame[frame.epoch.notna()]

    assert frame[["epoch", "word"]].values.tolist() == [[e, w] for e in (1, 2, 3) for w in ("alpha", "beta")]
    assert np.allclose(frame.loss, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert frame["count"].tolist() == [1, 1, 2, 2, 3, 3]


def test_nothing_is_damaged_and_what_was_kept_can_be_taken_out(home: Path, tmp_path: Path):
    record = records(home)["finished"]
    out = CliRunner().invoke(main, ["export", record.run, str(tmp_path / "out"), "--home", str(home)])

    assert [finding for finding in check_home(Home(home), deep=True) if finding.damage] == []
    assert out.exit_code == 0, out.output
    assert (tmp_path / "out/artifacts/train.csv").read_text() == "1,2\n3,4\n"
    facts = from_json((tmp_path / "out/artifacts/facts").read_text())
    assert facts == {"table": [0, 1, 2], "long": "y" * 5_000}
    assert code_versions.list_files(record.version, repository=home / "versions.git") == ["config.yaml", "train.py"]


def test_checkpoints_can_be_restored(home: Path):
    state = {"weights": np.ones(300), "step": -1}

    relive.restore(records(home)["finished"].run, epoch=2, into={"state": state}, home=home, rng=False)

    assert state["step"] == 4
    assert np.allclose(state["weights"], 0.1 * (1 + 1 + 2 + 2))


USED = """
import relive
lr = relive.arg("lr", 0.1)
state = {"w": 0.0}
relive.artifact({"lr": lr}, name="facts")
with relive.checkpointing(state=state):
    for epoch in relive.loop("epoch", range(4)):
        state["w"] += lr
        relive.log("w", state["w"])
"""


def test_the_format_page_describes_every_file_that_a_home_has(script: Any) -> None:
    """By name: `costs.json`, `runs/`; or by suffix, where the page gives the rule for a name."""
    page = (FORMATS.parents[1] / "docs" / "reference" / "format.md").read_text()
    script(USED)
    (script.project / "train.py").write_text(USED + '        relive.log("double", 2 * state["w"])\n')
    script.relive("replay", "double", "--yes")
    script.relive("runs")

    home = script.home
    inside = [path.name for path in home.iterdir()]
    (run,) = (home / "runs").iterdir()
    suffixes = {path.suffix for path in run.iterdir()}
    assert [name for name in inside if f" {name}" not in page and f"`{name}" not in page] == []
    assert [suffix for suffix in suffixes if suffix and suffix not in page] == []
