"""Laws of captured state: every kind of object is restored bit for bit, in place."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive.checkpoint.io.capture import Capture
from relive.checkpoint.io.checkpoint_reader import Checkpoint, open_checkpoint
from relive.checkpoint.io.checkpoint_writer import CheckpointWriter, WrittenCheckpoint
from relive.errors import Damaged, NotFound, ReliveError
from relive.store.chunks import Chunks, Packs

torch = pytest.importorskip("torch")
nn = torch.nn


class Keeper:
    """Takes checkpoints of objects into a folder, and restores them."""

    def __init__(self, folder: Path, **objects: Any) -> None:
        self.chunks, self.packs = Chunks(folder / "chunks"), Packs(folder / "chunks/packs")
        self.capture = Capture(objects)
        self.writer = CheckpointWriter(self.packs, self.chunks)

    def take(self, **extra: Any) -> WrittenCheckpoint:
        done: list[WrittenCheckpoint] = []
        self.writer.write(self.capture.take(extra), done.append)
        return done[0]

    def open(self, written: WrittenCheckpoint) -> Checkpoint:
        return open_checkpoint(written.manifest, self.chunks, self.packs)

    def restore(self, written: WrittenCheckpoint, **objects: Any) -> None:
        self.open(written).restore(objects, random=False)


def _quantised() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch deprecates them; old code has them
        return torch.quantize_per_tensor(torch.randn(6), 0.1, 10, torch.quint8)


TENSORS = {
    "float32": lambda: torch.randn(3, 4),
    "float64": lambda: torch.randn(5, dtype=torch.float64),
    "bfloat16": lambda: torch.randn(7).bfloat16(),
    "float16": lambda: torch.randn(7).half(),
    "complex": lambda: torch.randn(4, dtype=torch.complex64),
    "conjugated": lambda: torch.randn(4, dtype=torch.complex64).conj(),
    "bool": lambda: torch.rand(9) > 0.5,
    "int8": lambda: torch.arange(-5, 5, dtype=torch.int8),
    "scalar": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0, 3),
    "transposed": lambda: torch.randn(4, 6).t(),
    "strided": lambda: torch.randn(20)[::3],
    "expanded": lambda: torch.randn(3, 1).expand(3, 4).clone(),
    "channels_last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "nan": lambda: torch.tensor([float("nan"), float("inf"), -0.0]),
    "quantised": lambda: _quantised(),
    "subclass": lambda: nn.Parameter(torch.randn(4)),
    "large": lambda: torch.randn(3_000_000),
}


def bits(tensor: Any) -> bytes:
    plain = tensor.detach().int_repr() if tensor.is_quantized else tensor.detach().resolve_conj()
    return plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_is_restored_bit_for_bit_in_place(tmp_path: Path, kind: str) -> None:
    tensor = TENSORS[kind]()
    before = bits(tensor)
    keeper = Keeper(tmp_path, tensor=tensor)
    written = keeper.take()
    with torch.no_grad():
        tensor.copy_(torch.zeros(tensor.shape) if tensor.is_quantized else torch.zeros_like(tensor))

    keeper.restore(written, tensor=tensor)

    assert bits(tensor) == before


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10.0),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(20)[::2].copy(),
        np.array(5),
        np.empty((0, 2)),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    ],
)
def test_an_array_is_restored_in_place(tmp_path: Path, array: np.ndarray) -> None:
    before = array.copy()
    keeper = Keeper(tmp_path, array=array)
    written = keeper.take()
    array[...] = np.zeros_like(array)

    keeper.restore(written, array=array)

    np.testing.assert_array_equal(array, before)


def _net() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def _train(net: Any, optimizer: Any, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(6, 4)).pow(2).sum().backward()
        optimizer.step()


def _state(net: Any, optimizer: Any) -> list[bytes]:
    moments = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return [bits(tensor) for tensor in [*net.state_dict().values(), *moments]]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "plain_sgd": lambda p: torch.optim.SGD(p, 0.1),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1),
    "fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_model_and_optimizer_are_restored_also_into_fresh_ones(tmp_path: Path, kind: str, steps_before: int) -> None:
    net = _net()
    optimizer = OPTIMIZERS[kind](net.parameters())
    _train(net, optimizer, steps_before)
    keeper = Keeper(tmp_path, model=net, optimizer=optimizer)
    written, then = keeper.take(), _state(net, optimizer)
    _train(net, optimizer)
    fresh = _net()
    fresh_optimizer = OPTIMIZERS[kind](fresh.parameters())

    keeper.restore(written, model=net, optimizer=optimizer)
    keeper.restore(written, model=fresh, optimizer=fresh_optimizer)

    assert _state(net, optimizer) == then
    assert _state(fresh, fresh_optimizer) == then


def test_modes_frozen_parameters_and_plain_attributes_are_restored(tmp_path: Path) -> None:
    net = _net()
    net[1].eval()
    net[0].weight.requires_grad_(False)
    net[2].annealed = 0.25
    keeper = Keeper(tmp_path, model=net)
    written = keeper.take()
    net.train()
    net[0].weight.requires_grad_(True)
    net[2].annealed = 0.5

    keeper.restore(written, model=net)

    assert [module.training for module in net] == [True, False, True, True]
    assert not net[0].weight.requires_grad
    assert net[2].annealed == 0.25


def test_tied_weights_stay_tied_and_are_stored_once(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(300, 300, bias=False), nn.Linear(300, 300, bias=False))
    net[1].weight = net[0].weight
    keeper = Keeper(tmp_path, model=net)
    written = keeper.take()
    with torch.no_grad():
        net[0].weight.zero_()

    keeper.restore(written, model=net)

    assert net[1].weight is net[0].weight
    assert net[0].weight.abs().sum() > 0
    assert written.new_bytes < 1.1 * 300 * 300 * 4


def test_unchanged_tensors_are_not_written_again_by_any_run(tmp_path: Path) -> None:
    net = nn.Sequential(*[nn.Linear(200, 200) for _ in range(20)])
    keeper = Keeper(tmp_path, model=net)
    first = keeper.take()
    with torch.no_grad():
        net[19].weight.add_(1)
    second = keeper.take()
    other_run = Keeper(tmp_path, model=net).take()

    assert second.new_bytes <= 1.05 * 200 * 200 * 4 + 1000
    assert other_run.new_bytes < 20_000  # the description of the graph, whose hashes differ
    assert first.new_bytes > 15 * second.new_bytes


def test_a_change_without_a_version_counter_is_captured(tmp_path: Path) -> None:
    net = _net()
    keeper = Keeper(tmp_path, model=net)
    keeper.take()
    net[0].weight.data.numpy()[0, 0] = 77.0

    written = keeper.take()

    state = keeper.open(written).state("model", ["0.weight"])
    assert state["0.weight"][0, 0] == 77.0


@pytest.mark.parametrize("change", ["dtype", "added", "replaced", "lazy"])
def test_a_state_that_changes_its_shape_midway_is_captured(tmp_path: Path, change: str) -> None:
    net = nn.Sequential(nn.LazyLinear(3)) if change == "lazy" else _net()
    if change == "lazy":
        net(torch.randn(2, 4))
    keeper = Keeper(tmp_path, model=net)
    keeper.take()
    if change == "dtype":
        net.double()
    elif change == "added":
        net.append(nn.Linear(2, 2))
    elif change == "replaced":
        net[0].weight.data = torch.randn(8, 4)
    before = [bits(tensor) for tensor in net.state_dict().values()]
    written = keeper.take()
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.zero_()

    keeper.restore(written, model=net)

    assert [bits(tensor) for tensor in net.state_dict().values()] == before


@pytest.mark.slow
def test_ten_thousand_small_tensors_are_one_file(tmp_path: Path) -> None:
    tensors = nn.ParameterList(torch.randn(5) for _ in range(10_000))
    keeper = Keeper(tmp_path, tensors=tensors)
    written = keeper.take()
    before = torch.cat([tensor.detach().clone() for tensor in tensors])
    with torch.no_grad():
        for tensor in tensors:
            tensor.zero_()

    keeper.restore(written, tensors=tensors)

    assert torch.equal(torch.cat(list(tensors)).detach(), before)
    assert len(keeper.packs.names()) == 1


def test_schedulers_scalers_generators_and_containers_are_restored(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    generator, numbers = torch.Generator().manual_seed(1), np.random.default_rng(1)
    history, counts = [1, 2.5], {"a": 1, (1, 2): torch.ones(2)}
    things = {"scheduler": scheduler, "generator": generator, "numbers": numbers, "history": history, "counts": counts}
    keeper = Keeper(tmp_path, **things)
    written = keeper.take()
    expected = (torch.rand(3, generator=generator), numbers.random(3))
    optimizer.step()
    scheduler.step()
    history.append(9)
    counts.clear()

    keeper.restore(written, **things)

    assert scheduler.last_epoch == 0
    assert torch.equal(torch.rand(3, generator=generator), expected[0])
    np.testing.assert_array_equal(numbers.random(3), expected[1])
    assert history == [1, 2.5]
    assert torch.equal(counts.pop((1, 2)), torch.ones(2))
    assert counts == {"a": 1}


def test_an_object_that_cannot_be_captured_is_named_once_it_has_changed(tmp_path: Path) -> None:
    numbers = (i for i in range(3))
    keeper = Keeper(tmp_path, numbers=numbers)
    before = keeper.capture.take()
    next(numbers)
    after = keeper.capture.take()

    assert before.uncaptured == []
    assert [name.split()[0] for name in after.uncaptured] == ["numbers"]


def test_an_object_that_cannot_be_restored_is_an_error_with_its_name(tmp_path: Path) -> None:
    numbers = (i for i in range(3))
    keeper = Keeper(tmp_path, numbers=numbers, tensor=torch.ones(1))
    written = keeper.take()
    next(numbers)

    with pytest.raises(ReliveError, match="numbers can't be restored"):
        keeper.restore(written, numbers=numbers)


def test_an_extra_value_is_captured_beside_the_named_objects(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, tensor=torch.ones(1))

    assert keeper.open(keeper.take(good=[5, {"a": (1, 2)}])).extra("good") == [5, {"a": (1, 2)}]


def test_one_layer_can_be_read_alone(tmp_path: Path) -> None:
    net = _net()
    keeper = Keeper(tmp_path, model=net)
    state = keeper.open(keeper.take()).state("model", ["3.bias"])

    assert list(state) == ["3.bias"]
    assert torch.equal(state["3.bias"], net[3].bias)


def test_an_unknown_name_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, model=_net())
    checkpoint = keeper.open(keeper.take())

    with pytest.raises(NotFound, match="it has model"):
        checkpoint.restore({"optimizer": _net()}, random=False)
    with pytest.raises(ReliveError, match="build the same model first"):
        checkpoint.restore({"model": nn.Linear(1, 1)}, random=False)


def test_a_damaged_pack_is_named_and_its_values_are_not_used(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, tensor=torch.randn(1000))
    written = keeper.take()
    (pack,) = keeper.packs.folder.glob("*.pack")
    raw = bytearray(pack.read_bytes())
    raw[100] ^= 1
    pack.write_bytes(raw)

    with pytest.raises(Damaged, match=pack.name):
        keeper.restore(written, tensor=torch.zeros(1000))


def test_training_may_go_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    tensor = torch.zeros(2_000_000)
    keeper = Keeper(tmp_path, tensor=tensor)
    done: list[WrittenCheckpoint] = []
    keeper.writer.begin(keeper.capture.take({}), done.append)
    tensor.fill_(1.0)
    keeper.writer.wait()

    assert keeper.open(done[0]).state("tensor")[""].sum() == 0


def test_a_kill_while_writing_leaves_earlier_checkpoints_whole_and_no_half_one(tmp_path: Path) -> None:
    net = nn.Linear(600, 600)
    keeper = Keeper(tmp_path, model=net)
    first = keeper.take()
    expected = net.weight.detach().clone()
    for attempt in range(10):
        child = os.fork()
        if child == 0:
            while True:
                np.asarray(net.weight.data)[:] += 1
                keeper.take()
        time.sleep(0.01 + 0.004 * attempt)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

        state = keeper.open(first).state("model", ["weight"])
        assert torch.equal(state["weight"], expected)
        assert all(keeper.packs.pieces(name) for name in keeper.packs.names())
