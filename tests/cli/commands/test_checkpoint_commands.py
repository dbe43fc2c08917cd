"""Laws of `relive checkpoints` and `relive gc`: what they list, what they remove, and what they say in doubt."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import relive
from relive.cli import main
from relive.store import Home
from relive.store.catalog import Index

TRAIN = """
    import sys, time
    import numpy, relive

    weights = numpy.zeros(5_000)
    with relive.checkpointing(every=1, weights=weights):
        for epoch in relive.loop("epoch", range(4)):
            for step in relive.loop("step", range(2)):
                weights += numpy.random.default_rng(step).random(len(weights))
    if sys.argv[1:] == ["wait"]:
        print("up", flush=True)
        time.sleep(60)
"""


def cli(project: Path, *args: str, **env: str) -> Result:
    return CliRunner().invoke(main, [*args, "--home", str(project / ".relive")], env=env)


@pytest.fixture
def project(script) -> Path:  # type: ignore[no-untyped-def]
    """A finished run with checkpoints at the end of every nested loop, every epoch, and the main loop."""
    script(TRAIN)
    return script.project


def run_id(project: Path) -> str:
    index = Index(Home(project / ".relive"))
    entry = index.runs()[-1]
    index.close()
    return entry.record.run


def where(project: Path) -> list[str]:
    return [json.loads(line)["where"] for line in cli(project, "checkpoints", "last", "--json").stdout.splitlines()]


def pack_bytes(project: Path) -> int:
    return sum(path.stat().st_size for path in (project / ".relive/chunks/packs").iterdir())


def test_checkpoints_lists_position_time_and_cost(project: Path) -> None:
    result = cli(project, "checkpoints", "last")

    heading, *rows = result.stdout.splitlines()
    assert re.split(r"\s{2,}", heading.strip()) == ["where", "when", "size", "new", "stall", "written in"]
    places = [re.split(r"\s{2,}", row.strip())[0] for row in rows]
    assert places[:3] == ["end of step in epoch=0", "epoch=0", "end of step in epoch=1"]
    assert places[-1] == "end of epoch"
    assert re.search(r"\d+ checkpoints of run \w{8}, [\d.]+ kB written", result.stderr)
    assert all(re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s+[\d.]+ kB\s+[\d.]+ k?B\s+[\d.]+ ms", row) for row in rows)


def test_checkpoints_as_json_gives_one_object_a_checkpoint(project: Path) -> None:
    rows = [json.loads(line) for line in cli(project, "checkpoints", "last", "--json").stdout.splitlines()]

    assert list(rows[0]) == [
        "run", "rank", "process", "where", "place", "name", "at", "iterations", "time_us", "bytes", "new_bytes",
        "stall_s", "write_s", "manifest", "spooled",
    ]  # fmt: skip
    assert {row["run"] for row in rows} == {run_id(project)}
    assert [(row["place"], row["at"], row["iterations"]) for row in rows[:2]] == [
        ("loop", {"epoch": 0}, 2), ("iteration", {"epoch": 0}, 1),
    ]  # fmt: skip


def test_a_run_without_checkpoints_says_so(script) -> None:  # type: ignore[no-untyped-def]
    script("import relive; relive.log('x', 1.0)")
    result = cli(script.project, "checkpoints", "last")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "0 checkpoints" in result.stderr


@pytest.mark.long
def test_the_view_shows_checkpoints_of_finished_and_of_live_runs(script) -> None:  # type: ignore[no-untyped-def]
    script(TRAIN)
    process = script.start(None, "wait")
    assert process.stdout.readline() == "up\n"
    query = """
        select outcome, rank, place, c.name, path, (context->>'epoch')::int epoch, iterations, bytes >= 40000 whole,
            new_bytes >= 0 fits, stall_s > 0 stalled, write_s > 0 written, length(manifest) digits,
            c.tstamp >= r.tstamp later
        from checkpoints c join runs r using (run) order by outcome, c.tstamp
    """
    rows = relive.sql(query, home=script.home).values.tolist()

    finished, running = (
        [row[1:] for row in rows if row[0] == outcome and row[2] != "end"] for outcome in ("finished", "running")
    )
    cost = [True, True, True, True, 64, True]
    assert finished[:2] == [
        [0, "loop", "step", "epoch/step", 0, 2, *cost],
        [0, "iteration", "epoch", "epoch", 0, 1, *cost],
    ]
    assert running == finished


def test_gc_without_a_policy_removes_nothing_that_is_referenced(project: Path) -> None:
    before, size = where(project), pack_bytes(project)
    result = cli(project, "gc")

    assert (result.exit_code, result.output) == (0, "0 B freed\n")
    assert (where(project), pack_bytes(project)) == (before, size)


def test_gc_keeps_as_many_as_configured_and_a_dry_run_predicts_it(project: Path) -> None:
    before, size = where(project), pack_bytes(project)
    told = cli(project, "gc", "--dry-run", RELIVE_KEEP="2")
    assert re.search(r"checkpoints beyond keep +\d", told.stdout)
    assert re.search(r"packs that no checkpoint needs +\d +[\d.]+ kB", told.stdout)
    assert re.search(r"kB would be freed; nothing was changed", told.stdout)
    assert (where(project), pack_bytes(project)) == (before, size)

    done = cli(project, "gc", RELIVE_KEEP="2")
    assert done.stdout == told.stdout.replace("would be freed; nothing was changed", "freed")
    assert len(where(project)) == 2
    assert where(project)[-1] == "end of epoch"
    assert pack_bytes(project) < size
    assert cli(project, "doctor", "--deep").exit_code == 0


def test_a_budget_comes_from_the_settings_of_the_home_not_of_the_current_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "relive.toml").write_text("keep = 1")
    monkeypatch.chdir(elsewhere)
    before = where(project)
    cli(project, "gc")
    assert where(project) == before

    (project / "relive.toml").write_text("budget_bytes = 90_000")
    cli(project, "gc")
    assert 0 < len(where(project)) < len(before)
    assert pack_bytes(project) <= 90_000


def test_inside_the_project_gc_uses_its_settings(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "relive.toml").write_text("keep = 3")
    monkeypatch.chdir(project)

    assert CliRunner().invoke(main, ["gc"]).exit_code == 0
    assert len(where(project)) == 3


def test_an_invalid_setting_is_an_error_and_nothing_is_removed(project: Path) -> None:
    before = where(project)
    result = cli(project, "gc", RELIVE_KEEP="some")

    assert (result.exit_code, where(project)) == (1, before)
    assert 'write "all", or a number of at least 1' in result.stderr


def test_after_rm_gc_frees_what_the_run_took(project: Path) -> None:
    assert cli(project, "rm", "last", "--yes").exit_code == 0
    doctor = cli(project, "doctor")
    assert re.search(r"home  orphans: \d+ bytes; `relive gc` removes them", doctor.output)
    assert doctor.exit_code == 0

    cli(project, "gc")
    assert pack_bytes(project) == 0


def test_in_doubt_gc_keeps_everything_and_says_why(project: Path) -> None:
    journal = project / ".relive/runs" / run_id(project) / "0.lines"
    with journal.open("ab") as file:
        file.write(b"\0\0\0 a line that a failing disk made\n")
    size = pack_bytes(project)
    result = cli(project, "gc", RELIVE_KEEP="1")

    assert result.exit_code == 0
    assert f"{run_id(project)[:8]}  0.lines: 1 lines can't be read; restore it, or remove the run" in result.stderr
    assert "everything that these may refer to was kept" in result.stderr
    assert pack_bytes(project) == size


def test_a_home_that_cannot_be_written_is_an_error_of_one_line(project: Path) -> None:
    (project / ".relive/chunks/gc.lock").mkdir()
    result = cli(project, "gc")

    assert result.exit_code == 1
    assert re.fullmatch(r"Error: .*gc.lock.*; fix that, and run `relive gc` again\n", result.stderr)


@pytest.mark.slow
def test_what_gc_leaves_of_a_torch_training_is_restored_bit_for_bit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("RELIVE_VERSIONS", "0")
    monkeypatch.setenv("RELIVE_KEEP", "3")
    net, frozen = torch.nn.Linear(60, 60), torch.nn.Linear(60, 60).requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters())
    then = {}
    with relive.run(), relive.checkpointing(every=1, net=net, frozen=frozen, optimizer=optimizer):
        for epoch in relive.loop("epoch", range(6)):
            optimizer.zero_grad()
            net(frozen(torch.randn(8, 60))).square().mean().backward()
            optimizer.step()
            then[epoch] = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    assert CliRunner().invoke(main, ["gc", "--home", str(home)]).exit_code == 0

    rows = CliRunner().invoke(main, ["checkpoints", "last", "--json", "--home", str(home)]).stdout.splitlines()
    left = [row["at"]["epoch"] for row in map(json.loads, rows) if row["place"] == "iteration"]
    assert len(left) == 2
    for epoch in left:
        fresh = torch.nn.Linear(60, 60)
        relive.restore("last", home=home, epoch=epoch, into={"net": fresh}, rng=False)
        assert all(torch.equal(fresh.state_dict()[name], tensor) for name, tensor in then[epoch].items())
