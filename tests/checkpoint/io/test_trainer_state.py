"""Laws of trainers that run the loop: counters and what they hold are state, clocks and displays are not."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint.io import Library, TrainerState, unwrapped
from tests.checkpoint.state.test_state_handlers import Keeper

torch = pytest.importorskip("torch")


class Part:
    """An object of the library."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("begun_time", "count")

    def __init__(self, count: int, begun_time: float) -> None:
        self.count, self.begun_time = count, begun_time


class Bar:
    """An object of the library that displays progress."""

    def __init__(self, shown: int) -> None:
        self.shown = shown


LIBRARY = Library("Led", ("led",), frozenset({"settings"}), shown=("led.bars",))


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves the classes above into modules of a library that is installed."""
    for name, kinds in {"led.loops": (Part, Slotted), "led.bars": (Bar,)}.items():
        module = types.ModuleType(name)
        module.__file__ = f"/usr/lib/python3/dist-packages/{name.replace('.', '/')}.py"
        monkeypatch.setitem(sys.modules, name, module)
        for kind in kinds:
            setattr(module, kind.__name__, kind)
            monkeypatch.setattr(kind, "__module__", name)


def trainer_state(trainer: Any) -> TrainerState:
    return TrainerState(LIBRARY, trainer, reads_own=False)


def keeper_of(folder: Path, trainer: Any) -> Keeper:
    return Keeper(folder, **unwrapped({"library": trainer_state(trainer)}))


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


def test_counters_are_restored_into_the_same_objects(tmp_path: Path) -> None:
    history: list[dict[str, float]] = [{"loss": 1.0}]
    progress = Part(epochs=3, history=history, best=torch.tensor(0.5), begun_time=7.0)
    trainer = Part(progress=progress, settings=Part(lr=0.1), parts=[Part(count=1), Part(count=2)])
    keeper = keeper_of(tmp_path, trainer)
    written = keeper.take()
    progress.epochs, progress.best, progress.begun_time = 9, torch.tensor(0.1), 8.0
    history.append({"loss": 0.2})
    trainer.parts[1].count = 5
    trainer.settings.lr = 0.7

    keeper.restore(written, library=trainer)

    assert (progress.epochs, float(progress.best), trainer.parts[1].count) == (3, 0.5, 2)
    assert progress.history is history
    assert history == [{"loss": 1.0}]
    assert (progress.begun_time, trainer.settings.lr) == (8.0, 0.7)  # clocks and settings are no state


def test_clocks_in_slots_are_no_state(tmp_path: Path) -> None:
    trainer = Part(inner=Slotted(1, 7.0))
    keeper = keeper_of(tmp_path, trainer)
    written = keeper.take()
    trainer.inner.count, trainer.inner.begun_time = 5, 8.0

    keeper.restore(written, library=trainer)

    assert (trainer.inner.count, trainer.inner.begun_time) == (1, 8.0)


def test_displays_are_no_state(tmp_path: Path) -> None:
    trainer = Part(bar=Bar(1), count=1)
    keeper = keeper_of(tmp_path, trainer)
    written = keeper.take()
    trainer.bar.shown, trainer.count = 5, 5
    changed = keeper.capture.take()

    keeper.restore(written, library=trainer)

    assert (trainer.bar.shown, trainer.count) == (5, 1)
    assert changed.uncaptured == []


def test_what_is_left_out_of_a_library_is_state_elsewhere(tmp_path: Path) -> None:
    class Timed(Part):
        """A class of the project that derives from one of the library."""

    timed, meter = Timed(wait_time=1.0, settings=[1]), Average()
    trainer = Part(settings=meter)
    keeper = Keeper(tmp_path, **unwrapped({"library": trainer_state(trainer), "timed": timed}))
    written = keeper.take()
    timed.wait_time, timed.settings = 2.0, []
    meter.update(3.0)

    keeper.restore(written, library=trainer, timed=timed)

    assert (timed.wait_time, timed.settings) == (1.0, [1])
    assert meter.total == 0.0  # an object of the project, wherever the library holds it


def test_objects_that_the_library_was_given_are_found() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    state = trainer_state(Part(strategy=Part(optimizers=[optimizer], configs=[{"scheduler": scheduler}]), model=net))

    assert state.holds([net, optimizer, scheduler])
    assert not state.holds([net, Net()])
    assert state.journal_fields == {"by": "Led", "reads_own": False}


def test_a_generator_that_does_not_exist_yet_is_created_by_the_restore(tmp_path: Path) -> None:
    sampler = Part(generator=torch.Generator().manual_seed(5))
    trainer = Part(sampler=sampler)
    keeper = keeper_of(tmp_path, trainer)
    written = keeper.take()
    expected = torch.rand(2, generator=sampler.generator)
    sampler.generator = None

    keeper.restore(written, library=trainer)

    assert torch.equal(torch.rand(2, generator=sampler.generator), expected)


def test_paths_into_the_folder_of_the_run_are_relocated_to_that_of_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Part(path=os.path.join(os.getcwd(), "out", "best.ckpt"), other="/elsewhere")
    keeper = keeper_of(tmp_path, trainer)
    written = keeper.take()
    monkeypatch.chdir(tmp_path)

    keeper.restore(written, library=trainer)

    assert trainer.path == os.path.join(os.getcwd(), "out", "best.ckpt")
    assert trainer.other == "/elsewhere"


def test_a_part_that_is_missing_is_made(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path, Part(loop=Part(count=1)))
    written = keeper.take()
    fresh = Part()

    keeper.restore(written, library=fresh)

    assert fresh.loop.count == 1


def test_attributes_of_project_modules_and_objects_with_a_state_dict_are_restored(tmp_path: Path) -> None:
    net, meter = Net(), Average()
    trainer = Part(model=net, meter=meter)
    net(torch.ones(1, 2))
    meter.update(1.0)
    keeper = keeper_of(tmp_path, trainer)
    written = keeper.take()
    net(torch.ones(1, 2))
    meter.update(1.0)

    keeper.restore(written, library=trainer)

    assert (net.outputs, net._calls, meter.total) == ([2.0], 1, 1.0)


@pytest.mark.parametrize("where", ["at first", "later", "deep inside"])
def test_a_project_module_that_is_added_is_captured(tmp_path: Path, where: str) -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model = torch.nn.Sequential(inner)
    keeper = Keeper(tmp_path, model=model)
    if where != "at first":
        keeper.take()
    added = Net()
    (inner if where == "deep inside" else model).append(added)
    added(torch.ones(1, 2))
    written = keeper.take()
    added(torch.ones(1, 2))

    keeper.restore(written, model=model)

    assert (inner if where == "deep inside" else model)[1] is added
    assert (added.outputs, added._calls) == ([2.0], 1)
