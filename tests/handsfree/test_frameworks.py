"""Trainings whose loop is a library's: loops and values, and questions that are asked later.

Run with transformers 5.22, Lightning 2.6 and Keras 3.15; where they are not installed, there is nothing to test.
"""

from __future__ import annotations

import importlib.util

import pytest

import relive
from tests.conftest import Script

pytestmark = pytest.mark.slow

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
def test_a_framework_has_loops_values_and_answers(library: str, source: str, count: int, script: Script):
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
    assert answer.verdict == "exact"
    assert probed["epoch"].tolist() == [0, 0, 0, 1, 1, 1]
    assert probed["step"].tolist() == [0, 1, 2] * 2
    if library == "lightning":
        assert probed["probe"].tolist() == recorded["loss"].tolist()
