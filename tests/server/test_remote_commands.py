"""Commands and `relive.load` on a server's store, from a machine that has nothing but its address."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import relive
from relive.cli import main
from relive.errors import Damaged, NotFound, QueryError, ReliveError
from relive.store import Home, describe_origin, is_trusted
from relive.store.catalog import Index
from relive.store.sync import ServerUnreachable

from .conftest import Server

TRAIN = """
import os, relive
lr = relive.arg("lr", 0.1)
relive.data("train", "data.txt")
for epoch in relive.loop("epoch", range(3)):
    relive.log("acc", 0.1 * epoch + lr)
relive.log("note", "fine")
relive.log("odd", float("nan"))
relive.artifact(b"weights of " + str(lr).encode(), name="model.bin")
"""
RANKS = """
import os, relive
for step in relive.loop("step", range(12)):
    relive.log("loss", 1.0 + (9.0 if os.environ["RELIVE_RANK"] == "1" and step >= 10 else 0.0))
"""


def train(project: Path, url: str, source: str, *args: str, **env: str) -> None:
    (project / "train.py").write_text(source)
    (project / "data.txt").write_text("a")
    told = {**os.environ, "RELIVE_SERVER": url, "RELIVE_SHIP_WAIT_SECONDS": "20", **env}
    told.pop("PYTHONWARNINGS", None)
    subprocess.run([sys.executable, "train.py", *args], cwd=project, env=told, check=True, timeout=60)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two runs, and one of two ranks."""
    server = Server(tmp_path_factory.mktemp("team") / "store", "--open").start()
    project = tmp_path_factory.mktemp("project")
    for lr in ("0.1", "0.2"):
        train(project, server.url, TRAIN, "--kwargs", f"lr={lr}")
    for rank in ("0", "1"):
        train(project, server.url, RANKS, RELIVE_RANK=rank, RELIVE_WORLD_SIZE="2", RELIVE_LAUNCH="one")
    yield server
    server.kill()


