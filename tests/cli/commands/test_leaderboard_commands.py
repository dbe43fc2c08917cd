"""The commands that rank, compare, promote and watch say what they did, and end in the remedy."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from relive.cli import main
from relive.store import Home
from relive.store.catalog import Index

TRAIN = """
import relive
lr = relive.arg("lr", 0.1)
relive.data("train", "data.txt")
for epoch in relive.loop("epoch", range(3)):
    relive.log("acc", 0.1 * epoch + lr)
relive.artifact(b"weights of " + str(lr).encode(), name="model.bin")
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: two on one data version, one on another and of other code."""
    project = tmp_path_factory.mktemp("template")
    (project / "train.py").write_text(TRAIN)
    for data, lr in (("a", "0.1"), ("a", "0.2"), ("b", "0.3")):
        if data == "b":
            (project / "train.py").write_text(TRAIN + "# changed\n")
        (project / "data.txt").write_text(data)
        subprocess.run([sys.executable, "train.py", "--kwargs", f"lr={lr}"], cwd=project, check=True, timeout=60)
    return project


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "project")
    return tmp_path / "project"


def relive(project: Path, *args: str) -> Result:
    return CliRunner().invoke(main, [*args, "--home", str(project / ".relive")])


def ids(project: Path) -> list[str]:
    return [entry.record.run for entry in Index(Home(project / ".relive")).runs()]


# --- boards -----------------------------------------------------------------------------------------------------------


def test_leaderboard_keeps_runs_on_other_data_apart_and_says_why(project: Path) -> None:
    first, second, third = ids(project)
    done = relive(project, "leaderboard", "acc")

    lines = done.stdout.splitlines()
    assert "2 other runs stand apart, since their data differs" in done.stdout
    assert "other data than the first group: train" in done.stdout
    order = [line.split()[1] for line in lines if line.startswith(("1  ", "2  "))]
    assert order == [third[:8], second[:8], first[:8]]
    assert "higher is better" in done.stderr
    assert "--across-data" in done.stderr


def test_leaderboard_as_json_and_csv(project: Path) -> None:
    found = json.loads(relive(project, "leaderboard", "acc", "--json", "--across-data", "--by", "best").stdout)
    csv = relive(project, "leaderboard", "acc", "--csv", "--where", "lr < 0.25", "--lower").stdout.splitlines()

    assert [row["value"] for row in found["groups"][0]["runs"]] == pytest.approx([0.5, 0.4, 0.3])
    assert csv[0] == "data_version,place,run,value,note,lr"
    assert [float(line.split(",")[3]) for line in csv[1:]] == pytest.approx([0.3, 0.4])


def test_leaderboard_of_an_unknown_metric_suggests_a_name(project: Path) -> None:
    done = relive(project, "leaderboard", "acd")

    assert done.exit_code == 1
    assert "no run logged 'acd'; did you mean acc?" in done.output


def test_compare_shows_what_differs(project: Path) -> None:
    first, second, _ = ids(project)
    done = relive(project, "compare", first, second)

    assert "arg lr" in done.stdout
    assert "0.1 " in done.stdout
    assert "metric acc" in done.stdout
    assert done.stderr == ""
    assert json.loads(relive(project, "compare", first, second, "--json").stdout)["same"]["data"] is True


def test_compare_on_a_terminal_says_once_what_is_equal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    first, second, _ = ids(project)

    lines = relive(project, "compare", first, second).stdout.splitlines()

    assert lines[0].startswith("all: outcome finished, filename train.py")
    assert not any(line.startswith(("outcome", "filename")) for line in lines)
    assert any(line.startswith("arg lr") for line in lines)
    assert not any("…" in line for line in lines[1:])


@pytest.mark.parametrize("words", [["last"], ["last", "last"]])
def test_compare_of_one_run_is_an_error(project: Path, words: list[str]) -> None:
    done = relive(project, "compare", *words)

    assert done.exit_code == 2
    assert "compare needs two runs or more" in done.stderr


def test_diff_shows_code_args_data_and_metrics(project: Path) -> None:
    first, second, third = ids(project)
    shown = relive(project, "diff", first, third).stdout

    assert "+# changed" in shown
    assert "arg lr" in shown
    assert "instead of" in shown
    assert "code\n  the same" in relive(project, "diff", first, second).stdout


def test_versions_lists_each_with_its_runs(project: Path) -> None:
    first, second, third = ids(project)
    lines = relive(project, "versions").stdout.splitlines()

    assert len(lines) == 3
    assert third[:8] in lines[1]
    assert lines[2].endswith(f"{second[:8]} {first[:8]}")
    assert len(relive(project, "versions", "--json").stdout.splitlines()) == 2


def test_checkout_writes_an_old_tree_and_overwrites_nothing(project: Path, tmp_path: Path) -> None:
    first, *_ = ids(project)

    assert relive(project, "checkout", first, str(tmp_path / "old")).exit_code == 0
    assert (tmp_path / "old/train.py").read_text() == TRAIN
    again = relive(project, "checkout", first, str(tmp_path / "old"))
    assert (again.exit_code, "isn't empty" in again.output) == (1, True)


# --- models -----------------------------------------------------------------------------------------------------------


def test_from_promotion_to_rollback(project: Path, tmp_path: Path) -> None:
    first, second, _ = ids(project)
    told = relive(project, "promote", first, "net", "--alias", "production", "--note", "the first")
    assert told.output == f"net@1 is run {first[:8]}, production\n"
    relive(project, "promote", second, "net", "--alias", "production")

    assert "production=2" in relive(project, "registry").stdout
    assert "the first" in relive(project, "registry", "net").stdout
    history = relive(project, "registry", "net", "--history").stdout
    assert "production → 2, was 1" in history
    assert relive(project, "rollback", "net@production").output.startswith("net@production is version 1 again")
    relive(project, "download", "net@production", str(tmp_path / "out"))
    assert (tmp_path / "out/model.bin").read_bytes() == b"weights of 0.1"
    assert relive(project, "alias", "net@2", "candidate").output.startswith("net@candidate is now version 2")
    model = json.loads(relive(project, "registry", "net", "--json").stdout)
    assert model["aliases"] == {"candidate": 2, "production": 1}
    assert model["versions"][0]["args"] == {"lr": 0.2}


def test_a_promoted_run_can_not_be_removed_until_its_version_is_retired(project: Path) -> None:
    first, *_ = ids(project)
    relive(project, "promote", first, "net")

    refused = relive(project, "rm", first, "--yes")
    assert (refused.exit_code, "was promoted to net@1" in refused.output) == (1, True)
    assert first in ids(project)
    assert relive(project, "retire", "net@1").exit_code == 0
    assert relive(project, "rm", first, "--yes").exit_code == 0
    assert first not in ids(project)


def test_download_overwrites_no_other_file(project: Path, tmp_path: Path) -> None:
    relive(project, "promote", ids(project)[0], "net")
    (tmp_path / "model.bin").write_text("precious")

    done = relive(project, "download", "net", str(tmp_path))
    assert (done.exit_code, "has different content" in done.output) == (1, True)
    assert (tmp_path / "model.bin").read_text() == "precious"


def test_promotion_of_a_run_that_lacks_something_is_refused(script: Any) -> None:
    script("import relive; relive.log('acc', 1.0)")

    done = script.relive("promote", "last", "net", check=False)
    assert done.returncode == 1
    assert "no data was declared or seen (relive.data); it kept no artifact" in done.stderr
    forced = script.relive("promote", "last", "net", "--force")
    assert "recorded as missing: it kept no artifact" in forced.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("registry", "nope"), "no model 'nope' here"),
        (("registry", "--history"), "write relive registry MODEL --history"),
        (("rollback", "net"), "write for example net@production"),
        (("rollback", "nope@production"), "no model 'nope'"),
        (("download", "nope@production"), "no model 'nope'"),
        (("promote", "last", "a/b"), "can't name a model"),
    ],
)
def test_mistakes_end_in_the_remedy(project: Path, args: tuple[str, ...], said: str) -> None:
    done = relive(project, *args)

    assert done.exit_code == 1
    assert said in done.output


# --- ranks ------------------------------------------------------------------------------------------------------------

RANKS = """
import os, sys, time, relive
rank = int(os.environ["RELIVE_RANK"])
for step in relive.loop("step", range(400)):
    relive.log("loss", 1.0 + (9.0 if rank == 1 and step >= 10 else 0.0))
    time.sleep(0.02)
