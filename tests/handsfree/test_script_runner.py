"""A script that runs hands-free behaves as without relive, and is recorded."""

from __future__ import annotations

import json
import time

import pytest

import relive
from relive.store import Home, read_sealed
from relive.store.catalog import Index
from tests.conftest import Script

TRAINING = """
    import argparse
    import random

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    EPOCHS = 3
    weight = 5.0
    for epoch in range(EPOCHS):
        for step in range(4):
            weight -= args.lr * weight + random.random() / 100
        print(f"epoch {epoch} loss: {weight:.2f}")
"""


def runs(script: Script) -> list:
    index = Index(Home(script.home))
    found = index.runs()
    index.close()
    return [entry.record for entry in found]


@pytest.mark.long
def test_the_order_of_sets_is_the_same_in_a_replay(script: Script):
    source = """
        words = list(set("the cat sat on the mat and looked at all that it had seen so far".split()))
        weight = 1.0
        for epoch in range(3):
            for step in range(3):
                weight -= 0.1 * weight
            # probe
    """
    script.write(source)
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})
    script.write(source.replace("# probe", "print('probe:', words.index('cat') * 100 + words.index('mat'))"))
    script.relive("run", "train.py", env={"RELIVE_HOME": str(script.project.parent / "reference")})
    relive.replay("probe", home=script.home)
    replayed = relive.dataframe("probe", home=script.home)["probe"].tolist()

    assert len(set(replayed)) == 1
    assert replayed == relive.dataframe("probe", home=script.project.parent / "reference")["probe"].tolist()


def test_a_hash_seed_set_by_the_user_stays(script: Script):
    script.write("import os\nprint(os.environ['PYTHONHASHSEED'])")

    assert script.relive("run", "train.py", env={"PYTHONHASHSEED": "7"}).stdout == "7\n"


def test_loops_values_and_settings_are_recorded(script: Script):
    script.write(TRAINING)
    done = script.relive("run", "train.py", "--lr", "0.2")
    frame = relive.dataframe("lr", "loss", home=script.home)

    assert done.stdout.startswith("epoch 0 loss: ")
    assert not done.stderr
    assert frame["lr"].tolist() == [0.2] * 3
    assert frame["epoch"].tolist() == [0, 1, 2]
    assert f"{frame['loss'].iloc[-1]:.2f}" == done.stdout.split()[-1]
    (record,) = runs(script)
    assert record.config["argv"] == ["train.py", "--lr", "0.2"]
    assert {"lr", "epochs"} <= set(record.config["args"])
    assert record.code["instrumented"]["rules"] == 1


ABOUT = """
    import os, sys
    print(__name__, os.path.basename(__file__), sys.argv, __spec__, __package__)
    print(sys.path[0] == os.path.dirname(__file__))
    print(sys.modules["__main__"].__dict__ is globals())
"""


def test_a_script_sees_itself_as_python_would_have_started_it(script: Script):
    plain = script(ABOUT, "a", "--b", name="about.py")
    run = script.relive("run", "about.py", "a", "--b")

    assert run.stdout.replace("['about.py'", f"['{script.project / 'about.py'}'") == plain.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(3)", 3), ("raise ValueError('no')", 1), ("sys.exit()", 0), ("x = (", 1), ("1/0", 1)]
)
def test_a_script_ends_as_it_would_without_relive(script: Script, end: str, code: int):
    source = f"import sys\ndef f():\n    {end}\nf()\n"
    plain = script(source, check=False)
    run = script.relive("run", str(script.project / "train.py"), check=False)

    assert run.returncode == plain.returncode == code
    assert run.stderr == plain.stderr


def test_a_module_of_a_package_runs_with_relative_imports(script: Script):
    script.write("", "pack/__init__.py")
    script.write("def fit(w):\n    for step in range(2):\n        w -= 0.1 * grad(w)\n    return w\n"
                 "def grad(w):\n    return w\n", "pack/engine.py")  # fmt: skip
    script.write("from .engine import fit\nw = 1.0\nfor epoch in range(2):\n    w = fit(w)\n    print('w:', w)\n"
                 "print(__spec__.name, __package__)\n", "pack/__main__.py")  # fmt: skip
    done = script.relive("run", "-m", "pack")

    assert done.stdout.splitlines()[-1] == "pack.__main__ pack"
    assert relive.dataframe("w", home=script.home)["epoch"].tolist() == [0, 1]
    (record,) = runs(script)
    assert record.code["root"] == str(script.project)


def test_importing_relive_auto_does_the_same(script: Script):
    done = script("import relive.auto\n" + TRAINING.replace("    ", "", 1).replace("\n    ", "\n"))

    assert len(done.stdout.splitlines()) == 3
    assert relive.dataframe("loss", home=script.home)["epoch"].tolist() == [0, 1, 2]
    assert len(runs(script)) == 1


