"""One line in a script that is run by `python train.py`: `callbacks=[ReliveCallback()]`. Questions are asked later.

Run with transformers 5.22, Lightning 2.6 and Keras 3.15; where they are not installed, there is nothing to test.
"""

from __future__ import annotations

import importlib.util

import pytest

import relive
from relive.hindsight import Question, ReplaySession, plan_replay
from relive.store import Home
from tests.conftest import Script
from tests.handsfree.styles import values

pytestmark = pytest.mark.slow

TRANSFORMERS = """
    import relive
    import torch
    from relive.integrations.transformers import ReliveCallback
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            self.drop = torch.nn.Dropout(0.3)

        def forward(self, x, labels=None):
            out = self.drop(self.layer(x))
            loss = ((out - labels) ** 2).mean()
            # probe module: loss.item() if self.training else -1.0
            return {"loss": loss, "logits": out}

    class Watch(TrainerCallback):
        def on_epoch_end(self, args, state, control, model=None, **more):
            # probe callback: float(model.layer.weight.sum())
            pass

    def compute_metrics(predictions):
        error = float(abs(predictions.predictions - predictions.label_ids).mean())
        # probe metrics: error
        return {"error": error}

    torch.manual_seed(0)
    rows = [{"x": torch.randn(3), "labels": torch.randn(1)} for _ in range(12)]
    args = TrainingArguments(
        "out", num_train_epochs=4, per_device_train_batch_size=4, logging_steps=1, report_to=[], save_strategy="no",
        eval_strategy="epoch", use_cpu=True, disable_tqdm=True,
    )
    trainer = Trainer(
        model=Net(), args=args, train_dataset=rows, eval_dataset=rows[:6], compute_metrics=compute_metrics,
        callbacks=[Watch(), ReliveCallback()],
    )
    trainer.train()
    # probe after: float(trainer.model.layer.weight.sum())
"""
LIGHTNING = """
    import lightning.pytorch as pl
    import relive
    import torch
    from relive.integrations.lightning import ReliveCallback

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            self.drop = torch.nn.Dropout(0.3)

        def training_step(self, batch, at):
            x, y = batch
            loss = ((self.drop(self.layer(x)) - y) ** 2).mean()
            # probe module: loss.item()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, at):
            x, y = batch
            error = (self.layer(x) - y).abs().mean()
            # probe metrics: error.item()
            self.log("error", error)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.1)

    class Watch(pl.Callback):
        def on_train_epoch_end(self, trainer, module):
            # probe callback: float(module.layer.weight.sum())
            pass

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(12, 3), torch.randn(12, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    held = torch.utils.data.DataLoader(data, batch_size=6)
    trainer = pl.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Watch(), ReliveCallback()],
    )
    net = Net()
    trainer.fit(net, loader, held)
    # probe after: float(net.layer.weight.sum())
"""
KERAS = """
    import os
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np
    import relive
    from relive.integrations.keras import ReliveCallback

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            # probe callback: float(logs["loss"])
            pass

    class Scaled(keras.layers.Layer):
        def call(self, x):
            return x * 2

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(4), Scaled(), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    model.fit(
        rng.normal(size=(12, 3)), rng.normal(size=(12, 1)), batch_size=4, epochs=4, verbose=0,
        callbacks=[Watch(), ReliveCallback()],
    )
    # probe after: float(model.get_weights()[0].sum())
"""
SOURCES = {"transformers": TRANSFORMERS, "lightning": LIGHTNING, "keras": KERAS}
CASES = [
    *(("transformers", where) for where in ("module", "metrics", "callback", "after")),
    *(("lightning", where) for where in ("module", "metrics", "callback", "after")),
    *(("keras", where) for where in ("callback", "after")),
]


def _asked(source: str, where: str) -> str:
    lines = source.splitlines(keepends=True)
    mark = f"# probe {where}: "
    return "".join(
        line.replace(mark, "relive.log('probe', ").rstrip("\n") + ")\n" if mark in line else line for line in lines
    )


def _needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize(("library", "where"), CASES)
def test_a_replay_gives_what_logging_then_would_have_given(library: str, where: str, script: Script):
    _needs(library)
    env = {"OMP_NUM_THREADS": "1", "RELIVE_EVERY": "1"}
    script(SOURCES[library], timeout=600, env=env)
    asked = _asked(SOURCES[library], where)
    reference = script.project.parent / "reference"
    script(asked, timeout=600, env={**env, "RELIVE_HOME": str(reference)})
    (answer,) = relive.replay("probe", home=script.home).runs

    assert answer.is_verified, answer
    assert not answer.missing
    assert values(script.home, "probe") == values(reference, "probe") != []


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_the_one_line_keeps_checkpoints_of_epochs(library: str, script: Script):
    _needs(library)
    env = {"OMP_NUM_THREADS": "1", "RELIVE_EVERY": "1"}
    script(SOURCES[library], timeout=600, env=env)
    script.write(_asked(SOURCES[library], "module"))
    with ReplaySession(Home(script.home)) as session:
        plan = plan_replay(session, Question(("probe",), "epoch = 3", workers=1))
        (case,) = plan.cases

    assert case.plan.resume == "resume"
    assert [visit.iteration for visit in case.plan.segments[0].visits] == [3]
