"""Laws of the registry: numbers never collide, promoted runs are never collected, loaded artifacts are verified."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import relive
from relive.errors import Damaged, Incomplete, NotFound, ReliveError
from relive.record.provenance import load_object
from relive.record.provenance.artifact_capture import store_artifact
from relive.store import Home
from relive.store.catalog import Index
from relive.store.chunks import Chunks, artifact_files
from relive.store.gc import Policy, collect_garbage
from relive.store.ledger import read_all_lines
from relive.store.registry import Promotion, Registry, model_registry, promote

FACTS = {
    "artifact": None, "args": {}, "code": {}, "data_version": None, "metrics": {}, "environment": {}, "missing": [],
}  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> Registry:
    return Registry(Home(tmp_path / "home"))


def add(models: Registry, run: str, *aliases: str, model: str = "net") -> int:
    return models.add(model, {**FACTS, "run": run}, aliases).version


# --- names and numbers ------------------------------------------------------------------------------------------------


def test_versions_are_numbered_and_the_newest_is_the_default(models: Registry) -> None:
    assert [add(models, run) for run in ("a", "b", "c")] == [1, 2, 3]

    assert models.find("net").run == "c"
    assert models.find("net@latest").run == "c"
    assert models.find("net@2").run == "b"


def test_promoting_the_same_run_again_returns_the_same_version(models: Registry) -> None:
    assert add(models, "a") == add(models, "a", "production") == 1
    assert len(models.model("net").events) == 2
    assert add(models, "a", "production") == 1
    assert len(models.model("net").events) == 2


def test_an_alias_points_to_one_version_and_keeps_its_history(models: Registry) -> None:
    add(models, "a", "production")
    add(models, "b", "candidate")
    models.point("net", "production", 2)

    assert models.find("net@production").run == "b"
    assert models.model("net").aliases == {"candidate": 2, "production": 2}
    moves = [
        (e["alias"], e["before"], e["version"])
        for e in model_registry.history_to_json(models.model("net"))
        if "alias" in e
    ]
    assert moves == [("production", None, 1), ("candidate", None, 2), ("production", 1, 2)]


def test_rolling_back_goes_back_further_each_time(models: Registry) -> None:
    for run in "abc":
        add(models, run, "production")

    assert [models.roll_back("net", "production").run for _ in range(2)] == ["b", "a"]
    with pytest.raises(ReliveError, match="pointed to no other version before"):
        models.roll_back("net", "production")
    add(models, "d", "production")
    assert models.roll_back("net", "production").run == "a"


def test_a_retired_version_is_skipped_and_its_number_never_reused(models: Registry) -> None:
    for run in "abc":
        add(models, run, "production")
    models.retire("net", 2)

    assert models.roll_back("net", "production").run == "a"
    with pytest.raises(ReliveError, match="was retired"):
        models.point("net", "production", 2)
    with pytest.raises(ReliveError, match="is production; point production to another version first"):
        models.retire("net", 1)
    models.retire("net", 3)
    assert add(models, "d") == 4
    assert models.find("net").run == "d"
    assert set(models.promoted_runs()) == {"a", "d"}


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", ".hidden", "a@b", "x" * 101, "é"])
def test_names_that_could_leave_the_folder_are_refused(models: Registry, name: str) -> None:
    with pytest.raises(ReliveError, match="can't name a model"):
        models.add(name, {**FACTS, "run": "a"})
    assert models.models() == []


@pytest.mark.parametrize("alias", ["3", "latest", "", "a b", "a@b"])
def test_an_alias_that_looks_like_a_version_is_refused(models: Registry, alias: str) -> None:
    with pytest.raises(ReliveError, match="can't be an alias"):
        add(models, "a", alias)
    assert models.models() == []


def test_names_that_differ_only_in_case_are_refused(models: Registry) -> None:
    add(models, "a")

    with pytest.raises(ReliveError, match="there is a model 'net' already"):
        add(models, "a", model="Net")


def test_an_unknown_name_is_reported_with_the_known_ones(models: Registry) -> None:
    add(models, "a", "production")

    for reference, message in (
        ("other", "no model 'other' here; there are net"), ("net@9", "no version 9; it has 1 to 1"),
        ("net@staging", "no alias 'staging'; its aliases are production"), ("net@v1", "no alias 'v1'"),
    ):  # fmt: skip
        with pytest.raises(NotFound, match=message):
            models.find(reference)


# --- concurrency and crashes ------------------------------------------------------------------------------------------

PROMOTER = """
import sys
from pathlib import Path
from relive.store import Home
from relive.store.registry.model_registry import Registry
facts = dict(artifact=None, args={}, code={}, data_version=None, metrics={}, environment={}, missing=[])
models = Registry(Home(Path(sys.argv[1])))
for at in range(25):
    print(models.add("net", {**facts, "run": f"{sys.argv[2]}-{at}"}, ["production"]).version)
