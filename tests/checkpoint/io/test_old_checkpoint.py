"""Laws of checkpoints that earlier releases wrote: what they hold can be restored into live objects for ever.

`old_checkpoint/` holds the last checkpoint of a training with one object of each kind, as an earlier release wrote it.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive.checkpoint.io import open_checkpoint
from relive.errors import NotFound, ReliveError
from relive.store.chunks import Chunks, Packs

torch = pytest.importorskip("torch")
KEPT = Path(__file__).parent / "old_checkpoint"
EXPECTED = json.loads((KEPT / "expected.json").read_text())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Any:
    folder = Path(shutil.copytree(KEPT / "chunks", tmp_path / "chunks"))
    return open_checkpoint(EXPECTED["manifest"], Chunks(folder), Packs(folder / "packs"))


def net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))


def test_a_model_is_restored_with_its_modes_and_frozen_parameters(checkpoint: Any) -> None:
    model = net()
    weight = model[2].weight

    checkpoint.restore({"model": model}, random=False)

    assert model[2].weight is weight
    assert weight.tolist() == EXPECTED["weight"]
    assert model[1].running_mean.tolist() == EXPECTED["mean"]
    assert [layer.training for layer in model] == [True, False, True]
    assert [one.requires_grad for one in model.parameters()] == [False, True, True, True, True, True]


def test_an_optimizer_and_its_scheduler_are_restored(checkpoint: Any) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    checkpoint.restore({"optimizer": optimizer, "scheduler": scheduler}, random=False)

    assert optimizer.state[model[2].weight]["exp_avg"].tolist() == EXPECTED["exp_avg"]
    assert optimizer.param_groups[0]["lr"] == EXPECTED["lr"]
    assert scheduler.last_epoch == 2


def test_arrays_are_restored_in_place(checkpoint: Any) -> None:
    weights, tensor = np.zeros(4), torch.zeros(5)

    checkpoint.restore({"weights": weights, "tensor": tensor}, random=False)

    assert weights.tolist() == EXPECTED["weights"]
    assert tensor.tolist() == EXPECTED["tensor"]
    with pytest.raises(ReliveError, match="another type or shape"):
        checkpoint.restore({"weights": np.zeros(3)}, random=False)


def test_generators_go_on_where_they_were(checkpoint: Any) -> None:
    draws, rng, legacy, python = torch.Generator(), np.random.default_rng(), np.random.RandomState(), random.Random()

    checkpoint.restore({"draws": draws, "rng": rng, "legacy": legacy, "python": python}, random=True)

    assert torch.rand(2, generator=draws).tolist() == EXPECTED["draws"]
    assert rng.random(2).tolist() == EXPECTED["rng"]
    assert legacy.rand(2).tolist() == EXPECTED["legacy"]
    assert python.random() == EXPECTED["python"]
    assert float(torch.rand(1)) == EXPECTED["global"]


def test_containers_are_refilled_with_shared_parts_and_references_to_other_objects(checkpoint: Any) -> None:
    model, state = net(), {"gone": 1}

    checkpoint.restore({"model": model, "state": state}, random=False)
    sparse = state.pop("sparse")

    assert state == {
        "step": 2, "queue": deque([1, 0, 1]), "pair": (1, b"\x00"), "a": [1, 0, 1], "b": [1, 0, 1],
        "order": OrderedDict(z=1, a=2), "seen": {1, 2}, "big": 10**30, "net": model, "nan": float("inf"),
    }  # fmt: skip
    assert state["a"] is state["b"]
    assert torch.equal(sparse.to_dense(), torch.eye(2))


def test_a_reference_to_an_object_that_is_not_given_is_an_error(checkpoint: Any) -> None:
    with pytest.raises(ReliveError, match="refers to 'model', which is not restored with it"):
        checkpoint.restore({"state": {}}, random=False)


class Meter:
    def __init__(self) -> None:
        self.total, self.best = -1.0, None
        self.recent: list[float] = []
        self.table = np.zeros(3)


def test_objects_are_restored_attribute_by_attribute(checkpoint: Any) -> None:
    meter = Meter()
    recent, table = meter.recent, meter.table
    estimator = type("Regressor", (), {})()

    checkpoint.restore({"meter": meter, "estimator": estimator}, random=False)

    assert (meter.total, meter.recent, meter.best) == (EXPECTED["total"], [0.5, 1.5], torch.tensor([1.5]))
    assert meter.table.tolist() == [2.0, 0.0, 0.0]
    assert (meter.recent is recent, meter.table is table) == (True, True)
    assert (estimator.coef_.tolist(), estimator.calls) == (EXPECTED["coef"], 2)


def test_names_variables_and_single_tensors_can_be_read(checkpoint: Any) -> None:
    found = checkpoint.variables()

    assert checkpoint.named()[:3] == ["model", "optimizer", "scheduler"]
    assert checkpoint.discovered() == ["meter", "estimator"]
    assert set(checkpoint.named()) < set(checkpoint.names())
    assert {name: found[name] for name in ("last", "epoch", "shared")} == {"last": 1.0, "epoch": 1, "shared": [1, 0, 1]}
    assert {key: value.tolist() for key, value in checkpoint.state("model", ["2.weight"]).items()} == {
        "2.weight": EXPECTED["weight"]
    }
    assert checkpoint.extra("variables:last") == 1.0
    assert checkpoint.size_bytes > 1000
    with pytest.raises(NotFound, match=r"it has 0\.weight"):
        checkpoint.state("model", ["9.weight"])
    with pytest.raises(NotFound, match="it has model"):
        checkpoint.restore({"absent": []}, random=False)


def test_another_model_is_refused(checkpoint: Any) -> None:
    with pytest.raises(ReliveError, match="build the same model first"):
        checkpoint.restore({"model": torch.nn.Linear(3, 4)}, random=False)
    with pytest.raises(ReliveError, match="build the same one first"):
        checkpoint.restore({"optimizer": torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])}, random=False)