@pytest.fixture
def elsewhere(team: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Another machine: an empty folder and the address of the server."""
    monkeypatch.setenv("RELIVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RELIVE_SERVER", team.url)
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(main, args)


def ids(store: Path) -> list[str]:
    index = Index(Home(store))
    found = [entry.record.run for entry in index.runs()]
    index.close()
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "asked",
    [
        ("leaderboard", "acc", "--json"),
        ("leaderboard", "acc", "--csv", "--by", "mean", "-k", "2", "--lower", "--where", "lr < 0.15", "--across-data"),
        ("leaderboard", "acc", "--json", "--group", "lr", "-c", "note", "--guard", "code", "--ranks", "max"),
        ("skew", "last", "loss", "--json"),
    ],
)
def test_a_server_answers_as_its_store_does(team: Server, elsewhere: Callable[..., Result], asked: tuple[str, ...]):
    far, near = elsewhere(*asked), elsewhere(*asked, "--home", str(team.store))

    assert far.exit_code == 0, far.output
    assert far.stdout == near.stdout
    assert len(far.stdout) > 50


def test_python_queries_the_configured_server(team: Server, elsewhere: Callable[..., Result]):
    board, apart = relive.leaderboard("acc"), relive.skew("last", "loss")

    assert board.run.tolist() == relive.leaderboard("acc", home=team.store).run.tolist()
    assert apart["skew"].max() == 4.5
    with pytest.raises(QueryError, match="no run logged 'ac'; did you mean acc"):
        relive.leaderboard("ac")


def test_runs_show_and_compare_look_here_first_and_then_on_the_server(
    team: Server, elsewhere: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
):
    first, second, _ = ids(team.store)

    assert [json.loads(row)["run"] for row in elsewhere("runs", "--json").stdout.splitlines()] == ids(team.store)[::-1]
    shown = elsewhere("show", first[:6]).stdout
    assert f"run {first}" in shown
    assert "fine" in shown
    assert json.loads(elsewhere("show", first, "--json").stdout)["config"]["args"]["lr"]["value"] == 0.1
    assert "arg lr" in elsewhere("compare", first, second).stdout
    with monkeypatch.context() as offline:
        offline.setenv("RELIVE_SERVER", "")
        with relive.run("mine"):
            relive.log("own", 1.0)
    assert "mine" in elsewhere("show", "last").stdout
    assert "mine" in elsewhere("runs").stdout
    assert first[:8] not in elsewhere("runs").stdout
    assert first[:8] in elsewhere("runs", "--server", team.url, "-n", "0").stdout
    assert f"run {first}" in elsewhere("show", first).stdout
    assert "2 more" in elsewhere("runs", "--server", team.url, "-n", "1").stderr


def test_watch_catches_a_poisoned_rank_on_the_server(tmp_path: Path, elsewhere: Callable[..., Result]):
    broken = elsewhere("watch", "last", "--skew", "loss>1", "--for", "2", "--every", "0.05")

    assert broken.exit_code == 3, broken.output
    assert "skew of loss is 4.5 at step 11, above 1 for 2 steps; rank" in broken.stdout
    assert json.loads((tmp_path / "home" / "alerts.lines").read_text())["kind"] == "skew"
    assert elsewhere("watch", "last", "--skew", "loss>5").exit_code == 0
    assert "correct the name" in elsewhere("watch", "last", "--skew", "lss>5").output


def without_packages(model: dict[str, Any]) -> dict[str, Any]:
    """A server lists the versions of a model without their packages and variables; it tells those of one version."""
    for version in model["versions"]:
        version["environment"] = {
            key: value for key, value in version["environment"].items() if key not in ("packages", "variables")
        }
    return model


def test_a_model_is_promoted_moved_back_downloaded_and_loaded_over_http(
    team: Server, elsewhere: Callable[..., Result], tmp_path: Path
):
    first, second, _ = ids(team.store)
    assert "net@1 is run" in elsewhere("promote", first, "net", "--alias", "production").stdout
    assert "net@2 is run" in elsewhere("promote", second[:7], "net", "--note", "better").stdout
    assert "net@production is now version 2" in elsewhere("alias", "net@2", "production").stdout
    assert relive.load("net@production") == b"weights of 0.2"
    assert "is version 1 again" in elsewhere("rollback", "net@production").stdout

    assert relive.load("net@production") == b"weights of 0.1"
    assert "production=1" in elsewhere("registry").stdout
    assert "better" in elsewhere("registry", "net").stdout
    assert "production → 1, was 2 (rollback)" in elsewhere("registry", "net", "--history").stdout
    near = elsewhere("registry", "net", "--json", "--home", str(team.store)).stdout
    assert json.loads(elsewhere("registry", "net", "--json").stdout) == without_packages(json.loads(near))
    assert "net@1:" in elsewhere("download", "net@production", "models").stdout
    assert (tmp_path / "models" / "model.bin").read_bytes() == b"weights of 0.1"
    assert "is retired" in elsewhere("retire", "net@2").stdout
    assert not (tmp_path / "home" / "registry").exists()
    for wrong, said in {
        ("registry", "nope"): "no model 'nope'", ("download", "net@x"): "no alias 'x'", ("rollback", "net@y"): "before",
        ("promote", "last", "net"): "kept no artifact", ("alias", "net@9", "a"): "no version 9",
    }.items():  # fmt: skip
        done = elsewhere(*wrong)
        assert done.exit_code == 1
        assert said in done.output, wrong


def test_an_unreachable_server_is_not_replaced_by_the_home(
    elsewhere: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RELIVE_SERVER", "")
    with relive.run():
        relive.log("acc", 1.0)
    monkeypatch.setenv("RELIVE_SERVER", "http://127.0.0.1:9")

    done = elsewhere("leaderboard", "acc")
    assert done.exit_code == 1
    assert "can't be reached" in done.output
    assert "name a home instead" in done.output
    assert "127.0.0.1:9" in elsewhere("promote", "last", "net").output
    assert elsewhere("leaderboard", "acc", "--home", os.environ["RELIVE_HOME"]).exit_code == 0
    assert elsewhere("runs").exit_code == 0
    both = elsewhere("leaderboard", "acc", "--home", "x", "--server", "http://y")
    assert "give one of them" in both.output
    with pytest.raises(ServerUnreachable, match="can't be reached"):
        relive.load("net")


def test_without_a_token_the_error_has_the_remedy(serve, elsewhere: Callable[..., Result], tmp_path: Path):
    server = serve("--port", "0", store=tmp_path / "closed")

    done = elsewhere("leaderboard", "acc", "--server", server.url)

    assert done.exit_code == 1
    assert "set RELIVE_TOKEN" in done.output


# --- what is not trusted ----------------------------------------------------------------------------------------------

KINDS = """
import relive
relive.data("train", "data.txt")
relive.log("acc", 1.0)
class Odd:
    def __reduce__(self): return print, ("this ran",)
relive.artifact(Odd(), name="odd")
relive.artifact({"weights": [0.5, 0.25]}, name="plain")
relive.artifact("data.txt", name="file.txt")
"""


def test_nothing_that_came_over_the_network_is_unpickled(serve, elsewhere, tmp_path: Path, monkeypatch, capsys):
    server = serve(store=tmp_path / "kinds")
    monkeypatch.setenv("RELIVE_SERVER", server.url)
    project = tmp_path / "kinds project"
    project.mkdir()
    train(project, server.url, KINDS)
    for name in ("odd", "plain", "file.txt"):
        assert elsewhere("promote", "last", name, "--artifact", name).exit_code == 0

    assert relive.load("plain") == {"weights": [0.5, 0.25]}
    assert relive.load("file.txt").read_text() == "a"
    odd = relive.load("odd")
    assert isinstance(odd, Path)
    assert odd.read_bytes().startswith(pickle.PROTO)
    with pytest.raises(ReliveError, match="never unpickled"):
        relive.load("odd", allow_pickle=True)
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.slow
def test_weights_of_torch_are_loaded_and_other_objects_in_their_files_are_not(serve, elsewhere, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    server = serve(store=tmp_path / "torch")
    monkeypatch.setenv("RELIVE_SERVER", server.url)
    project = tmp_path / "torch project"
    project.mkdir()
    train(project, server.url, """
import torch, relive
relive.data("train", "data.txt")
relive.log("acc", 1.0)
class Odd: pass
relive.artifact(torch.nn.Linear(2, 1), name="net")
relive.artifact({"weight": torch.zeros(3), "odd": Odd()}, name="odd")
""")  # fmt: skip
    for name in ("net", "odd"):
        assert elsewhere("promote", "last", name, "--artifact", name).exit_code == 0

    assert isinstance(relive.load("net")["weight"], torch.Tensor)
    assert isinstance(relive.load("odd"), Path)


class Liar(http.server.BaseHTTPRequestHandler):
    """A server that gives other bytes than were promoted."""

    told: dict[str, Any]

    def do_GET(self) -> None:
        is_chunk = self.path.startswith("/api/chunks/")
        body = b"something else" if is_chunk else json.dumps(self.told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""


@pytest.mark.parametrize(
    ("digest", "said"), [("a" * 64, "bytes that don't match chunk"), ("../../../../tmp/escaped", "invalid artifact")]
)
def test_a_server_that_sends_other_bytes_is_caught(elsewhere, monkeypatch, tmp_path: Path, digest: str, said: str):
    artifact = {"name": "x", "kind": "file", "size_bytes": 4, "digest": digest, "chunks": [digest]}
    Liar.told = {
        "model": "net", "version": 1, "time_us": 1, "by": "", "run": "0" * 12, "artifact": artifact, "args": {},
        "code": {}, "data_version": None, "metrics": {}, "environment": {},
    }  # fmt: skip
    liar = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    threading.Thread(target=liar.serve_forever, daemon=True).start()
    monkeypatch.setenv("RELIVE_SERVER", f"http://127.0.0.1:{liar.server_port}")
    try:
        with pytest.raises(Damaged, match=said):
            relive.load("net")
        assert elsewhere("download", "net").exit_code == 1
    finally:
        liar.shutdown()
        liar.server_close()
    assert not [path for path in tmp_path.rglob("*") if path.name in ("x", "escaped")]


# --- checkpoints ------------------------------------------------------------------------------------------------------

CHECKPOINTED = """
import numpy, relive
relive.data("train", "data.txt")
weights = numpy.zeros(400_000)
with relive.checkpointing(every=1, weights=weights):
    for epoch in relive.loop("epoch", range(4)):
        for step in relive.loop("step", range(2)):
            weights += numpy.random.default_rng(step).random(len(weights))
        relive.log("total", float(weights.sum()))
relive.artifact({"total": float(weights.sum())}, name="result")
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a run that kept checkpoints, recorded without a server."""
    project = tmp_path_factory.mktemp("checkpointed")
    train(project, "", CHECKPOINTED)
    return project


def sync(project: Path, url: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["sync", "--server", url, "--home", str(project / ".relive"), *options])


def restored(home: Path, run: str, epoch: int) -> float:
    import numpy

    weights = numpy.zeros(400_000)
    relive.restore(run, epoch=epoch, into={"weights": weights}, home=home, rng=False)
    return float(weights.sum())


@pytest.mark.long
def test_checkpoints_are_sent_when_asked_for_and_restored_elsewhere(serve, recorded: Path, tmp_path: Path, elsewhere):
    server = serve(store=tmp_path / "team")
    (run,) = ids(recorded / ".relive")
    assert sync(recorded, server.url).stdout.startswith("1 run sent")
    with pytest.raises(NotFound):
        restored(server.store, run, 2)
    assert not list(server.store.glob("chunks/packs/*.pack"))

    done = sync(recorded, server.url, "--checkpoints", run)
    assert done.exit_code == 0, done.output
    assert "checkpoints" in done.stderr
    again = sync(recorded, server.url, "--checkpoints", "all")
    assert again.stdout.startswith("0 runs sent")
    got = elsewhere("fetch", run[:8], "--checkpoints", "--server", server.url)
    assert got.exit_code == 0, got.output

    wanted = restored(recorded / ".relive", run, 2)
    origin = describe_origin(Home(tmp_path / "home"), run)
    assert server.url in origin
    assert is_trusted(Home(tmp_path / "home"))
    assert not is_trusted(Home(tmp_path / "home"), run)
    assert restored(server.store, run, 2) == wanted
    assert restored(tmp_path / "home", run, 2) == wanted
    packs = [sorted((place / "chunks/packs").glob("*.pack")) for place in (recorded / ".relive", tmp_path / "home")]
    assert [path.name for path in packs[1]] == [path.name for path in packs[0]]
    assert [path.read_bytes() for path in packs[1]] == [path.read_bytes() for path in packs[0]]
    frames = [relive.dataframe("total", home=place) for place in (recorded / ".relive", tmp_path / "home")]
    assert frames[0].total.tolist() == frames[1].total.tolist()
    assert elsewhere("doctor", "--home", str(tmp_path / "home")).exit_code == 0
    assert elsewhere("doctor", "--home", str(server.store)).exit_code == 0


@pytest.mark.long
def test_sending_checkpoints_resumes_where_it_was_cut_off(serve, recorded: Path, tmp_path: Path, monkeypatch):
    server = serve(store=tmp_path / "team")
    (run,) = ids(recorded / ".relive")
    monkeypatch.setattr("relive.store.sync.pack_shipment.PART_BYTES", 200_000)
    from relive.store.sync import RequestRefused, RunShipment, ServerClient, has_ended

    remote = ServerClient(server.url)
    whole = sum(path.stat().st_size for path in (recorded / ".relive/chunks/packs").glob("*.pack"))
    first = RunShipment(Home(recorded / ".relive"), run, remote)
    first.add_checkpoints()
    while first.sent_bytes < whole // 2:
        assert first.step(has_ended)
    server.kill()
    server.start()

    second = RunShipment(Home(recorded / ".relive"), run, remote)
    second.add_checkpoints()
    with pytest.raises(ServerUnreachable):  # the connection was that to the server before
        second.step(has_ended)
    while second.step(has_ended):
        pass

    assert second.is_done
    assert second.sent_bytes < whole * 0.75
    assert restored(server.store, run, 3) == restored(recorded / ".relive", run, 3)
    with pytest.raises(RequestRefused, match="don't match its hash"):
        remote.put_pack("0123456789abcdef-1-1.pack", "b" * 64, at=0, size=3, part=b"abc")
    remote.close()
    assert not [path for path in server.store.glob("incoming/*") if path.stat().st_size == 3]


@pytest.mark.long
def test_a_live_run_is_fetched_up_to_now(serve, script, tmp_path: Path, elsewhere):
    server = serve(store=tmp_path / "live")
    theirs = script.project / ".relive"
    env = {"RELIVE_SERVER": server.url, "RELIVE_SHIP_SECONDS": "0.05", "RELIVE_HOME": str(theirs)}

    def fetched_so_far() -> list[float]:
        """Nothing until the run is there, and named what it logs."""
        if elsewhere("fetch", "last", "--server", server.url).exit_code != 0:
            return []
        return relive.sql("select value from logs where name = 'n' order by seq", home=tmp_path / "home").value.tolist()

    process = script.start("""
import os, time, relive
for step in relive.loop("step", range(10**9)):
    relive.log("n", float(step))
    if os.path.exists("stop"): break
    time.sleep(0.001)
""", env=env)  # fmt: skip
    deadline = time.monotonic() + 60
    while not (before := fetched_so_far()) and time.monotonic() < deadline:
        time.sleep(0.05)
    (script.project / "stop").touch()
    process.communicate(timeout=60)
    assert elsewhere("fetch", "last", "--server", server.url).exit_code == 0

    after = relive.dataframe("n", home=tmp_path / "home").n.tolist()
    assert before
    assert before == list(range(len(before)))
    assert after == relive.dataframe("n", home=theirs).n.tolist()
    assert len(after) >= len(before)
    own = CliRunner().invoke(main, ["fetch", "last", "--server", server.url, "--home", str(theirs)])
    assert "was recorded here" in own.output
