"""Laws of a store that grows: `relive pin`, `relive gc` with a spool, and replay from what has left the home."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relive.cli import main

TRAIN = """
    import os, random
    import relive

    net = [random.Random(seed).random() for seed in range(2_000)]
    with relive.checkpointing(net=net, every=1):
        for epoch in relive.loop("epoch", range(5)):
            for step in relive.loop("step", range(3)):
                net[:] = [value * 0.9 + random.random() for value in net]
                {added}
            relive.log("loss", sum(net))
    relive.artifact(b"weights", name="weights")
"""


def packs(project: Path) -> list[str]:
    return sorted(path.name for path in (project / ".relive/chunks/packs").glob("*.pack"))


def cli(project: Path, *args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [*args, "--home", str(project / ".relive")])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def recorded(shared_script: Any) -> Path:
    shared_script(TRAIN.format(added="pass"))
    return Path(shared_script.project)


@pytest.fixture
def trained(recorded: Path, tmp_path: Path) -> Path:
    """A finished run, a budget that nothing fits, and a folder to spool to."""
    project = Path(shutil.copytree(recorded, tmp_path / "project"))
    (project / "relive.toml").write_text(f'budget_bytes = 1\nspool = "{tmp_path / "spool"}"\n')
    return project


def test_pinned_runs_are_shown_and_stay_where_they_are(trained: Path) -> None:
    before = packs(trained)
    output = cli(trained, "pin", "last").stdout
    shown = cli(trained, "show", "last").stdout
    cli(trained, "gc")

    assert re.fullmatch(r"run \w{8} is pinned: all its checkpoints are kept\n", output)
    assert re.search(r"pinned\s+yes", shown)
    assert packs(trained) == before
    assert "was already pinned" in cli(trained, "pin", next((trained / ".relive/runs").iterdir()).name).stdout
    assert "is no longer pinned" in cli(trained, "unpin", "last").stdout
    assert "was not pinned" in cli(trained, "unpin", "last").stdout
    assert "pinned" not in cli(trained, "show", "last").stdout
    cli(trained, "gc")
    assert packs(trained) == []


def test_an_unknown_run_can_not_be_pinned(trained: Path) -> None:
    done = cli(trained, "pin", "nothing", code=1)

    assert done.stderr == "Error: no run 'nothing' here; `relive runs` lists them\n"


def test_promoted_runs_count_as_pinned(trained: Path) -> None:
    before = packs(trained)
    cli(trained, "promote", "last", "net", "--force")
    cli(trained, "gc")

    assert packs(trained) == before
    assert re.search(r"promoted to\s+net@1", cli(trained, "show", "last").stdout)
    cli(trained, "retire", "net@1")
    cli(trained, "gc")
    assert packs(trained) == []


def test_gc_says_what_is_offloaded_and_checkpoints_and_doctor_say_where_it_is(trained: Path, tmp_path: Path) -> None:
    count = len(packs(trained))
    planned = cli(trained, "gc", "--dry-run").stdout
    assert len(packs(trained)) == count
    done = cli(trained, "gc").stdout

    assert re.search(rf"packs moved to the spool\s+{count}\s", planned)
    assert planned.splitlines()[:2] == done.splitlines()[:2]
    assert "would be freed; nothing was changed" in planned
    heading, *rows = cli(trained, "checkpoints", "last").stdout.splitlines()
    assert heading.strip().endswith("kept in")
    assert all(row.strip().endswith(str(tmp_path / "spool")) for row in rows)
    output = [json.loads(line) for line in cli(trained, "checkpoints", "last", "--json").stdout.splitlines()]
    assert {tuple(row["spooled"]) for row in output} == {(str(tmp_path / "spool"),)}
    doctor = cli(trained, "doctor", "--deep").stdout
    assert f"{count} packs" in doctor
    assert "all readable" in doctor


def test_an_unreachable_spool_is_an_error_with_the_remedy_and_nothing_is_removed(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("not mounted")
    before = packs(trained)
    done = cli(trained, "gc", code=1)

    assert re.search(
        r"Error: the object store .* can't be used: .*; check that it exists .*; then run `relive gc` again",
        done.stderr,
    )
    assert packs(trained) == before
    assert len(cli(trained, "checkpoints", "last", "--json").stdout.splitlines()) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_offloaded_checkpoints_are_replayed_like_local_ones(
    script: Any, tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    script(TRAIN.format(added="pass"))
    url = str(tmp_path / "spool")
    if place == "bucket":
        bucket = request.getfixturevalue("bucket")
        url = f"{bucket.url}/{secrets.token_hex(4)}"
    (script.project / "relive.toml").write_text(f'budget_bytes = 1\nspool = "{url}"\n')
    script.relive("gc")
    assert packs(script.project) == []
    script.write(TRAIN.format(added='relive.log("first", net[0])'))
    replayed = script.relive("replay", "first", "epoch >= 2", "--yes").stdout
    table = script.relive("dataframe", "first", "--csv").stdout.splitlines()

    assert len(table) == 1 + 3 * 3
    assert "reproduced" in replayed
    assert packs(script.project), "what was needed came back"
    if place == "bucket":
        secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
        assert not [path for path in script.home.rglob("*") if path.is_file() and secret in path.read_bytes()]
