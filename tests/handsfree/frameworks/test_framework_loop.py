"""Framework-run trainings: loops and values, and questions that are asked later.

Run with transformers 5.22, Lightning 2.6 and Keras 3.15; where they are not installed, there is nothing to test.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import relive
from relive.hindsight import Question, ReplaySession, plan_replay
from relive.store import Home
from tests.conftest import Script
from tests.handsfree.styles import Style, check, record, values

pytestmark = pytest.mark.slow
FRAMEWORK_SCRIPTS = [Style("led_transformers.py"), Style("led_lightning.py")]

TRANSFORMERS = """
    import torch
    from transformers import Trainer, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x, labels=None):
            out = self.layer(x)
            loss = ((out - labels) ** 2).mean()
            # probe
            return {"loss": loss, "logits": out}

    torch.manual_seed(0)
    rows = [{"x": torch.randn(3), "labels": torch.randn(1)} for _ in range(12)]
    args = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True,
    )
    Trainer(model=Net(), args=args, train_dataset=rows).train()
"""
LIGHTNING = """
    import torch
    import lightning.pytorch as pl

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch, at):
            x, y = batch
            loss = ((self.layer(x) - y) ** 2).mean()
            # probe
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(12, 3), torch.randn(12, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Net(), loader)
"""
KERAS = """
    import os
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np

    class Show(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            loss = logs["loss"]
            # probe

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    model.fit(rng.normal(size=(12, 3)), rng.normal(size=(12, 1)), batch_size=4, epochs=2, verbose=0, callbacks=[Show()])
"""


@pytest.mark.parametrize(
    ("library", "source", "count"),
    [("transformers", TRANSFORMERS, 6), ("lightning", LIGHTNING, 6), ("keras", KERAS, 2)],
    ids=["transformers", "lightning", "keras"],
)
def test_a_framework_run_has_loops_values_and_answers(library: str, source: str, count: int, script: Script):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    script.write(source)
    script.relive("run", "train.py", timeout=600, env={"OMP_NUM_THREADS": "1"})
    recorded = relive.dataframe("loss", home=script.home)
    script.write(source.replace("# probe", 'print("probe:", float(loss))'))
    (answer,) = relive.replay("probe", home=script.home).runs
    probed = relive.dataframe("probe", home=script.home)

    assert len(recorded) == count
    assert sorted(set(recorded["epoch"])) == [0, 1]
    assert (answer.is_verified, answer.missing) == (True, [])
    assert probed["epoch"].tolist() == [0, 0, 0, 1, 1, 1]
    assert probed["step"].tolist() == [0, 1, 2] * 2
    if library == "lightning":
        assert probed["probe"].tolist() == recorded["loss"].tolist()


DEFAULTS = {
    "transformers": TRANSFORMERS.replace(
        'report_to=[], save_strategy="no",', 'save_strategy="epoch", save_total_limit=1,'
    )
    .replace("use_cpu=True, disable_tqdm=True,", 'use_cpu=True, eval_strategy="epoch",')
    .replace("train_dataset=rows)", "train_dataset=rows, eval_dataset=rows[:6])"),
    "lightning": LIGHTNING.replace(
        """logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)""",
        "log_every_n_steps=1)",
    ),
    "accelerate": """
    import torch
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(12, 3), torch.randn(12, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            with accelerator.accumulate(net):
                loss = torch.nn.functional.mse_loss(net(x), y)
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            # probe
            print(f"loss: {loss.item()}")
    accelerator.save(net.state_dict(), "net.pt")
""",
}


@pytest.mark.parametrize("library", list(DEFAULTS))
def test_a_framework_with_defaults_is_resumed_late_and_its_files_stay_unchanged(library: str, script: Script):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    env, reference = {"OMP_NUM_THREADS": "1", "RELIVE_EVERY": "1"}, script.project.parent / "reference"
    with_probe = DEFAULTS[library].replace("# probe", 'print("probe:", float(loss))')
    script.write(DEFAULTS[library])
    done = script.relive("run", "train.py", timeout=600, env=env)
    written = _content(script.project)
    script.write(with_probe)
    with ReplaySession(Home(script.home)) as session:
        plan = plan_replay(session, Question(("probe",), "epoch = 1", workers=1))
        (case,) = plan.cases
    (answer,) = relive.replay("probe", where="epoch = 1", workers=1, home=script.home).runs
    after = _content(script.project)
    script.relive("run", "train.py", timeout=600, env={**env, "RELIVE_HOME": str(reference)})
    expected = [one for one in values(reference, "probe") if one[1][0] == 1]

    assert "state-left-out" not in done.stderr
    assert (case.plan.resume, case.plan.iterations) == ("resume", 1)
    assert (answer.is_verified, answer.missing) == (True, [])
    assert values(script.home, "probe") == expected != []
    assert {**after, "train.py": b""} == {**written, "train.py": b""}
    assert len(written) > 1


def _content(project: Path) -> dict[str, bytes]:
    files = [file for file in project.rglob("*") if file.is_file() and ".relive" not in file.parts]
    return {str(file.relative_to(project)): file.read_bytes() for file in files}


def _needs(style: Style) -> None:
    library = style.name.removeprefix("led_").removesuffix(".py")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize("style", FRAMEWORK_SCRIPTS, ids=lambda style: style.name)
def test_a_framework_run_answers_at_every_depth(style: Style, tmp_path: Path):
    _needs(style)
    found = check(style, tmp_path, ("before", "inside", "epoch", "after"))

    assert "unverified" not in found.values()
    assert {found["epoch"], found["inside"]} <= {"proven", "reproduced"}


@pytest.mark.parametrize("style", FRAMEWORK_SCRIPTS, ids=lambda style: style.name)
def test_late_epochs_are_replayed_without_the_early_ones(style: Style, tmp_path: Path):
    _needs(style)
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    style.put(project, with_probes=False)
    record(style, project, home)
    style.put(project, with_probes=True)
    record(style, project, tmp_path / "reference")
    question = Question(("probe_inside",), "epoch >= 3", workers=1)
    with ReplaySession(Home(home)) as session:
        plan = plan_replay(session, question)
        (case,) = plan.cases
    (answer,) = relive.replay("probe_inside", where="epoch >= 3", workers=1, home=home).runs
    expected = [value for value in values(tmp_path / "reference", "probe_inside") if not value[1] or value[1][0] >= 3]

    assert case.plan.resume == "resume"
    assert [visit.iteration for visit in case.plan.segments[0].visits] == [3, 4]
    assert (answer.is_verified, answer.missing) == (True, [])
    assert values(home, "probe_inside") == expected


@pytest.mark.parametrize("style", FRAMEWORK_SCRIPTS, ids=lambda style: style.name)
def test_a_question_about_the_code_after_the_training_does_not_train_again(style: Style, tmp_path: Path):
    _needs(style)
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    style.put(project, with_probes=False)
    record(style, project, home)
    style.put(project, with_probes=True)
    with ReplaySession(Home(home)) as session:
        plan = plan_replay(session, Question(("probe_after",)))
        (case,) = plan.cases

    assert case.plan.depth == "suffix"
    assert case.plan.iterations == 0
