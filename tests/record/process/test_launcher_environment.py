"""Laws of the launch: rank and key, entry point, and the project it belongs to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from relive.record.process.launcher_environment import Launch, detect_launch, find_entry, is_pool_worker, project_root

PRINT = """\
import json
from relive.record.process.launcher_environment import detect_launch
from relive.record.process.launcher_environment import find_entry
print(json.dumps({function}()._asdict()))
"""
PRINT_ENTRY, PRINT_LAUNCH = PRINT.format(function="find_entry"), PRINT.format(function="detect_launch")


def report(*command: str, cwd: Path, **variables: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git project with a script two folders down."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "src" / "pyproject.toml").touch()
    (folder / "src" / "deep" / "train.py").write_text(PRINT_ENTRY)
    return folder


# Among processes


def test_a_process_on_its_own_has_no_key() -> None:
    assert detect_launch({}) == Launch(0, 1, 0, None)
    assert detect_launch({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) == Launch(0, 1, 0, None)


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "1"},
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
         "PMIX_NAMESPACE": "prterun-1"},
        {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "PMI_JOBID": "7"},
        {"RELIVE_RANK": "3", "RELIVE_WORLD_SIZE": "8", "RELIVE_LOCAL_RANK": "1", "RANK": "0", "WORLD_SIZE": "2"},
    ],
)  # fmt: skip
def test_every_launcher_gives_rank_size_and_key(variables: dict[str, str]) -> None:
    found = detect_launch(variables)

    assert (found.rank, found.world_size, found.local_rank) == (3, 8, 1)
    assert found.key
    assert detect_launch(variables | {"RELIVE_LAUNCH": "mine"}).key == "mine"


@pytest.mark.parametrize(
    ("variables", "changed"),
    [
        ({"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "n1", "MASTER_PORT": "1"}, {"MASTER_PORT": "2"}),
        ({"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "n1"}, {"TORCHELASTIC_RESTART_COUNT": "1"}),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, {"TORCHELASTIC_RUN_ID": "b"}),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, {"SLURM_STEP_ID": "1"}),
        ({"PMI_RANK": "0", "PMI_SIZE": "8", "PMI_JOBID": "7"}, {"PMI_JOBID": "8"}),
    ],
)
def test_another_launch_or_restart_has_another_key(variables: dict[str, str], changed: dict[str, str]) -> None:
    assert detect_launch(variables).key == detect_launch(variables).key
    assert detect_launch(variables).key != detect_launch(variables | changed).key


def test_a_batch_script_that_srun_did_not_start_is_a_single_process() -> None:
    assert detect_launch({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}) == Launch()


def test_a_launch_that_cannot_be_identified_has_no_key() -> None:
    found = detect_launch({"PMI_RANK": "1", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"})

    assert (found.rank, found.world_size, found.key) == (1, 8, None)


@pytest.mark.parametrize("rank", ["", "x", "-1", "9", "²"])
def test_invalid_variables_are_ignored(rank: str) -> None:
    assert detect_launch({"RANK": rank, "WORLD_SIZE": "8"}) == Launch()


TWO_RANKS = """
import subprocess, sys
code = sys.argv[1]
for rank in "01":
    env = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none",
           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "PYTHONPATH": sys.argv[2]}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
"""


def test_ranks_of_one_agent_share_a_key_that_the_next_agent_does_not_have(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWO_RANKS, PRINT_LAUNCH, os.pathsep.join(filter(None, sys.path))]
    printed = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    (one, two), (three, four) = ([json.loads(line) for line in text.splitlines()] for text in printed)

    assert (one["rank"], two["rank"]) == (0, 1)
    assert one["key"] == two["key"] != three["key"] == four["key"]


@pytest.mark.slow
def test_real_torchrun_ranks_share_a_key_even_through_a_shell(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    wrapper = tmp_path / "wrapper.sh"
    wrapper.write_text(f'#!/bin/sh\n"{sys.executable}" "{tmp_path}/t.py"\nexit $?\n')
    wrapper.chmod(0o755)
    (tmp_path / "t.py").write_text(
        "import os\n" + PRINT_LAUNCH.replace("print(", "open(os.environ['RANK'], 'w').write(")
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--no-python", str(wrapper)]

    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=60)

    zero, one = (json.loads((tmp_path / rank).read_text()) for rank in "01")
    assert (zero["rank"], one["rank"]) == (0, 1)
    assert zero["key"] == one["key"]
    assert zero["key"].startswith("torchrun-")


POOLS = """
import multiprocessing, sys
from relive.record.process.launcher_environment import find_entry
from relive.record.process.launcher_environment import is_pool_worker

def ask(_):
    return is_pool_worker(), find_entry().script

if __name__ == "__main__":
    assert not is_pool_worker()
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(ask, [0]) == [(True, find_entry().script)], method
    assert find_entry().script == sys.argv[1]
