"""Taking a version leaves the user's repository as it was, byte for byte, and stores what the working tree holds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.store.versions.code_versions import materialise, take

GLOBAL_CONFIG = """
[user]
    name = Ada
    email = ada@example.com
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
"""


@pytest.fixture(autouse=True)
def own_git_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gitconfig"
    config.write_text(GLOBAL_CONFIG)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def git(folder: Path, *args: str, fails: bool = False) -> str:
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    done = subprocess.run(["git", *args], cwd=folder, env=env, capture_output=True, text=True, errors="surrogateescape")
    assert fails or done.returncode == 0, done.stderr
    return done.stdout


def project(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "train.py").write_text("lr = 1\n")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "net.py").write_text("width = 8\n")
    (folder / "old.py").write_text("gone = True\n")
    (folder / ".gitignore").write_text("*.log\n.relive/\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def edit(root: Path) -> Path:
    (root / "train.py").write_text("lr = 2\n")
    git(root, "add", "train.py")
    (root / "train.py").write_text("lr = 3\n")
    (root / "old.py").unlink()
    (root / "new.py").write_text("new = 1\n")
    (root / "run.log").write_text("ignored\n")
    return root


def clean(tmp_path: Path) -> Path:
    return project(tmp_path / "p")


def everything_at_once(tmp_path: Path) -> Path:
    root = project(tmp_path / "p")
    (root / "pkg" / "net.py").write_text("width = 9\n")
    git(root, "stash")
    (root / "tool.sh").write_text("exit 0\n")
    (root / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("pkg/net.py")
    git(root, "tag", "-a", "v1", "-m", "one")
    git(root, "reset", "--quiet", "--hard")  # leaves ORIG_HEAD
    git(root, "rm", "--quiet", "--cached", "pkg/net.py")
    return edit(root)


def merge_conflict(tmp_path: Path) -> Path:
    root = project(tmp_path / "p")
    git(root, "checkout", "--quiet", "-b", "side")
    (root / "train.py").write_text("lr = 10\n")
    (root / "old.py").unlink()
    git(root, "commit", "--quiet", "-a", "-m", "side")
    git(root, "checkout", "--quiet", "main")
    (root / "train.py").write_text("lr = 20\n")
    (root / "old.py").write_text("gone = False\n")
    git(root, "commit", "--quiet", "-a", "-m", "main")
    git(root, "merge", "side", fails=True)
    assert "<<<<<<<" in (root / "train.py").read_text()
    return root


def linked_worktree(tmp_path: Path) -> Path:
    root = project(tmp_path / "p")
    git(root, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    edit(root)
    (tmp_path / "linked" / "train.py").write_text("lr = 4\n")
    return tmp_path / "linked"


def detached_shallow_clone(tmp_path: Path) -> Path:
    origin = edit(project(tmp_path / "origin"))
    git(origin, "commit", "--quiet", "-a", "-m", "second")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{origin}", "p")
    git(tmp_path / "p", "checkout", "--quiet", "--detach")
    (tmp_path / "p" / "train.py").write_text("lr = 5\n")
    return tmp_path / "p"


def submodule(tmp_path: Path) -> Path:
    library = project(tmp_path / "library")
    root = project(tmp_path / "p")
    git(root, "submodule", "--quiet", "add", str(library), "lib")
    git(root, "commit", "--quiet", "-m", "with lib")
    (root / "lib" / "train.py").write_text("lr = 6\n")
    git(root / "lib", "commit", "--quiet", "-a", "-m", "ahead of what the parent knows")
    (root / "lib" / "loose.py").write_text("")
    return root


def unborn_head(tmp_path: Path) -> Path:
    root = tmp_path / "p"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "staged.py").write_text("1\n")
    git(root, "add", "staged.py")
    (root / "staged.py").write_text("2\n")
    (root / "loose.py").write_text("3\n")
    return root


def branch_called_relive(tmp_path: Path) -> Path:
    root = project(tmp_path / "p")
    git(root, "checkout", "--quiet", "-b", "relive")
    return edit(root)


def branch_of_theirs_where_ours_would_be(tmp_path: Path) -> Path:
    root = project(tmp_path / "p")
    git(root, "branch", "relive/main")
    return edit(root)


def hooks_that_fail(tmp_path: Path) -> Path:
    root = edit(project(tmp_path / "p"))
    for name in ("pre-commit", "reference-transaction", "post-index-change", "post-checkout", "pre-auto-gc"):
        hook = root / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} ran | tee -a '{root}/hook-ran.txt'\nexit 1\n")
        hook.chmod(0o755)
    return root


def signing_and_strange_settings(tmp_path: Path) -> Path:
    root = edit(project(tmp_path / "p"))
    settings = {
        "commit.gpgSign": "true",
        "gpg.program": "/bin/false",
        "core.logAllRefUpdates": "always",
        "core.splitIndex": "true",
        "core.untrackedCache": "true",
        "core.fsmonitor": "/bin/false",
        "status.showUntrackedFiles": "no",
        "status.showStash": "true",
        "diff.ignoreSubmodules": "all",
        "gc.auto": "1",
        "i18n.commitEncoding": "latin1",
    }
    for name, value in settings.items():
        git(root, "config", name, value)
    return root


def sparse_checkout(tmp_path: Path) -> Path:
    root = project(tmp_path / "p")
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index")
    assert not (root / "pkg").exists()
    (root / "train.py").write_text("lr = 7\n")
    return root


def packed_refs_and_objects(tmp_path: Path) -> Path:
    root = edit(project(tmp_path / "p"))
    git(root, "gc", "--quiet")
    return root


SCENES: list[Callable[[Path], Path]] = [
    clean,
    everything_at_once,
    merge_conflict,
    linked_worktree,
    detached_shallow_clone,
    submodule,
    unborn_head,
    branch_called_relive,
    branch_of_theirs_where_ours_would_be,
    hooks_that_fail,
    signing_and_strange_settings,
    sparse_checkout,
    packed_refs_and_objects,
]

in_every_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every file below a folder with its bytes and times, but for git's objects and our own refs and home."""
    found: dict[str, tuple[object, ...]] = {}
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in (".relive", "objects")]
        for name in names:
            path = Path(at, name)
            facts = path.lstat()
            content = os.readlink(path) if path.is_symlink() else path.read_bytes()
            found[str(path)] = (content, facts.st_mode, facts.st_mtime_ns, facts.st_ino)
    return {path: facts for path, facts in found.items() if not is_ours(path)}


