"""`relive run` with a launcher in place of a script."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from relive.cli.launcher_words import hands_free_words, is_launcher
from relive.errors import NotFound
from relive.store import Home
from relive.store.catalog import Index
from tests.conftest import Script

TRAIN = """
    weight = 5.0
    for epoch in range(3):
        for step in range(3):
            weight -= 0.1 * weight
        print(f"loss: {weight}")
"""


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", "torchrun --nproc-per-node 2 -m relive run train.py --lr 1"),
        ("torchrun -m pkg.train --lr 1", "torchrun -m relive run -m pkg.train --lr 1"),
        ("accelerate launch --cpu train.py", "accelerate launch --cpu -m relive run train.py"),
        ("accelerate launch --module pkg.train", "accelerate launch -m relive run -m pkg.train"),
        ("deepspeed --num_gpus 2 train.py x", "deepspeed --num_gpus 2 --module relive run train.py x"),
        ("python3 -u train.py other.py", "python3 -u -m relive run train.py other.py"),
        ("mpirun -n 2 python train.py", "mpirun -n 2 python -m relive run train.py"),
        ("srun torchrun train.py", "srun torchrun -m relive run train.py"),
    ],
)
def test_the_script_of_a_launcher_is_started_hands_free(given: str, started: str):
    words = given.split()

    assert is_launcher(words)
    assert hands_free_words(words, is_file=lambda path: path.endswith(".py")) == started.split()


def test_a_launcher_without_a_script_is_an_error_with_the_remedy():
    with pytest.raises(NotFound, match="names no script that is here; as in: relive run torchrun"):
        hands_free_words(["torchrun", "gone.py"])


def test_accelerate_is_a_launcher_only_when_it_launches():
    assert not is_launcher(["accelerate", "env"])


def recorded(script: Script) -> list[tuple[str | None, str | None, int]]:
    index = Index(Home(script.home))
    found = [(entry.record.filename, entry.record.outcome, entry.record.world_size) for entry in index.runs()]
    index.close()
    return found


def test_python_in_front_of_the_script_changes_nothing(script: Script):
    script.write(TRAIN)
    done = script.relive("run", sys.executable, "train.py")
    by_name = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    again = script.relive("run", "python", "train.py", env=by_name)

    assert done.stdout == again.stdout
    assert recorded(script) == [("train.py", "finished", 1)] * 2


def test_a_module_has_the_name_of_its_file(script: Script):
    script.write(TRAIN, "package/train.py")
    script.relive("run", "-m", "package.train")

    assert recorded(script) == [("package/train.py", "finished", 1)]


def test_a_command_of_the_project_is_run_as_a_script(script: Script):
    script.write("", "pyproject.toml")
    script.write(TRAIN, "package/train.py")
    command = script.write(f"#!{sys.executable}\nimport package.train\n", "bin/train-it")
    command.chmod(0o755)
    env = {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(script.project)}
    done = script.relive("run", "train-it", env=env)

    assert done.stdout.count("loss:") == 3
    assert recorded(script) == [("bin/train-it", "finished", 1)]


def test_a_program_that_is_no_script_is_an_error_with_the_remedy(script: Script):
    done = script.relive("run", "ls", check=False)

    assert done.returncode == 2
    assert "name the script, as in: relive run train.py" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [("torchrun --standalone --nproc-per-node 2", 2), ("accelerate launch --cpu --num_processes 1", 1)],
)
def test_a_launched_script_is_one_run_under_its_own_name(script: Script, launcher: str, ranks: int):
    pytest.importorskip("torch")
    words = launcher.split()
    pytest.importorskip("accelerate" if words[0] == "accelerate" else "torch")
    script.write(TRAIN)
    env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    script.relive("run", *words, "train.py", env=env, timeout=300)

    assert recorded(script) == [("train.py", "finished", ranks)]
