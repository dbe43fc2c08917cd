"""Laws of versions: what they hold, when a new one is created, and what happens when git fails."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import VersionDamaged, VersionError
from relive.store import Home
from relive.store.versions import VersionFiles, code_versions, version_checkout, work_tree
from relive.store.versions import git as git_module
from relive.store.versions.code_versions import Version, history, list_files, materialise, read_file, take

GLOBAL_CONFIG = "[user]\n name = Ada\n email = ada@example.com\n[init]\n defaultBranch = main\n"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True, scope="module")
def own_git_config(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = tmp_path_factory.mktemp("git") / "config"
    config.write_text(GLOBAL_CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(config))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        yield


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A project without git."""
    root = tmp_path / "plain"
    write(root, {"train.py": b"lr = 1\n", "pkg/net.py": b"width = 8\n"})
    return root


@pytest.fixture
def repo(plain: Path) -> Path:
    """A project with one git commit."""
    return commit(plain)


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> Path:
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "first")
    return root


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def take_version(root: Path, **options: int | str) -> Version:
    return take(root, home=root / ".relive", **options)


def files(version: Version) -> list[str]:
    return list_files(version.id, repository=Path(version.repository))


def read(version: Version, path: str) -> bytes:
    return read_file(version.id, path, repository=Path(version.repository))


def materialised_files(version: Version, into: Path) -> dict[bytes, bytes]:
    materialise(version.id, repository=Path(version.repository), into=into)
    return on_disk(into)


def on_disk(root: Path) -> dict[bytes, bytes]:
    top = os.fsencode(root)
    found = [os.path.join(at, name) for at, _, names in os.walk(top) for name in names]
    return {os.path.relpath(path, top): Path(os.fsdecode(path)).read_bytes() for path in found}


# When there is a new version.


