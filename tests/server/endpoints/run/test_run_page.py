"""The page of one run: each route tells what was recorded, is bounded, and shows nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from relive.server.endpoints.run import run_sources
from relive.server.endpoints.run.wire_values import wire_value

from ...ui_process import Ui

pytestmark = pytest.mark.long

TRAIN = """
import relive, pathlib
lr = relive.arg("lr", 0.1)
seed = relive.arg("seed", 2**60)
bad = relive.arg("bad", float("nan"))
relive.data("train", "data.csv")

@relive.memo
def square(x):
    return x * x

class Net:
    def __init__(self): self.weight = [1.0, 2.0]
    def state_dict(self): return {"weight": self.weight}
    def load_state_dict(self, state): self.weight = state["weight"]

net = Net()
with relive.checkpointing(net=net):
    for epoch in relive.loop("epoch", range(3)):
        net.weight[0] += lr
        relive.log("loss", square(epoch) + lr)
relive.artifact("data.csv")
relive.artifact({"w": [1, 2]}, name="weights")
pathlib.Path("results/inner").mkdir(parents=True, exist_ok=True)
pathlib.Path("results/inner/plot.png").write_bytes(b"\\x89PNG\\r\\n\\x1a\\n")
pathlib.Path("results/<script>.html").write_text("<script>alert(1)</script>")
relive.artifact("results")
"""


@pytest.fixture(scope="module")
def page(shared_script) -> Iterator[Ui]:
    """The page of a home with two runs, whose code and args differ."""
    (shared_script.project / "data.csv").write_text("a,b\n1,2\n3,4\n")
    shared_script(TRAIN, "--kwargs", "lr=0.5")
    shared_script(TRAIN.replace("square(epoch) + lr", "square(epoch) + 1"))
    started = Ui(shared_script.project)
    started.enter()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def runs(page: Ui) -> tuple[str, str]:
    new, old = (run["run"] for run in page.json("/api/runs")["runs"])
    return new, old


def test_config_shows_args_exactly_and_what_differs(page, runs):
    new, old = runs

    config = page.json(f"/api/runs/{new}/config?against={old}")

    assert config["args"]["lr"] == {"value": 0.1, "default": 0.1, "origin": "default"}
    assert config["args"]["seed"]["value"] == f"$int:{2**60}"
    assert config["args"]["bad"]["value"] == "NaN"
    assert config["argv"][0].endswith("train.py")
    assert config["changed"] == [{"name": "lr", "here": 0.1, "there": 0.5}]


def test_code_has_files_texts_and_diffs(page, runs):
    new, old = runs

    listed = page.json(f"/api/runs/{new}/code")

    assert {file["path"]: file["status"] for file in listed["files"]}["train.py"] == "changed"
    assert "square(epoch) + 1" in page.json(f"/api/runs/{new}/code?path=train.py")["text"]
    for against in ("parent", old):
        diff = page.json(f"/api/runs/{new}/code/diff?against={against}")
        (train,) = [file for file in diff["files"] if file["path"] == "train.py"]
        lines = [(line["kind"], line["text"].strip()) for hunk in train["hunks"] for line in hunk["lines"]]
        assert ("-", 'relive.log("loss", square(epoch) + lr)') in lines
        assert ("+", 'relive.log("loss", square(epoch) + 1)') in lines
    assert page.json(f"/api/runs/{old}/code/diff")["files"] == []  # the first version


@pytest.mark.parametrize(
    "path", ["../train.py", "/etc/passwd", "..%2F..%2Fetc%2Fpasswd", "--help", "%00", ".git/config"]
)
def test_code_shows_only_files_of_the_version(page, runs, path):
    assert page.get(f"/api/runs/{runs[0]}/code?path={path}")[0] == 404


def test_data_environment_and_commands(page, runs):
    new, old = runs

    data = page.json(f"/api/runs/{new}/data?against={old}")
    environment = page.json(f"/api/runs/{new}/environment?against={old}")
    commands = page.json(f"/api/runs/{new}/commands")

    assert data["declared"][0]["name"] == "train"
    assert data["against"]["same"] is True
    assert environment["packages"]["relive"]
    assert environment["changed"] == []
    assert commands["reproduce"] == [f"relive checkout {new[:8]} repeated", "cd repeated", "python train.py"]
    assert page.json(f"/api/runs/{old}/commands")["reproduce"][-1] == "python train.py --kwargs lr=0.5"


def test_checkpoints_and_memo(page, runs):
    new, _ = runs

    checkpoints = page.json(f"/api/runs/{new}/checkpoint-list")
    memo = page.json(f"/api/runs/{new}/memo")

    assert checkpoints["total"] == len(checkpoints["checkpoints"]) > 0
    assert checkpoints["checkpoints"][0]["objects"] == ["net"]
    assert checkpoints["restore"] == f'relive.restore("{new[:8]}", into=dict(net=net))'
    assert [entry["outcome"] for entry in memo["entries"]] == ["hit"] * 3
    assert page.json(f"/api/runs/{new}/memo?limit=1&offset=2")["entries"] == memo["entries"][2:]


def test_artifacts_are_listed_previewed_and_downloaded_safely(page, runs):
    base = f"/api/runs/{runs[0]}/artifacts"

    listed = {one["name"]: one for one in page.json(base)["artifacts"]}
    table = page.json(f"{base}/data.csv?preview=1")
    status, headers, body = page.get(f"{base}/results?file=%3Cscript%3E.html")

    assert (listed["data.csv"]["preview"], listed["weights"]["preview"]) == ("table", "text")
    assert {file["path"]: file["preview"] for file in listed["results"]["files"]}["inner/plot.png"] == "image"
    assert (table["columns"], table["rows"]) == (["a", "b"], [["1", "2"], ["3", "4"]])
    assert page.json(f"{base}/weights?preview=1")["text"] == '{"w":[1,2]}'
    assert (status, body) == (200, b"<script>alert(1)</script>")
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert headers["content-disposition"].startswith('attachment; filename="_script_.html"')
    _, headers, _ = page.get(f"{base}/results?file=inner/plot.png")
    assert headers["content-type"] == "image/png"
    assert headers["content-disposition"].startswith("inline")
    assert page.get(f"{base}/results")[0] == 404
    assert page.get(f"{base}/..%2F..%2Fid")[0] == 404


@pytest.mark.parametrize(
    "route", ["config", "code", "code/diff", "data", "environment", "checkpoint-list", "memo", "commands", "artifacts"]
)
def test_unknown_parameters_are_refused_and_the_same_answer_is_not_sent_twice(page, runs, route):
    base = f"/api/runs/{runs[0]}/{route}"

    status, _, body = page.get(f"{base}?wrong=1")
    assert status == 422
    assert "wrong" in msgspec.json.decode(body)["error"]
    _, headers, _ = page.get(base)
    assert page.get(base, If_None_Match=headers["etag"])[::2] == (304, b"")
    assert page.get(f"/api/runs/ffffffffffff/{route}")[0] == 404


def test_a_served_store_reads_no_repository_that_a_run_names(shared_script, page, runs, serve):
    """Whoever sends a run could name any repository of the server's machine."""
    import shutil

    store = shared_script.project / "copy"
    shutil.copytree(shared_script.home, store)
    shutil.rmtree(store / "versions.git")
    server = serve("--open", store=store)
    import urllib.error
    import urllib.request

    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(f"{server.url}/api/runs/{runs[0]}/code", timeout=30)

    assert refusal.value.code == 404
    assert b"not on the server" in refusal.value.read()
    refusal.value.close()