def test_off_is_off(script: Script):
    script.write(TRAINING)
    done = script.relive("run", "train.py", env={"RELIVE_OFF": "1"})

    assert len(done.stdout.splitlines()) == 3
    assert not script.home.exists()


def test_a_file_that_can_not_be_instrumented_runs_unchanged(script: Script):
    deep = "x = " + "+".join(["1"] * 1500) + "\nprint('sum:', x)\n"
    script.write(deep)
    done = script.relive("run", "train.py")

    assert done.stdout == "sum: 1500\n"
    assert "[not-instrumented]" in done.stderr
    assert runs(script)[0].outcome == "finished"


def test_a_missing_script_is_an_error_of_one_line(script: Script):
    for words in (["run", "nowhere.py"], ["run", "-m", "nowhere"], ["run"]):
        done = script.relive(*words, check=False)

        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("Error: ")


def test_explain_lists_the_checkpointed_state_and_why(script: Script):
    script.write(TRAINING)
    done = script.relive("run", "--explain", "train.py", env={"RELIVE_EVERY": "1"})

    assert "train.py:9 epoch (training): its body trains" in done.stderr
    assert "keeps weight, which the loop changes (float)" in done.stderr
    assert "was observed not to change: args" in done.stderr


def test_state_that_can_not_be_checkpointed_is_reported_once(script: Script):
    script.write("""
        import random
        stream = (number for number in range(1000))
        w = 9.0
        for epoch in range(3):
            w -= 0.1 * next(stream) * (grad := 1)
            print("w:", w)
    """)
    done = script.relive("run", "train.py", env={"RELIVE_EVERY": "1"})

    assert done.stderr.count("[state-left-out] stream can't be kept in a checkpoint (builtins.generator)") == 1


def test_a_run_is_self_checked_when_it_has_ended(script: Script):
    script.write(TRAINING)
    script.relive("run", "train.py", env={"RELIVE_EVERY": "1", "RELIVE_SELF_CHECK": "always"})
    folder = Home(script.home).run_folder(runs(script)[0].run)
    until = time.monotonic() + 60
    while not (folder / "check.json").exists() and time.monotonic() < until:
        time.sleep(0.1)

    assert json.loads(read_sealed(folder / "check.json"))["verdict"] == "exact"


def test_a_failure_to_instrument_is_a_warning(script: Script, monkeypatch: pytest.MonkeyPatch):
    from relive.handsfree import import_hook
    from relive.record.process.user_warnings import reset_warnings

    def fail(*_: object) -> None:
        raise RuntimeError("odd")

    reset_warnings()
    monkeypatch.setattr(import_hook, "instrument_loops", fail)
    with pytest.warns(match="not-instrumented"):
        code = import_hook.compile_instrumented(b"x = 1", "odd.py", import_hook.ProjectSurvey())

    assert code.co_filename == "odd.py"


def test_logged_messages_become_columns(script: Script):
    script.write("""
        import logging
        logging.basicConfig(level=logging.INFO)
        log = logging.getLogger(__name__)
        w = 3.0
        for epoch in range(2):
            w -= 0.1 * (grad := w)
            log.info("weight %.1f", w)
            log.debug(f"hidden: {w}")
            print("printed:", w)
    """)
    script.relive("run", "train.py", env={"RELIVE_SOURCES": "logging,config"})
    frame = relive.dataframe("weight", home=script.home)

    assert frame["weight"].tolist() == [2.7, 2.4]
    assert not relive.sql("select name from logs where name = 'printed'", home=script.home).size


@pytest.mark.long
def test_tensorboard_values_are_captured_and_still_written(script: Script):
    pytest.importorskip("tensorboard")
    script.write("""
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("out")
        w = 3.0
        for epoch in range(3):
            w -= 0.1 * (grad := w)
            writer.add_scalar("w/train", w, epoch)
            writer.add_scalars("w", {"a": w, "b": 1}, epoch)
            print("w/train", w)
        writer.close()
    """)
    script.relive("run", "train.py", timeout=240)
    frame = relive.dataframe("w/train", "w/a", home=script.home)

    assert frame["epoch"].tolist() == [0, 1, 2]
    assert frame["w/train"].tolist() == frame["w/a"].tolist()
    assert list((script.project / "out").glob("events*"))


def test_a_deprecated_object_of_a_library_does_not_warn_because_relive_looks_at_it(script: Script):
    script.write("""
        import torch
        import torch.distributed as dist

        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(3):
            for step in range(2):
                loss = net(torch.ones(2)).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"loss: {loss.item()}")
    """)
    done = script.relive("run", "train.py")

    assert not done.stderr