@pytest.mark.parametrize("kind", ["repo", "plain"])
def test_unchanged_code_makes_no_new_version(kind: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(kind)
    write(root, {"new.py": b"1"})

    first, second = take_version(root), take_version(root, label="another run")

    assert first == second
    assert len(history(Path(first.repository))) == 1


@pytest.mark.parametrize("kind", ["repo", "plain"])
def test_changed_code_makes_a_version_that_follows_the_last(kind: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(kind)
    first = take_version(root, label="first\nrun")
    write(root, {"train.py": b"lr = 2\n"})  # the same size, perhaps within the same tick of the clock

    second = take_version(root, label="second run")

    assert read(first, "train.py") == b"lr = 1\n"
    assert read(second, "train.py") == b"lr = 2\n"
    past = history(Path(second.repository))
    assert [(line.id, line.subject) for line in past] == [(second.id, "second run"), (first.id, "first run")]
    assert abs(past[0].time_s - time.time()) < 60


def test_a_new_commit_of_the_user_makes_a_new_version_of_the_same_tree(repo: Path) -> None:
    first = take_version(repo)
    git(repo, "commit", "--quiet", "--allow-empty", "-m", "second")

    second = take_version(repo)

    assert (second.tree, second.head) == (first.tree, git(repo, "rev-parse", "HEAD"))
    assert second.id != first.id


def test_a_version_records_the_branch_and_head_of_the_user(repo: Path) -> None:
    clean = take_version(repo)
    write(repo, {"train.py": b"lr = 2\n"})
    git(repo, "checkout", "--quiet", "--detach")

    dirty = take_version(repo)

    assert (clean.user_branch, clean.dirty, clean.branch) == ("main", False, "refs/heads/relive/main")
    assert (dirty.user_branch, dirty.dirty, dirty.branch) == (None, True, "refs/heads/relive/detached")
    assert clean.head == dirty.head == git(repo, "rev-parse", "HEAD")
    assert (dirty.repository, dirty.root) == (str(repo / ".git"), str(repo))


def test_the_branch_of_versions_keeps_nothing_alive_that_the_user_dropped(repo: Path) -> None:
    version = take_version(repo)

    assert git(repo, "rev-list", version.id) == version.id


SCRIPT = """
import sys, time
from pathlib import Path
from relive.store.versions.code_versions import take
root, go = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while not go.exists():
    time.sleep(0.001)
print(take(root, home=root / ".relive").id)
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["repo", "plain"])
def test_eighteen_runs_that_start_at_once_get_the_same_version(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root = request.getfixturevalue(kind)
    write(root, {"new.py": b"1"})
    command = [sys.executable, "-c", SCRIPT, str(root), str(tmp_path / "go")]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(18)]
    for run in runs:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    results = [run.communicate(timeout=60) for run in runs]

    assert [stderr for _, stderr in results] == [""] * 18
    assert {out for out, _ in results} == {take_version(root).id + "\n"}
    assert len(history(Path(take_version(root).repository))) == 1
    assert [path.name for path in (root / ".relive").iterdir()] == ([] if kind == "repo" else ["versions.git"])


def test_runs_of_different_code_that_start_at_once_all_get_their_version(repo: Path, tmp_path: Path) -> None:
    trees = [tmp_path / f"tree{i}" for i in range(8)]
    for i, tree in enumerate(trees):
        git(repo, "worktree", "add", "--quiet", "--detach", str(tree))
        write(tree, {"train.py": b"lr = %d\n" % i})

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(take_version, trees))

    assert [read(version, "train.py") for version in found] == [b"lr = %d\n" % i for i in range(8)]
    assert {line.id for line in history(repo / ".git")} == {version.id for version in found}
    assert {version.branch for version in found} == {"refs/heads/relive/detached"}


@pytest.mark.long
@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_a_version_of_a_small_project_takes_less_than_50_kilobytes(repo: Path, count: int) -> None:
    for i in range(count):
        write(repo, {"train.py": b"lr = %d\n" % i * 200, "pkg/net.py": b"width = %d\n" % i})
        version = take_version(repo)

    objects = [path for path in (repo / ".git" / "objects").rglob("*") if path.is_file()]
    assert len(history(Path(version.repository))) == count
    assert sum(path.stat().st_blocks * 512 for path in objects) < 50_000 * count


# What is in it.

NAME = st.text(alphabet="ab-.\n\t \"'\\é漢😀*?[:#!~", min_size=1, max_size=5).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAME, min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(PATHS, st.binary(max_size=20), max_size=6).map(
    lambda tree: {path: data for path, data in tree.items() if not any(f"{path}/" in other for other in tree)}
)


@pytest.mark.long
@settings(max_examples=20, deadline=None, database=None)
@given(committed=TREES, now=TREES, in_git=st.booleans())
def test_any_files_come_back_as_they_were(committed: dict[str, bytes], now: dict[str, bytes], in_git: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "p"
        root.mkdir()
        write(root, committed)
        commit(root) if in_git else take_version(root)
        for path in sorted(root.rglob("*"), reverse=True):
            if ".git" not in path.parts and ".relive" not in path.parts:
                path.rmdir() if path.is_dir() else path.unlink()
        write(root, now)

        version = take_version(root)

        expected = {os.fsencode(path): data for path, data in now.items()}
        assert materialised_files(version, Path(folder) / "out") == expected
        assert {os.fsencode(path) for path in files(version)} == set(expected)
        assert {path: read(version, path) for path in now} == now
        assert version.left_out == 0


def test_names_that_are_not_valid_text_are_stored(repo: Path, tmp_path: Path) -> None:
    name = b"caf\xe9.py"
    (repo / os.fsdecode(name)).write_bytes(b"1")

    version = take_version(repo)

    assert read(version, os.fsdecode(name)) == b"1"
    assert name in materialised_files(version, tmp_path / "out")


def test_links_and_executables_stay_what_they_are(repo: Path, tmp_path: Path) -> None:
    (repo / "tool.sh").write_text("")
    (repo / "tool.sh").chmod(0o755)
    (repo / "link").symlink_to("pkg")
    (repo / "dangling").symlink_to("/nowhere")
    (repo / "outside").symlink_to(tmp_path, target_is_directory=True)

    version = take_version(repo)
    materialise(version.id, repository=Path(version.repository), into=tmp_path / "out")

    assert (tmp_path / "out" / "tool.sh").stat().st_mode & 0o111
    assert [os.readlink(tmp_path / "out" / name) for name in ("link", "dangling", "outside")] == [
        "pkg",
        "/nowhere",
        str(tmp_path),
    ]


def test_a_folder_that_became_a_link_is_stored_as_one(repo: Path, tmp_path: Path) -> None:
    (repo / "pkg").rename(tmp_path / "elsewhere")
    (repo / "pkg").symlink_to(tmp_path / "elsewhere")

    assert files(take_version(repo)) == ["pkg", "train.py"]


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_edits_of_files_that_git_is_set_to_skip_are_stored(repo: Path, flag: str) -> None:
    git(repo, "update-index", flag, "train.py", "pkg/net.py")
    before = take_version(repo)
    write(repo, {"train.py": b"lr = 9\n"})

    version = take_version(repo)

    assert git(repo, "status", "--porcelain") == ""
    assert read(version, "train.py") == b"lr = 9\n"
    assert (before.dirty, version.dirty) == (False, True)


def test_a_file_taken_out_of_git_and_ignored_is_not_stored(repo: Path) -> None:
    git(repo, "rm", "--quiet", "--cached", "pkg/net.py")
    write(repo, {".gitignore": b"pkg\n"})

    assert files(take_version(repo)) == [".gitignore", "train.py"]


def test_large_files_are_listed_by_their_hash(repo: Path) -> None:
    write(repo, {"data.bin": b"d" * 100, "train.py": b"#" * 101, "small.dat": b"s" * 99})

    version = take_version(repo, large_bytes=99)

    assert [(file.path, file.size_bytes) for file in version.large] == [("data.bin", 100), ("train.py", 101)]
    assert version.large[0].digest == blake3(b"d" * 100).hexdigest()
    assert files(version) == ["pkg/net.py", "small.dat"]
    assert (version.left_out, version.dirty) == (0, True)


def test_hashing_large_files_stays_within_its_budget(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_tree, "_HASH_BUDGET_BYTES", 150)
    write(repo, {"a.bin": b"a" * 140, "b.bin": b"b" * 110})

    version = take_version(repo, large_bytes=99)

    assert [(file.path, file.digest is None) for file in version.large] == [("a.bin", True), ("b.bin", False)]


SECRETS = [".env", ".env.local", "k/server.pem", "x.KEY", "id_rsa", "id_ed25519.pub", "aws_credentials.json", ".netrc"]
SECRETS += [".pypirc", ".npmrc", "a.p12", "a.pfx", ".htpasswd", "secrets.yaml"]


@pytest.mark.parametrize("kind", ["repo", "plain"])
def test_secrets_are_never_stored(kind: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(kind)
    write(root, dict.fromkeys(SECRETS, b"hunter2"))

    version = take_version(root)

    assert files(version) == ["pkg/net.py", "train.py"]
    assert version.left_out == len(SECRETS)


def test_a_secret_that_left_git_is_not_stored_again(plain: Path) -> None:
    write(plain, {".env": b"hunter2"})
    commit(plain)
    kept = take_version(plain)
    git(plain, "rm", "--quiet", "--cached", ".env")

    version = take_version(plain)

    assert ".env" in files(kept)  # theirs already
    assert ".env" not in files(version)


@pytest.mark.parametrize("kind", ["repo", "plain"])
def test_code_is_stored_before_data_when_the_budget_is_short(kind: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(kind)
    data = {f"a/labels/{i:03}.json": b"{}" for i in range(50)} | {f"a/{i:03}.jpg": b"x" for i in range(50)}
    write(root, {**data, "z/deep/er/model.py": b"1", "z.yaml": b"2"})
    tracked = 2 if kind == "repo" else 0

    by_count = take_version(root, untracked_files=4)
    by_bytes = take_version(root, untracked_bytes=22)
    again = take_version(root, untracked_bytes=22)

    assert {"z/deep/er/model.py", "pkg/net.py", "train.py"} <= set(files(by_count)) & set(files(by_bytes))
    assert len(files(by_count)) == 4 + tracked
    assert by_count.left_out == 102 + 2 - tracked - 4
    assert again == by_bytes


def test_the_home_is_never_in_a_version(plain: Path) -> None:
    write(plain, {".relive/runs/1": b"1", ".relive2/x.py": b"2"})
    commit(plain)  # somebody committed it
    write(plain, {".relive/runs/2": b"2"})

    version = take_version(plain)

    assert files(version) == [".relive2/x.py", "pkg/net.py", "train.py"]
    assert (version.left_out, version.dirty) == (0, False)


def test_repositories_inside_are_not_stored(repo: Path) -> None:
    write(repo, {"vendor/dep/x.py": b"1"})
    commit(repo / "vendor" / "dep")

    assert files(take_version(repo)) == ["pkg/net.py", "train.py"]


def test_a_subfolder_or_a_link_gives_the_version_of_the_whole_repository(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo / "pkg")
    write(repo, {"new.py": b"1"})

    found = [take(root, home=tmp_path / "home") for root in (repo, repo / "pkg", tmp_path / "link")]

    assert found[0] == found[1] == found[2]
    assert found[0].root == str(repo)


def test_files_that_vanish_meanwhile_are_left_out(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(repo, {"new.py": b"1", "other.py": b"2", "train.py": b"lr = 3\n"})

    def select_and_delete(*args: object) -> work_tree.FileSelection:
        selection = work_tree.select_files(*args)  # type: ignore[arg-type]
        (repo / "new.py").unlink()
        (repo / "train.py").unlink()
        (repo / "train.py").mkdir()
        (repo / "other.py").unlink()
        os.mkfifo(repo / "other.py")
        return selection

    monkeypatch.setattr(code_versions, "select_files", select_and_delete)

    assert files(take_version(repo)) == ["pkg/net.py"]


def test_files_that_cannot_be_read_are_counted(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(repo, {"closed.py": b"1", "train.py": b"lr = 3\n"})
    monkeypatch.setattr(work_tree, "_is_readable", lambda base, file: file.path not in (b"closed.py", b"train.py"))

    version = take_version(repo)

    assert files(version) == ["pkg/net.py"]
    assert version.left_out == 2


def test_a_file_whose_filter_fails_is_counted(repo: Path) -> None:
    git(repo, "config", "filter.lfs.clean", "false")
    git(repo, "config", "filter.lfs.required", "true")
    write(repo, {".gitattributes": b"*.bin filter=lfs\n", "a.bin": b"1", "b.bin": b"2"})

    version = take_version(repo)

    assert files(version) == [".gitattributes", "pkg/net.py", "train.py"]
    assert version.left_out == 2


def test_names_that_git_refuses_are_left_out(repo: Path) -> None:
    write(repo, {"git~1": b"1", "a.py": b"2"})

    assert files(take_version(repo)) == ["a.py", "pkg/net.py", "train.py"]


# Where it is kept.


def test_a_branch_called_relive_makes_versions_use_another_ref(repo: Path) -> None:
    git(repo, "branch", "relive")

    first, second = take_version(repo), take_version(repo)

    assert first.branch == "refs/relive-versions/main"
    assert first == second
    assert [line.id for line in history(repo / ".git")] == [first.id]


def test_branches_that_exclude_each_other_both_get_versions(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "-b", "a")
    first = take_version(repo)
    git(repo, "checkout", "--quiet", "-b", "b/c")
    git(repo, "branch", "--quiet", "-D", "a")
    git(repo, "checkout", "--quiet", "-b", "a/b")

    second = take_version(repo)

    assert (first.branch, second.branch) == ("refs/heads/relive/a", "refs/relive-versions/a%2Fb")


def test_a_branch_that_the_user_made_or_continued_is_theirs(repo: Path) -> None:
    first = take_version(repo)
    git(repo, "checkout", "--quiet", "relive/main")
    git(repo, "commit", "--quiet", "--allow-empty", "-m", "my work on top")
    theirs = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "--quiet", "main")
    write(repo, {"train.py": b"lr = 2\n"})

    second = take_version(repo)

    assert git(repo, "rev-parse", "relive/main") == theirs
    assert second.branch == "refs/relive-versions/main"
    assert {line.id for line in history(repo / ".git")} == {first.id, second.id}


def test_a_branch_checked_out_somewhere_is_not_moved(repo: Path, tmp_path: Path) -> None:
    first = take_version(repo)
    git(repo, "worktree", "add", "--quiet", str(tmp_path / "look"), "relive/main")
    write(repo, {"train.py": b"lr = 2\n"})

    second = take_version(repo)

    assert git(tmp_path / "look", "status", "--porcelain") == ""
    assert git(repo, "rev-parse", "relive/main") == first.id
    assert second.branch == "refs/relive-versions/main"


def test_worktrees_share_the_repository(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    write(tmp_path / "side", {"train.py": b"lr = 2\n"})

    version = take_version(tmp_path / "side")

    assert (version.repository, version.root) == (str(repo / ".git"), str(tmp_path / "side"))
    assert (version.branch, version.dirty, take_version(repo).dirty) == ("refs/heads/relive/side", True, False)


def test_without_git_junk_and_ignored_files_stay_out(plain: Path) -> None:
    junk = [".venv/lib/x.py", "venv/x.py", "node_modules/a.js", "pkg/__pycache__/net.pyc", "nb/.ipynb_checkpoints/a.py"]
    write(plain, {**dict.fromkeys(junk, b"1"), "run.log": b"1", ".gitignore": b"*.log\n", "env/maze.py": b"1"})

    version = take_version(plain)

    assert files(version) == [".gitignore", "env/maze.py", "pkg/net.py", "train.py"]
    assert (version.head, version.user_branch, version.dirty) == (None, None, False)
    assert (version.repository, version.root) == (str(plain / ".relive" / "versions.git"), str(plain))
    assert version.branch == "refs/heads/relive/main"


def test_without_git_a_file_that_is_ignored_later_leaves_the_version(plain: Path) -> None:
    take_version(plain)
    write(plain, {".gitignore": b"pkg\n"})
    (plain / "train.py").unlink()

    assert files(take_version(plain)) == [".gitignore"]


def test_projects_that_share_a_home_do_not_disturb_each_other(plain: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", {"b.py": b"2"})
    roots = (plain, tmp_path / "other")

    first = [take(root, home=tmp_path / "home") for root in roots]
    second = [take(root, home=tmp_path / "home") for root in roots]

    assert first == second
    assert [files(version) for version in first] == [["pkg/net.py", "train.py"], ["b.py"]]


def test_an_empty_project_has_an_empty_version(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "unborn").mkdir()
    git(tmp_path / "unborn", "init", "--quiet")

    plain, unborn = take_version(tmp_path / "plain"), take_version(tmp_path / "unborn")

    assert files(plain) == files(unborn) == []
    assert (unborn.head, unborn.user_branch, unborn.dirty) == (None, "main", False)


def test_a_project_ignored_by_the_repository_around_it_gets_a_private_repository(plain: Path) -> None:
    write(plain.parent, {".gitignore": b"*\n"})
    commit(plain.parent)

    version = take_version(plain)

    assert files(version) == ["pkg/net.py", "train.py"]
    assert version.root == str(plain)


@needs_root
def test_a_repository_that_git_distrusts_is_not_written_to(repo: Path) -> None:
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)

    version = take_version(repo)

    assert (version.repository, version.head) == (str(repo / ".relive" / "versions.git"), None)
    assert files(version) == ["pkg/net.py", "train.py"]
    assert not (repo / ".git" / "refs" / "heads" / "relive").exists()


@needs_root
def test_a_trusted_repository_of_someone_else_is_read_but_not_written_to(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git(repo, "rev-parse", "HEAD")
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    for name, value in {"COUNT": "1", "KEY_0": "safe.directory", "VALUE_0": "*"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    git(repo, "update-index", "--skip-worktree", "train.py")
    write(repo, {"new.py": b"1"})

    version = take_version(repo)

    assert version.repository == str(repo / ".relive" / "versions.git")
    assert (version.head, version.user_branch, version.dirty) == (head, "main", True)
    assert files(version) == ["new.py", "pkg/net.py", "train.py"]


# When it can't be done.


def test_without_git_on_the_path_the_error_says_to_install_it(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(VersionError, match="install git"):
        take_version(plain)


def test_a_damaged_repository_is_an_error_with_a_remedy(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    (repo / ".git" / "objects" / head[:2] / head[2:]).unlink()

    with pytest.raises(VersionError, match="git fsck"):
        take_version(repo)

    assert list((repo / ".relive").iterdir()) == []


@pytest.mark.long
def test_a_git_that_hangs_is_ended_with_all_it_started(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "TIMEOUT_S", 5.0)  # every other call of git is through by then
    git(repo, "config", "filter.slow.clean", f"echo $$ > {shlex.quote(str(tmp_path / 'pid'))}; exec sleep 600")
    write(repo, {".gitattributes": b"*.dat filter=slow\n", "a.dat": b"1"})

    with pytest.raises(VersionError, match="took more than"):
        take_version(repo)

    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and is_running(pid):
        time.sleep(0.01)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_home_that_cannot_be_made_is_an_error_with_a_remedy(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(VersionError, match="RELIVE_HOME"):
        take(repo, home=tmp_path / "file" / "home")


def test_a_root_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="give the project's folder"):
        take(tmp_path / "nowhere", home=tmp_path / "home")


# Getting it back.


def test_a_version_is_only_written_to_an_empty_folder(repo: Path) -> None:
    version = take_version(repo)

    with pytest.raises(VersionError, match="give a new folder"):
        materialise(version.id, repository=Path(version.repository), into=repo)


def test_a_version_can_be_materialised_many_times_at_once(repo: Path, tmp_path: Path) -> None:
    version = take_version(repo)
    index = (repo / ".git" / "index").read_bytes()

    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(lambda i: materialised_files(version, tmp_path / f"out{i}"), range(8)))

    assert outs == [{b"train.py": b"lr = 1\n", b"pkg/net.py": b"width = 8\n"}] * 8
    assert (repo / ".git" / "index").read_bytes() == index


def test_attributes_for_archives_and_line_ends_do_not_change_what_comes_back(repo: Path, tmp_path: Path) -> None:
    attributes = b"*.py export-ignore\n*.bat text eol=crlf\n"
    write(repo, {".gitattributes": attributes, "run.bat": b"a\r\nb\r\n"})

    out = materialised_files(take_version(repo), tmp_path / "out")

    assert (out[b"run.bat"], out[b"train.py"]) == (b"a\r\nb\r\n", b"lr = 1\n")


def test_what_a_version_does_not_hold_is_an_error(repo: Path) -> None:
    version = take_version(repo)

    with pytest.raises(VersionError, match="list_files"):
        read(version, "nothing.py")
    with pytest.raises(VersionError, match="isn't a version id"):
        list_files("--help", repository=repo / ".git")
    with pytest.raises(VersionError):
        list_files("0" * 40, repository=repo / ".git")


def test_a_repository_without_versions_has_no_history(repo: Path) -> None:
    assert history(repo / ".git") == []


def test_files_that_runs_save_beside_the_code_make_no_new_version(repo: Path) -> None:
    before = take_version(repo)
    for name in ("model.pt", "events.out.tfevents.1700000000.host", "metrics.csv", "plot.png"):
        (repo / name).write_bytes(b"made by a run")

    after = take_version(repo)

    assert after.id == before.id
    assert after.left_out == before.left_out + 4


def object_path(version: Version, name: str) -> Path:
    return Path(version.repository) / "objects" / name[:2] / name[2:]


def put(path: Path, raw: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(raw)


def read_texts(version: Version) -> dict[str, str]:
    with VersionFiles(Path(version.repository)) as versions:
        return versions.read(version.id)


def reads(home: Path, version: Version, into: Path) -> list[Callable[[], object]]:
    """Every way to read the files of a version."""
    repository, code = Path(version.repository), {"version": version.id, "repository": version.repository}
    return [
        lambda: read(version, "pkg/net.py"),
        lambda: materialise(version.id, repository=repository, into=into / os.urandom(4).hex()),
        lambda: version_checkout.checkout(Home(home), code, into / os.urandom(4).hex()),
        lambda: read_texts(version),
    ]


@pytest.mark.parametrize("object_of", ["pkg/net.py", "pkg", ""], ids=["file", "subtree", "tree"])
def test_an_object_with_the_content_of_another_is_an_error(plain: Path, tmp_path: Path, object_of: str) -> None:
    write(plain, {"other/net.py": b"width = 9\n"})
    version = take_version(plain)
    damaged = git(Path(version.repository), "rev-parse", f"{version.id}:{object_of}")
    other = git(Path(version.repository), "rev-parse", f"{version.id}:{object_of.replace('pkg', 'other') or 'pkg'}")
    put(object_path(version, damaged), object_path(version, other).read_bytes())

    for call in reads(plain / ".relive", version, tmp_path):
        with pytest.raises(VersionDamaged, match=r"is not what was stored; restore|can't be read .*; restore"):
            call()


def test_a_diff_of_a_damaged_version_is_an_error(plain: Path) -> None:
    old = take_version(plain)
    write(plain, {"train.py": b"lr = 2\n"})
    new = take_version(plain)
    codes = [{"version": one.id, "tree": one.tree, "repository": one.repository} for one in (old, new)]
    home = Home(plain / ".relive")
    assert "+lr = 2" in version_checkout.diff(home, *codes)
    names = [git(Path(one.repository), "rev-parse", f"{one.id}:train.py") for one in (old, new)]
    put(object_path(old, names[0]), object_path(new, names[1]).read_bytes())

    with pytest.raises(VersionDamaged, match="restore the repository"):
        version_checkout.diff(home, *codes)


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_byte_of_a_packed_repository_never_gives_wrong_text(plain: Path, tmp_path: Path, seed: int) -> None:
    for number in range(20):  # several versions of a file become deltas
        write(plain, {"train.py": b"".join(b"lr = %d\n" % (step + (step == number)) for step in range(100))})
        version = take_version(plain)
    git(Path(version.repository), "repack", "-adq")
    whole = materialised_files(version, tmp_path / "whole")
    chance = random.Random(seed)
    for path in sorted((Path(version.repository) / "objects/pack").iterdir()):
        raw = path.read_bytes()
        for _ in range(4):
            changed = bytearray(raw)
            changed[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            put(path, changed)
            with contextlib.suppress(VersionError):
                assert materialised_files(version, tmp_path / os.urandom(4).hex()) == whole
        put(path, raw)


def test_a_damaged_index_of_the_private_repository_never_gets_into_a_version(plain: Path, tmp_path: Path) -> None:
    version = take_version(plain)
    path = Path(version.repository) / "main.index"
    raw = bytearray(path.read_bytes())
    raw[12 + 45] ^= 1  # in the name of the first object
    path.write_bytes(raw)

    assert take_version(plain).tree == version.tree
    assert materialised_files(take_version(plain), tmp_path / "out") == materialised_files(version, tmp_path / "out2")