def test_a_diff_with_renames_and_odd_names_is_understood():
    rows = """diff --git a/old.py b/new.py
similarity index 90%
rename from old.py
rename to new.py
index 1..2 100644
--- a/old.py
+++ b/new.py
@@ -1,2 +1,2 @@ def f():
 same
-was
+is
\\ No newline at end of file
diff --git "a/\\303\\244 b.txt" "b/\\303\\244 b.txt"
new file mode 100644
--- /dev/null
+++ "b/\\303\\244 b.txt"
@@ -0,0 +1 @@
++++ not a header
diff --git a/x.bin b/x.bin
Binary files a/x.bin and b/x.bin differ""".split("\n")

    renamed, odd, binary = run_sources._parse_files(iter(rows))

    assert (renamed["path"], renamed["old_path"], renamed["status"]) == ("new.py", "old.py", "renamed")
    assert [line["kind"] for line in renamed["hunks"][0]["lines"]] == [" ", "-", "+"]
    assert (odd["path"], odd["status"]) == ("ä b.txt", "added")
    assert odd["hunks"][0]["lines"] == [{"kind": "+", "text": "+++ not a header"}]
    assert (binary["path"], binary["is_binary"]) == ("x.bin", True)


def test_values_survive_the_way_to_a_page():
    forms = [float("inf"), {"$float": "-inf"}, 2**53, {"$int": hex(2**70)}, True, "a\ud800b", {"x": [{"$tuple": [1]}]}]

    assert [wire_value(form) for form in forms] == [
        "Infinity", "-Infinity", f"$int:{2**53}", f"$int:{2**70}", True, "a?b", {"x": [[1]]},
    ]  # fmt: skip