def is_ours(path: str) -> bool:
    """A ref of theirs in the same place is looked after by `say`, which knows who made it."""
    return "/.git/refs/heads/relive/" in path or "/.git/refs/relive-versions/" in path


def say(root: Path) -> list[str]:
    """What git tells the user."""
    answers = [
        git(root, "status", "--porcelain=v2", "--branch", "--show-stash", "--ignored"),
        git(root, "stash", "list"),
        git(root, "diff"),
        git(root, "diff", "--cached"),
        git(root, "reflog", "--all"),
        git(root, "config", "--list", "--show-origin"),
        git(root, "worktree", "list", "--porcelain"),
    ]
    refs = git(root, "for-each-ref", "--format=%(refname) %(objectname) %(committername)")
    return [*answers, *(ref for ref in refs.splitlines() if not ref.endswith(" relive"))]


def held(root: Path) -> dict[str, tuple[int, bytes]]:
    """What the working tree holds, found another way: tracked and untracked files that are on disk and not ignored."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    paths = {name: root / name for name in listed if name}
    return {name: content(path) for name, path in paths.items() if path.is_symlink() or path.is_file()}


def content(path: Path) -> tuple[int, bytes]:
    if path.is_symlink():
        return 0o777, os.fsencode(os.readlink(path))
    return path.stat().st_mode & 0o100, path.read_bytes()


@pytest.mark.long
@in_every_scene
def test_taking_a_version_touches_nothing_of_the_users(scene: Callable[[Path], Path], tmp_path: Path) -> None:
    root = scene(tmp_path)
    (root / ".relive").mkdir()
    said, before = say(root), snapshot(tmp_path)

    version = take(root, home=root / ".relive")
    again = take(root, home=root / ".relive")

    assert snapshot(tmp_path) == before
    assert say(root) == said
    assert again == version
    assert list((root / ".relive").iterdir()) == []
    git(root, "fsck", "--strict")


@pytest.mark.long
@in_every_scene
def test_a_version_holds_what_the_working_tree_held(scene: Callable[[Path], Path], tmp_path: Path) -> None:
    root = scene(tmp_path)
    expected = held(root)
    if scene is sparse_checkout:  # what the user chose not to have on disk is in the version all the same
        expected["pkg/net.py"] = (0, b"width = 8\n")

    version = take(root, home=root / ".relive")
    materialise(version.id, repository=Path(version.repository), into=tmp_path / "out")

    out = tmp_path / "out"
    files = [path for path in out.rglob("*") if path.is_symlink() or path.is_file()]
    assert {str(path.relative_to(out)): content(path) for path in files} == expected
    assert not (root / "hook-ran.txt").exists()
    assert version.dirty == (scene is not clean)
    assert (version.head or "") == git(root, "rev-parse", "--quiet", "--verify", "HEAD", fails=True).strip()


def test_a_submodule_is_recorded_by_its_commit(tmp_path: Path) -> None:
    root = submodule(tmp_path)

    version = take(root, home=root / ".relive")

    entry = git(root, "ls-tree", version.id, "lib")
    assert entry.split()[:3] == ["160000", "commit", git(root / "lib", "rev-parse", "HEAD").strip()]


def test_a_run_started_from_a_hook_leaves_the_commit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = edit(project(tmp_path / "p"))
    other = project(tmp_path / "other")
    before = snapshot(other)
    for name, value in {"GIT_DIR": ".git", "GIT_WORK_TREE": ".", "GIT_INDEX_FILE": ".git/index"}.items():
        monkeypatch.setenv(name, str(other / value))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "someone@example.com")

    version = take(root, home=root / ".relive")

    assert version.root == str(root)
    assert snapshot(other) == before
    assert not (tmp_path / "nowhere").exists()