"""


def test_many_processes_promote_at_once_and_no_number_is_used_twice(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-c", PROMOTER, str(home)]
    started = [subprocess.Popen([*command, str(at)], stdout=subprocess.PIPE, text=True) for at in range(4)]
    outputs = [process.communicate(timeout=60)[0] for process in started]

    given = [int(number) for out in outputs for number in out.split()]
    assert [process.returncode for process in started] == [0] * 4
    assert sorted(given) == list(range(1, 101))
    model = Registry(Home(home)).model("net")
    assert [one.version for one in model.versions] == list(range(1, 101))
    assert model.aliases == {"production": 100}


def test_a_torn_line_is_ignored_and_does_not_swallow_the_next(models: Registry, tmp_path: Path) -> None:
    add(models, "a", "production")
    path = tmp_path / "home/registry/net.lines"
    with path.open("ab") as file:
        file.write(b'{"v":1,"k":"version","version":2,"ru')

    assert models.find("net").version == 1
    assert add(models, "b") == 2
    assert [line["k"] for line in read_all_lines(path)] == ["version", "alias", "version"]


def test_every_changed_byte_of_a_ledger_is_noticed(models: Registry, tmp_path: Path) -> None:
    add(models, "a", "production")
    add(models, "b", "production")
    path = tmp_path / "home/registry/net.lines"
    raw, whole = path.read_bytes(), models.model("net")

    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with pytest.raises(Damaged, match=r"net.lines .*restore the file from a backup|newer"):
            models.model("net")
    path.write_bytes(raw)
    assert models.model("net") == whole


def test_lines_that_are_cut_off_are_missed(models: Registry, tmp_path: Path) -> None:
    add(models, "a", "production")
    add(models, "b", "production")
    path = tmp_path / "home/registry/net.lines"
    raw = path.read_bytes()

    for size in (len(raw) - 1, raw.rindex(b"\n", 0, -1) + 1, 0):
        path.write_bytes(raw[:size])
        with pytest.raises(Damaged, match="lines and had"):
            models.find("net")
        with pytest.raises(Damaged, match="lines and had"):
            add(models, "c")
        assert path.read_bytes() == raw[:size]
    path.unlink()
    with pytest.raises(Damaged, match="0 lines and had"):
        models.models()


def test_a_ledger_of_the_first_format_is_read_and_continued(models: Registry, tmp_path: Path) -> None:
    add(models, "a", "production")
    folder = tmp_path / "home/registry"
    lines = [msgspec.json.decode(row) for row in (folder / "net.lines").read_bytes().splitlines()]
    old = [{**{key: line[key] for key in line if key not in ("n", "sum")}, "v": 1} for line in lines]
    (folder / "net.lines").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in old))
    (folder / "net.head").unlink()

    assert models.find("net@production").version == 1
    assert add(models, "b", "production") == 2
    assert models.find("net@production").version == 2


def test_a_damaged_line_is_never_ignored_silently(models: Registry, tmp_path: Path) -> None:
    add(models, "a", "production")
    add(models, "b", "production")
    path = tmp_path / "home/registry/net.lines"
    rows = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*rows[:-2], b"xxxx", b""]))

    calls: list[Callable[[], Any]] = [
        lambda: models.find("net@production"),
        lambda: add(models, "c"),
        models.active_versions,
    ]
    for call in calls:
        with pytest.raises(Damaged, match="restore the file from a backup"):
            call()


# --- promotion --------------------------------------------------------------------------------------------------------

TRAIN = """
import os, relive
relive.arg("lr", 0.1)
relive.data("train", [1, 2, 3])
relive.log("acc", 0.5)
relive.artifact(b"weights", name="model.bin")
"""


def run_and_promote(script: Any, source: str = TRAIN, **options: Any) -> Any:
    script(source)
    index = Index(Home(script.home))
    return index, promote(index, Promotion("last", "net", **options))


def test_a_version_records_everything_it_came_from(script: Any) -> None:
    index, version = run_and_promote(script, aliases=("production",), note="first")

    record = index.runs()[-1].record
    assert (version.run, version.version, version.note, version.missing) == (record.run, 1, "first", ())
    assert (version.args, version.data_version) == ({"lr": 0.1}, record.data_version)
    assert version.code["version"] == record.version
    assert version.metrics == {"acc": {"last": 0.5, "min": 0.5, "max": 0.5, "count": 1}}
    assert version.environment["packages"]
    assert version.artifact is not None
    assert version.artifact["digest"] == record.artifacts[0]["digest"]


def test_an_incomplete_record_is_refused_with_everything_it_lacks(script: Any) -> None:
    script("import relive, sys; relive.arg('lr', 1); sys.exit(2)", check=False, env={"RELIVE_VERSIONS": "0"})
    index = Index(Home(script.home))

    with pytest.raises(Incomplete) as refused:
        promote(index, Promotion("last", "net"))
    assert refused.value.missing == (
        "it failed (SystemExit)",
        "no code version was taken",
        "no data was declared or seen (relive.data)",
        "it logged no values (relive.log)",
        "it kept no artifact (relive.artifact)",
    )
    assert all(one in str(refused.value) for one in refused.value.missing)
    assert "--force" in str(refused.value)
    assert Registry(index.home).models() == []


def test_force_promotes_and_records_what_is_missing(script: Any) -> None:
    source = TRAIN.replace("relive.artifact", "str")
    index, version = run_and_promote(script, source.replace('str(b"weights", name="model.bin")', ""), force=True)

    assert version.missing == ("it kept no artifact (relive.artifact)",)
    assert Registry(index.home).find("net").missing == version.missing
    with pytest.raises(NotFound, match="has no artifact; promote a run that kept one"):
        relive.load("net", home=script.home)


def test_code_that_can_not_be_read_any_more_is_missing(script: Any) -> None:
    script(TRAIN)
    (script.home / "versions.git").rename(script.home / "lost.git")

    with pytest.raises(Incomplete, match="can't be read any more"):
        promote(Index(Home(script.home)), Promotion("last", "net"))


def test_with_several_artifacts_one_must_be_chosen(script: Any) -> None:
    script(TRAIN + 'relive.artifact(b"more", name="other.bin")\n')
    index = Index(Home(script.home))

    with pytest.raises(NotFound, match=r"2 artifacts \(model.bin, other.bin\); choose with --artifact"):
        promote(index, Promotion("last", "net"))
    with pytest.raises(NotFound, match=r"no artifact 'x'; it has model\.bin, other\.bin"):
        promote(index, Promotion("last", "net", artifact="x"))
    assert promote(index, Promotion("last", "net", artifact="other.bin")).require_artifact()["name"] == "other.bin"


# --- loading ----------------------------------------------------------------------------------------------------------


def test_objects_are_loaded_as_they_were_and_files_as_verified_copies(script: Any) -> None:
    script(
        """
        import relive, pathlib
        pathlib.Path("out/deep").mkdir(parents=True)
        pathlib.Path("out/deep/.w").write_bytes(b"x" * 100)
        pathlib.Path("m.bin").write_bytes(b"weights")
        relive.data("d", [1]); relive.log("acc", 1.0)
        relive.artifact("m.bin"); relive.artifact("out"); relive.artifact({"a": (1, 2)}, name="config")
        relive.artifact(b"raw", name="raw"); relive.artifact({1, frozenset([2])}.union, name="bound")
        """
    )
    index = Index(Home(script.home))
    for name in ("m.bin", "out", "config", "raw", "bound"):
        promote(index, Promotion("last", name, artifact=name))

    assert relive.load("m.bin", home=script.home).read_bytes() == b"weights"
    assert (relive.load("out", home=script.home) / "deep/.w").read_bytes() == b"x" * 100
    assert relive.load("config", home=script.home) == {"a": (1, 2)}
    assert relive.load("raw@1", home=script.home) == b"raw"
    with pytest.raises(ReliveError, match="allow_pickle=True if you trust"):
        relive.load("bound", home=script.home)


def test_a_torch_model_is_loaded_as_its_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net, chunks = torch.nn.Linear(2, 1), Chunks(tmp_path)
    described = store_artifact(net, "net", chunks)

    assert described is not None
    weights = load_object(described, chunks, allow_pickle=False)
    assert torch.equal(weights["weight"], net.weight)


def test_a_copy_that_was_changed_is_made_again(script: Any) -> None:
    script(
        TRAIN.replace(
            'relive.artifact(b"weights", name="model.bin")', 'open("m", "w").write("w"); relive.artifact("m")'
        )
    )
    promote(Index(Home(script.home)), Promotion("last", "net"))
    first = relive.load("net", home=script.home)
    first.write_text("changed")

    assert relive.load("net", home=script.home) == first
    assert first.read_text() == "w"


def test_damaged_bytes_are_never_loaded(script: Any) -> None:
    _, version = run_and_promote(script)
    chunk = Chunks(Home(script.home).chunks).path(version.require_artifact()["chunks"][0])
    chunk.write_bytes(b"\0other")

    with pytest.raises(Damaged, match="is damaged"):
        relive.load("net", home=script.home)


def test_pieces_that_do_not_match_the_digest_are_never_loaded(script: Any, tmp_path: Path) -> None:
    index, version = run_and_promote(script)
    chunks = Chunks(index.home.chunks)
    forged = {**version.require_artifact(), "chunks": [chunks.put(b"something else")]}

    with pytest.raises(Damaged, match="is not what was recorded"):
        artifact_files.read_artifact(forged, chunks)
    with pytest.raises(Damaged, match="is not what was recorded"):
        artifact_files.write_artifact(forged, chunks, tmp_path / "out")
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("name", ["../../escape", "/etc/passwd", "a/../../b", "..", "./x", "a\\..\\b"])
def test_an_artifact_never_leaves_its_folder(tmp_path: Path, name: str) -> None:
    assert artifact_files.path_inside(tmp_path, name).resolve().is_relative_to(tmp_path)
    assert artifact_files.path_inside(tmp_path, name) != tmp_path


# --- what stays -------------------------------------------------------------------------------------------------------


def test_checkpoints_of_a_promoted_run_are_never_dropped(store: Home, record: Callable[..., Any], shown: Any) -> None:
    kept, other = record(seed=1, checkpoints=5), record(seed=2, checkpoints=5)
    Registry(store).add("net", {**FACTS, "run": kept.run})

    collect_garbage(store, Policy(keep=1, budget_bytes=1), grace_s=0)
    assert shown(store) == {kept.run: [0, 1, 2, 3, 4], other.run: []}

    Registry(store).retire("net", 1)
    collect_garbage(store, Policy(keep=1), grace_s=0)
    assert shown(store)[kept.run] == [4]


def test_the_artifact_of_a_version_stays_even_if_its_run_is_gone(script: Any) -> None:
    index, version = run_and_promote(script)
    folder = index.home.run_folder(version.run)
    folder.rename(folder.with_name(".gone"))  # as if it was removed by hand

    collect_garbage(index.home, Policy(), grace_s=0)
    assert relive.load("net", home=script.home) == b"weights"

    Registry(index.home).retire("net", 1)
    collect_garbage(index.home, Policy(), grace_s=0)
    assert version.require_artifact()["chunks"][0] not in Chunks(index.home.chunks)


def test_while_the_registry_can_not_be_read_nothing_is_collected(store: Home) -> None:
    Registry(store).add("net", {**FACTS, "run": "a"})
    (store.registry / "net.lines").write_bytes(b"damaged\n")
    orphan = Chunks(store.chunks).put(b"an orphan")

    with pytest.raises(Damaged):
        collect_garbage(store, Policy(), grace_s=-1)
    assert orphan in Chunks(store.chunks)