"""


def test_workers_of_every_start_method_are_detected_and_have_their_parents_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(POOLS)

    ran = subprocess.run(
        [sys.executable, str(script), str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert not is_pool_worker()


def test_workers_of_joblib_have_the_script_that_started_them(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    script = tmp_path / "train.py"
    script.write_text(
        "from joblib import Parallel, delayed\n"
        "def ask(_):\n"
        "    from relive.record.process.launcher_environment import find_entry\n"
        "    return find_entry()\n"
        "if __name__ == '__main__':\n"
        "    (entry,) = Parallel(n_jobs=2, backend='loky')([delayed(ask)(0)])\n"
        "    print(entry.kind, entry.script, entry.module)\n"
    )

    ran = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.split() == ["script", str(script.resolve()), "None"], ran.stderr


# What was started


def test_a_script_belongs_to_the_project_around_it_whatever_the_working_directory(
    project: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    link = elsewhere / "link.py"
    link.symlink_to(project / "src" / "deep" / "train.py")
    script = str(project / "src" / "deep" / "train.py")

    for called in (script, "link.py"):
        assert report(called, cwd=elsewhere) == {
            "kind": "script", "script": script, "module": None, "root": str(project), "cwd": str(elsewhere),
        }  # fmt: skip


def test_a_module_is_identified_by_its_name(project: Path) -> None:
    package = project / "pack"
    package.mkdir()
    for name in ("__init__", "run", "__main__"):
        (package / f"{name}.py").write_text("" if name == "__init__" else PRINT_ENTRY)

    whole, part = report("-m", "pack", cwd=project), report("-m", "pack.run", cwd=project)
    assert (whole["kind"], whole["module"], whole["root"]) == ("module", "pack", str(project))
    assert (part["kind"], part["module"], part["script"]) == ("module", "pack.run", str(package / "run.py"))


def test_a_line_of_code_and_a_console_belong_to_the_folder_they_run_in(project: Path) -> None:
    console = subprocess.run(
        [sys.executable, "-i"], input=PRINT_ENTRY, cwd=project / "src", capture_output=True, text=True
    )

    for answer in (report("-c", PRINT_ENTRY, cwd=project / "src"), json.loads(console.stdout)):
        assert answer == {
            "kind": "interactive", "script": None, "module": None, "root": str(project), "cwd": str(project / "src"),
        }  # fmt: skip


@pytest.mark.parametrize("place", ["bin/train", "lib/python3/site-packages/tool/__main__.py"])
def test_an_installed_command_belongs_to_the_folder_it_runs_in(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    command = tmp_path / "venv" / place
    command.parent.mkdir(parents=True)
    command.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    main = types.ModuleType("__main__")
    main.__file__ = str(command)

    found = find_entry(main, project / "src")
    assert (found.kind, found.script, found.root) == ("command", str(command), str(project))


def test_a_notebook_is_named_by_its_server_or_editor(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    notebook = project / "src" / "look.ipynb"
    notebook.touch()
    main = types.ModuleType("__main__")

    unnamed = find_entry(main, project / "src")
    monkeypatch.setenv("JPY_SESSION_NAME", "somewhere/look.ipynb")
    by_server = find_entry(main, project / "src")
    main.__vsc_ipynb_file__ = str(notebook)  # type: ignore[attr-defined]
    by_editor = find_entry(main, "/")

    assert (unnamed.kind, unnamed.script, unnamed.root) == ("notebook", None, str(project))
    assert (by_server.kind, by_server.script, by_server.root) == ("notebook", str(notebook), str(project))
    assert (by_editor.kind, by_editor.script, by_editor.root) == ("notebook", str(notebook), str(project))


def test_a_script_started_from_a_notebook_is_a_script(project: Path) -> None:
    assert report("train.py", cwd=project / "src" / "deep", JPY_SESSION_NAME="look.ipynb")["kind"] == "script"


# The project


def test_the_root_is_gits_then_the_nearest_marker_then_the_folder_itself(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert project_root(deep) == deep

    (tmp_path / "a" / "setup.cfg").touch()
    assert project_root(deep) == tmp_path / "a"
    (tmp_path / "a" / "b" / ".relive").mkdir()
    assert project_root(deep) == tmp_path / "a" / "b"
    (tmp_path / "a" / ".git").write_text("gitdir: elsewhere\n")  # a worktree
    assert project_root(deep) == tmp_path / "a"


@pytest.mark.parametrize("marker", [".git", "pyproject.toml"])
def test_the_home_folder_is_no_project_nor_is_what_is_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    home = tmp_path / "home" / "me"
    deep = home / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for folder in (home, home.parent):
        (folder / marker).mkdir()

    assert project_root(deep) == deep
    assert project_root(home) == home


def test_a_removed_working_directory_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert find_entry(types.ModuleType("__main__")).kind == "interactive"