"""


def ranked(rank: int) -> dict[str, str]:
    return {"RELIVE_RANK": str(rank), "RELIVE_WORLD_SIZE": "2", "RELIVE_LAUNCH": "one"}


class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""


def test_a_poisoned_rank_is_caught_while_the_run_goes_on(script: Any) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    server.got = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script.write(RANKS)
    processes = [script.start(None, env=ranked(rank)) for rank in (0, 1)]
    while not list((script.home / "runs").glob("*/1.slots")):
        assert processes[1].poll() is None
    address = f"http://127.0.0.1:{server.server_port}/hook"
    options = ("--skew", "loss>0.5", "--for", "5", "--every", "0.1", "--webhook", address)

    done = script.relive("watch", *options, check=False, timeout=60)
    still_going = [process.poll() is None for process in processes]
    server.shutdown()
    server.server_close()

    assert done.returncode == 3
    assert "skew of loss is 4.5 at step 14, above 0.5 for 5 steps; rank" in done.stdout
    assert still_going == [True, True]
    (sent,) = server.got  # type: ignore[attr-defined]
    assert (sent["at"], sent["since"], sent["values"]) == ({"step": 14}, {"step": 10}, {"0": 1.0, "1": 10.0})
    assert json.loads((script.home / "alerts.lines").read_text())["kind"] == "skew"


def test_skew_and_watch_of_a_run_that_has_ended(script: Any) -> None:
    script.write(RANKS.replace("400", "12").replace("0.02", "0"))
    for rank in (0, 1):
        script(None, env=ranked(rank))

    assert "12 steps, 2 ranks, largest skew 4.5" in relive_in(script, "skew", "last", "loss").stderr
    assert relive_in(script, "skew", "last", "loss", "--csv").stdout.splitlines()[11].startswith("10,1.0,5.5")
    assert relive_in(script, "watch", "last", "--skew", "loss>5").exit_code == 0
    assert relive_in(script, "watch", "last", "--skew", "loss>1", "--for", "2").exit_code == 3
    assert relive_in(script, "watch", "last", "--skew", "loss>1", "--for", "3").exit_code == 0
    nobody = relive_in(script, "watch", "last", "--skew", "lss>1")
    assert (nobody.exit_code, "no watched run logged lss" in nobody.output) == (1, True)
    assert "no run is live" in relive_in(script, "watch", "--skew", "loss>1").output
    assert "is not a webhook URL" in relive_in(script, "watch", "--skew", "a>1", "--webhook", "file:///x").output


def relive_in(script: Any, *args: str) -> Result:
    return relive(script.project, *args)


def test_a_webhook_that_does_not_answer_is_reported_without_its_url(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write(RANKS.replace("400", "12").replace("0.02", "0"))
    for rank in (0, 1):
        script(None, env=ranked(rank))
    monkeypatch.setattr("relive.cli.commands.skew_commands._ATTEMPTS", 1)

    done = relive_in(script, "watch", "last", "--skew", "loss>1", "--webhook", "http://127.0.0.1:9/token-s3cret")
    assert done.exit_code == 3
    assert "the webhook at 127.0.0.1 did not accept the alert" in done.stderr
    assert "s3cret" not in done.output
    assert os.environ.get("RELIVE_RANK") is None
