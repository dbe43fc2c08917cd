"""Laws of the guard: the project can't be written from a replay, and linked inputs become copies."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from relive.hindsight.workers.confinement.landlock import paths_beside


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A project with a file, and a replay's folder inside it that holds a link to that file."""
    project = tmp_path / "project"
    (project / "own").mkdir(parents=True)
    (project / "data.bin").write_text("original")
    (project / "own" / "data.bin").symlink_to(project / "data.bin")
    return project


def guarded(
    project: Path, action: str, *, landlock: bool = False, copies: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs code under guard, in a process of its own: a guard can't be removed."""
    script = f"""
    import os, shutil, sqlite3, sys
    from pathlib import Path
    from relive.hindsight.workers.confinement.landlock import restrict_writes
    from relive.hindsight.workers.confinement.write_guard import WriteGuard
    project, own = Path({str(project)!r}), Path({str(project / "own")!r})
    os.chdir(own)
    if {landlock}:
        sys.exit(3) if not restrict_writes([str(project)], [str(own)]) else None
    else:
        WriteGuard([str(project)], [str(own)], copies={copies!r}).start()
    """
    code = textwrap.dedent(script) + textwrap.dedent(action)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "action",
    [
        "open(project / 'data.bin', 'w')",
        "open('../data.bin', 'a')",
        "open('../data.bin', 'r+b')",
        "os.remove(project / 'data.bin')",
        "os.rename(project / 'data.bin', own / 'moved')",
        "os.rename(own / 'data.bin', project / 'data.bin')",
        "os.mkdir(project / 'new')",
        "os.truncate(project / 'data.bin', 0)",
        "shutil.rmtree(project)",
        "os.symlink(own, project / 'link')",
        "(project / 'data.bin').write_text('changed')",
        "sqlite3.connect(project / 'data.db')",
    ],
)
def test_the_project_is_refused(places: Path, action: str) -> None:
    done = guarded(places, action)

    assert "a replay may not write to" in done.stderr
    assert (places / "data.bin").read_text() == "original"
    assert sorted(path.name for path in places.iterdir()) == ["data.bin", "own"]


@pytest.mark.parametrize(
    ("action", "content"),
    [
        ("open('data.bin', 'a').write(' and more')", "original and more"),
        ("open('data.bin', 'w').write('new')", "new"),
        ("os.remove('data.bin'); open('data.bin', 'w').write('new')", "new"),
    ],
)
def test_a_linked_input_becomes_a_copy_when_it_is_written(places: Path, action: str, content: str) -> None:
    done = guarded(places, action)

    assert done.returncode == 0, done.stderr
    assert (places / "own" / "data.bin").read_text() == content
    assert (places / "data.bin").read_text() == "original"


def test_reading_the_project_and_writing_elsewhere_are_free(places: Path, tmp_path: Path) -> None:
    done = guarded(places, f"print(open(project / 'data.bin').read()); open({str(tmp_path / 'out')!r}, 'w')")

    assert (done.stdout, done.returncode) == ("original\n", 0)
    assert (places / "own" / "data.bin").is_symlink()


def test_other_threads_are_checked_while_one_is_being_checked(places: Path) -> None:
    done = guarded(
        places,
        """
        import threading
        refused = []
        def write():
            for _ in range(200):
                try:
                    open(project / 'data.bin', 'a')
                except PermissionError:
                    refused.append(1)
        threads = [threading.Thread(target=write) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        print(len(refused))
        """,
    )

    assert done.stdout == "800\n"


@pytest.mark.parametrize(
    "action",
    [
        "os.system('echo changed > ../data.bin')",
        "os.system('rm ../data.bin')",
        "os.system('echo changed > data.bin')",  # through the link
        "os.system('git init -q ..')",
    ],
)
def test_the_kernel_stops_other_programs_too(places: Path, action: str) -> None:
    done = guarded(places, action, landlock=True)

    if done.returncode == 3:
        pytest.skip("this kernel has no Landlock")
    assert (places / "data.bin").read_text() == "original"
    assert sorted(path.name for path in places.iterdir()) == ["data.bin", "own"]


def test_the_replays_folder_stays_writable_under_landlock(places: Path) -> None:
    done = guarded(places, "os.system('echo x > out; mkdir a; mv out a/out; rm -r a; echo y > kept')", landlock=True)

    if done.returncode == 3:
        pytest.skip("this kernel has no Landlock")
    assert (places / "own" / "kept").read_text() == "y\n"


def test_everything_except_the_parents_of_the_project_is_listed(tmp_path: Path) -> None:
    for name in ("a/project/x", "a/other", "b"):
        (tmp_path / name).mkdir(parents=True)

    found = paths_beside([str(tmp_path / "a" / "project")])

    assert found is not None
    inside = {Path(path).relative_to(tmp_path).as_posix() for path in found if Path(path).is_relative_to(tmp_path)}
    assert inside == {"a/other", "b"}


@pytest.mark.parametrize(
    "action",
    [
        "open(beside, 'w')",
        "open(beside, 'a')",
        "os.remove(beside)",
        "os.replace('new.txt', beside)",
        "os.truncate(beside, 0)",
        "import torch, collections; torch.save(collections.OrderedDict(), beside)",
    ],
)
def test_files_outside_of_the_project_that_are_older_than_the_replay_are_not_changed(places: Path, action: str) -> None:
    beside = places.parent / "best.pt"
    beside.write_text("of the run")
    os.utime(beside, (1_700_000_000, 1_700_000_000))
    (places / "own" / "new.txt").write_text("new")

    done = guarded(places, f"beside = {str(beside)!r}\n{action}")

    assert "may not change" in done.stderr
    assert beside.read_text() == "of the run"


def test_new_files_outside_of_the_project_may_be_made_and_changed(places: Path) -> None:
    beside = places.parent / "made.txt"

    done = guarded(places, f"for text in 'ab':\n    open({str(beside)!r}, 'w').write(text)")

    assert done.returncode == 0, done.stderr
    assert beside.read_text() == "b"


def test_an_older_file_is_written_and_read_again_as_a_copy(places: Path) -> None:
    beside = places.parent / "log.txt"
    beside.write_text("of the run\n")
    os.utime(beside, (1_700_000_000, 1_700_000_000))
    action = f"""
    beside = {str(beside)!r}
    with open(beside, "a") as file:
        file.write("of the replay\\n")
    print(open(beside).read(), end="")
    Path("new.txt").write_text("renamed\\n")
    os.replace("new.txt", beside)
    print(Path(beside).read_text(), end="")
    """

    done = guarded(places, action, copies=str(places / "own" / "copies"))

    assert done.returncode == 0, done.stderr
    assert done.stdout == "of the run\nof the replay\nrenamed\n"
    assert beside.read_text() == "of the run\n"


def test_a_model_is_saved_to_a_copy_and_loaded_from_it(places: Path) -> None:
    pytest.importorskip("torch")
    beside = places.parent / "best.pt"
    beside.write_text("of the run")
    os.utime(beside, (1_700_000_000, 1_700_000_000))
    action = f"import torch; torch.save([7], {str(beside)!r}); print(torch.load({str(beside)!r}))"

    done = guarded(places, action, copies=str(places / "own" / "copies"))

    assert done.stdout == "[7]\n", done.stderr
    assert beside.read_text() == "of the run"
