"""Comparisons list what differs and nothing else, and read code without touching a repository."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relive.errors import NotFound, VersionError
from relive.query.compare import compare_runs, diff_runs, list_code_versions
from relive.query.compare.comparability import data_changes
from relive.store import Home
from relive.store.catalog import Index
from relive.store.versions import version_checkout

TRAIN = """
import relive
lr = relive.arg("lr", 0.1)
relive.log("acc", {number} + lr)
"""


def test_args_and_metrics_are_listed_side_by_side(runs: Any) -> None:
    first = runs.add({"acc": [0.1, 0.5]}, lr=0.1, seed=1)
    second = runs.add({"acc": [0.9], "loss": [2.0]}, lr=0.2, seed=1)

    found = compare_runs(runs.index, [first, second])
    assert [run["run"] for run in found["runs"]] == [first, second]
    assert {row["name"]: (row["values"], row["differs"]) for row in found["args"]} == {
        "lr": ([0.1, 0.2], True),
        "seed": ([1, 1], False),
    }
    acc, loss = found["metrics"]
    assert acc["values"][0] == {"last": 0.5, "min": 0.1, "max": 0.5, "count": 2}
    assert loss["values"] == [None, {"last": 2.0, "min": 2.0, "max": 2.0, "count": 1}]
    assert found["same"] == {"data": True, "code": True, "environment": True}
    json.dumps(found, allow_nan=False)


def test_differences_in_data_and_packages_are_described(runs: Any) -> None:
    first = runs.add({"acc": [0.1]}, data="d1", packages={"torch": "2.1", "numpy": "1"})
    second = runs.add({"acc": [0.1]}, data="d2", packages={"torch": "2.2", "scipy": "1"})

    found = diff_runs(runs.index, first, second)
    assert found["data"] == ["train d2d2d2d2d2d2 instead of d1d1d1d1d1d1"]
    assert found["environment"] == [
        "torch 2.2 instead of 2.1",
        "numpy was removed, it was 1",
        "scipy 1 was added",
    ]
    assert (found["args"], found["metrics"], found["code"]) == ([], [], None)


def test_an_observed_file_with_other_content_is_described_by_its_name(runs: Any) -> None:
    def observing(*files: tuple[str, str]) -> Any:
        data = {"declared": {}, "read": [{"path": path, "digest": digest, "role": "data"} for path, digest in files]}
        return dataclasses.replace(runs.index.runs()[0].record, data=data)

    runs.add({"acc": [1.0]})
    changes = data_changes(
        observing(("/a/x", "1"), ("/a/y", "2"), ("/a/z", "3")), observing(("/b/x", "1"), ("/a/y", "4"), ("/w", "5"))
    )
    assert changes == ["y 4 instead of 2", "z was removed, it was 3", "w 5 was added"]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, list[str]]:
    """Three runs of two versions of a script; tests only read them."""
    project = tmp_path_factory.mktemp("project")
    for number in (1, 1, 2):
        (project / "train.py").write_text(TRAIN.format(number=number))
        subprocess.run([sys.executable, "train.py"], cwd=project, check=True, timeout=60)
    index = Index(Home(project / ".relive"))
    return index, [entry.record.run for entry in index.runs()]


def test_code_differences_are_a_unified_diff(versions: tuple[Index, list[str]]) -> None:
    index, (first, same, other) = versions

    found = diff_runs(index, first, other)
    assert '-relive.log("acc", 1 + lr)\n+relive.log("acc", 2 + lr)\n' in found["code"]
    assert found["metrics"][0]["name"] == "acc"
    assert diff_runs(index, first, same)["code"] == ""


def test_versions_come_newest_first_with_their_runs(versions: tuple[Index, list[str]]) -> None:
    index, (first, same, other) = versions

    new, old = list_code_versions(index)
    assert [run["run"] for run in new["runs"]] == [other]
    assert [run["run"] for run in old["runs"]] == [same, first]
    assert (old["scripts"], old["tree"] != new["tree"]) == (["train.py"], True)


def test_code_in_two_repositories_can_be_compared(versions: tuple[Index, list[str]], tmp_path: Path) -> None:
    index, (first, _, other) = versions
    old, new = (next(e.record.code for e in index.runs() if e.record.run == run) for run in (first, other))
    copies = [tmp_path / "one.git", tmp_path / "two.git"]
    for copy in copies:
        shutil.copytree(old["repository"], copy)
    git = ["git", "-C", str(copies[0])]
    subprocess.run([*git, "update-ref", "refs/heads/relive/main", old["version"]], check=True)
    subprocess.run([*git, "-c", "gc.pruneExpire=now", "gc", "-q", "--prune=now"], check=True)
    one, two = ({**code, "repository": str(copy)} for code, copy in zip((old, new), copies, strict=True))

    assert not version_checkout.has_version(index.home, {**new, "repository": str(copies[0])})
    assert "+relive.log" in version_checkout.diff(index.home, one, two)


# --- an old tree somewhere else ---------------------------------------------------------------------------------------


def record(index: Index, run: str) -> Any:
    return next(entry.record for entry in index.runs() if entry.record.run == run)


def test_an_old_tree_is_written_elsewhere(versions: tuple[Index, list[str]], tmp_path: Path) -> None:
    index, (first, _, other) = versions

    version_checkout.checkout(index.home, record(index, first).code, tmp_path / "old")
    version_checkout.checkout(index.home, record(index, other).code, tmp_path / "new")
    assert "1 + lr" in (tmp_path / "old/train.py").read_text()
    assert "2 + lr" in (tmp_path / "new/train.py").read_text()


def test_a_folder_with_something_in_it_is_refused(versions: tuple[Index, list[str]], tmp_path: Path) -> None:
    index, (first, *_) = versions
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("precious")
    code = record(index, first).code

    with pytest.raises(VersionError, match="isn't empty"):
        version_checkout.checkout(index.home, code, tmp_path / "mine")
    with pytest.raises(VersionError, match="is a file"):
        version_checkout.checkout(index.home, code, tmp_path / "mine/notes")
    with pytest.raises(VersionError, match="is inside the repository"):
        version_checkout.checkout(index.home, code, Path(code["repository"]) / "x")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]
    assert (tmp_path / "mine/notes").read_text() == "precious"


def test_a_version_that_is_gone_or_was_never_taken_raises(versions: tuple[Index, list[str]], tmp_path: Path) -> None:
    index, (first, *_) = versions
    code = record(index, first).code

    assert version_checkout.has_version(index.home, code)
    assert not version_checkout.has_version(index.home, {**code, "version": "0" * 40})
    with pytest.raises(VersionError, match="no code version was taken"):
        version_checkout.checkout(index.home, {}, tmp_path / "x")
    with pytest.raises(VersionError, match="is gone"):
        version_checkout.find_repository(Home(tmp_path), {**code, "repository": "/nowhere/versions.git"})
    with pytest.raises(VersionError, match="isn't a version id"):
        version_checkout.checkout(index.home, {**code, "version": "--help"}, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_comparing_an_unknown_run_raises(runs: Any) -> None:
    runs.add({"acc": [1.0]})

    with pytest.raises(NotFound, match="no run 'nope'"):
        compare_runs(runs.index, ["last", "nope"])
