"""Laws of what a library holds: its own counters come back by the way to each, and what it was given is found."""

from __future__ import annotations

import os
from typing import Any

import pytest

from relive.checkpoint.state.discovery import discover_state
from relive.checkpoint.state.module_parts import ModulePartsCache
from relive.checkpoint.state.trainer_state import Library, TrainerState
from relive.errors import ReliveError

torch = pytest.importorskip("torch")
LIBRARY = Library("Led", ("led",), frozenset({"settings"}))


def made(**attributes: Any) -> Any:
    """An object of the library."""
    kind = type("Part", (), {"__module__": "led.loops"})
    part = kind()
    vars(part).update(attributes)
    return part


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.outputs: list[float] = []
        self._calls = 0

    def forward(self, x: Any) -> Any:
        self._calls += 1
        self.outputs.append(float(x.sum()))
        return self.layer(x)


class Average:
    """With a state_dict of its own, as many have."""

    def __init__(self) -> None:
        self.total = 0.0

    def update(self, value: float) -> None:
        self.total += value

    def state_dict(self) -> dict[str, float]:
        return {"total": self.total}


def test_counters_come_back_into_the_same_objects() -> None:
    history: list[dict[str, float]] = [{"loss": 1.0}]
    progress = made(epochs=3, history=history, best=torch.tensor(0.5), begun_time=7.0)
    trainer = made(progress=progress, settings=made(lr=0.1), parts=[made(count=1), made(count=2)])
    kept = TrainerState(LIBRARY, trainer, reads_own=False).state_dict()
    progress.epochs, progress.best, progress.begun_time = 9, torch.tensor(0.1), 8.0
    history.append({"loss": 0.2})
    trainer.parts[1].count = 5
    trainer.settings.lr = 0.7
    TrainerState(LIBRARY, trainer, reads_own=False).load_state_dict(kept)

    assert (progress.epochs, float(progress.best), trainer.parts[1].count) == (3, 0.5, 2)
    assert progress.history is history
    assert history == [{"loss": 1.0}]
    assert (progress.begun_time, trainer.settings.lr) == (8.0, 0.7)  # clocks and settings are no state


def test_what_the_library_was_given_is_found_and_the_rest_is_refused() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    held = TrainerState(LIBRARY, made(strategy=made(optimizers=[optimizer]), model=net), reads_own=False)

    assert held.holds([net, optimizer])
    assert not held.holds([Net()])


def test_a_generator_that_is_made_late_is_made_by_the_restore() -> None:
    sampler = made(generator=torch.Generator().manual_seed(5))
    kept = TrainerState(LIBRARY, made(sampler=sampler), reads_own=False).state_dict()
    expected = torch.rand(2, generator=sampler.generator)
    sampler.generator = None
    TrainerState(LIBRARY, made(sampler=sampler), reads_own=False).load_state_dict(kept)

    assert torch.equal(torch.rand(2, generator=sampler.generator), expected)


def test_paths_into_the_folder_of_the_run_lead_into_that_of_the_replay(tmp_path: Any, monkeypatch: Any) -> None:
    trainer = made(path=os.path.join(os.getcwd(), "out", "best.ckpt"), other="/elsewhere")
    kept = TrainerState(LIBRARY, trainer, reads_own=False).state_dict()
    monkeypatch.chdir(tmp_path)
    TrainerState(LIBRARY, trainer, reads_own=False).load_state_dict(kept)

    assert trainer.path == os.path.join(os.getcwd(), "out", "best.ckpt")
    assert trainer.other == "/elsewhere"


def test_a_part_that_is_gone_is_told() -> None:
    kept = TrainerState(LIBRARY, made(loop=made(count=1)), reads_own=False).state_dict()

    with pytest.raises(ReliveError, match=r"no trainer\.loop now"):
        TrainerState(LIBRARY, made(), reads_own=False).load_state_dict(kept)


def test_what_the_users_modules_gather_is_near() -> None:
    net = Net()
    net(torch.ones(1, 2))
    found = discover_state([], {"model": net}, {}, modules=ModulePartsCache())
    subject = found.subjects["model (attributes)"]

    assert dict(subject._parts(None)) == {"outputs": [2.0], "_calls": 1}  # type: ignore[attr-defined]


def test_an_object_of_the_users_with_a_state_dict_is_near() -> None:
    meter = Average()
    meter.update(1.0)
    found = discover_state(
        [], {"trainer": TrainerState(LIBRARY, made(meter=meter), reads_own=False)}, {}, modules=ModulePartsCache()
    )

    assert found.things["trainer.meter"] is meter


@pytest.mark.parametrize("where", ["at first", "later", "deep inside"])
def test_a_module_of_the_users_that_joins_is_near(where: str) -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model, modules = torch.nn.Sequential(inner), ModulePartsCache()
    if where != "at first":
        discover_state([], {"model": model}, {}, modules=modules)
    joining = Net()
    joining(torch.ones(1, 2))
    (inner if where == "deep inside" else model).append(joining)

    found = discover_state([], {"model": model}, {}, modules=modules)

    assert [thing for thing in found.things.values() if thing is joining]
