"""Laws of trainer state: a library's own counters are restored by path, and the objects it was given are discovered."""

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


def library_object(**attributes: Any) -> Any:
    """Returns an object of the library's class."""
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
    """An object of the project with a state_dict."""

    def __init__(self) -> None:
        self.total = 0.0

    def update(self, value: float) -> None:
        self.total += value

    def state_dict(self) -> dict[str, float]:
        return {"total": self.total}


def test_counters_are_restored_into_the_same_objects() -> None:
    history: list[dict[str, float]] = [{"loss": 1.0}]
    progress = library_object(epochs=3, history=history, best=torch.tensor(0.5), begun_time=7.0)
    trainer = library_object(
        progress=progress, settings=library_object(lr=0.1), parts=[library_object(count=1), library_object(count=2)]
    )
    captured = TrainerState(LIBRARY, trainer, reads_own=False).state_dict()
    progress.epochs, progress.best, progress.begun_time = 9, torch.tensor(0.1), 8.0
    history.append({"loss": 0.2})
    trainer.parts[1].count = 5
    trainer.settings.lr = 0.7
    TrainerState(LIBRARY, trainer, reads_own=False).load_state_dict(captured)

    assert (progress.epochs, float(progress.best), trainer.parts[1].count) == (3, 0.5, 2)
    assert progress.history is history
    assert history == [{"loss": 1.0}]
    assert (progress.begun_time, trainer.settings.lr) == (8.0, 0.7)  # clocks and settings are no state


def test_objects_that_the_library_was_given_are_found() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state = TrainerState(
        LIBRARY, library_object(strategy=library_object(optimizers=[optimizer]), model=net), reads_own=False
    )

    assert state.holds([net, optimizer])
    assert not state.holds([Net()])


def test_a_generator_that_does_not_exist_yet_is_created_by_the_restore() -> None:
    sampler = library_object(generator=torch.Generator().manual_seed(5))
    captured = TrainerState(LIBRARY, library_object(sampler=sampler), reads_own=False).state_dict()
    expected = torch.rand(2, generator=sampler.generator)
    sampler.generator = None
    TrainerState(LIBRARY, library_object(sampler=sampler), reads_own=False).load_state_dict(captured)

    assert torch.equal(torch.rand(2, generator=sampler.generator), expected)


def test_paths_into_the_folder_of_the_run_are_relocated_to_that_of_the_replay(tmp_path: Any, monkeypatch: Any) -> None:
    trainer = library_object(path=os.path.join(os.getcwd(), "out", "best.ckpt"), other="/elsewhere")
    captured = TrainerState(LIBRARY, trainer, reads_own=False).state_dict()
    monkeypatch.chdir(tmp_path)
    TrainerState(LIBRARY, trainer, reads_own=False).load_state_dict(captured)

    assert trainer.path == os.path.join(os.getcwd(), "out", "best.ckpt")
    assert trainer.other == "/elsewhere"


def test_a_missing_part_is_an_error() -> None:
    captured = TrainerState(LIBRARY, library_object(loop=library_object(count=1)), reads_own=False).state_dict()

    with pytest.raises(ReliveError, match=r"no trainer\.loop now"):
        TrainerState(LIBRARY, library_object(), reads_own=False).load_state_dict(captured)


def test_attributes_of_project_modules_are_discovered() -> None:
    net = Net()
    net(torch.ones(1, 2))
    found = discover_state([], {"model": net}, {}, modules=ModulePartsCache())
    handler = found.handlers["model (attributes)"]

    assert dict(handler._parts(None)) == {"outputs": [2.0], "_calls": 1}  # type: ignore[attr-defined]


def test_a_project_object_with_a_state_dict_is_discovered() -> None:
    meter = Average()
    meter.update(1.0)
    found = discover_state(
        [],
        {"trainer": TrainerState(LIBRARY, library_object(meter=meter), reads_own=False)},
        {},
        modules=ModulePartsCache(),
    )

    assert found.objects["trainer.meter"] is meter


@pytest.mark.parametrize("where", ["at first", "later", "deep inside"])
def test_a_project_module_that_is_added_is_discovered(where: str) -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model, modules = torch.nn.Sequential(inner), ModulePartsCache()
    if where != "at first":
        discover_state([], {"model": model}, {}, modules=modules)
    added = Net()
    added(torch.ones(1, 2))
    (inner if where == "deep inside" else model).append(added)

    found = discover_state([], {"model": model}, {}, modules=modules)

    assert [obj for obj in found.objects.values() if obj is added]
