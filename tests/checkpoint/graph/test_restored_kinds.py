"""Laws of restored objects: into objects that were built again, every kind comes back equal, shared as it was, whole.

Each kind is built, changed and captured. It is then restored into another one that was only built, as a new process
does, and into the same one after more changes. What a *view* tells of it is what it told when it was captured.
"""

from __future__ import annotations

import array
import copy
import datetime
import decimal
import enum
import functools
import gc
import io
import itertools
import operator
import random
import types
import uuid
import warnings
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.checkpoint.state.test_state_handlers import Keeper

torch = pytest.importorskip("torch")
pandas = pytest.importorskip("pandas")
nn = torch.nn
schedulers = torch.optim.lr_scheduler

Things = dict[str, Any]
Kind = tuple[Callable[[], Things], Callable[[Things], None], Callable[[Things], Any]]  # build, change, view
KINDS: dict[str, Kind] = {}
# What is not restored yet: into one that was built again, and into itself.
_HASHED_TOO_EARLY = "a key is hashed before it has its content"
_OTHER_MEMORY = "memory of another size is taken for its counterpart and not filled"
GAPS_WHEN_FRESH = {
    "sparse_tensors_that_are_not_coalesced": "they come back coalesced",
    "arrays_that_take_less_memory": _OTHER_MEMORY,
    "arrays_that_take_more_memory": _OTHER_MEMORY,
    "keys_that_are_frozen_dataclasses": _HASHED_TOO_EARLY,
    "keys_with_a_hash_of_their_own": _HASHED_TOO_EARLY,
    "combined_flags": "a combination of flags is looked up by its name",
    "empty_tuples_and_frozen_sets": "their token is as long as one that refers to an object",
    "classes_that_are_first_used_later": "a class is not looked up by its name",
    "numbers_with_attributes": "a subclass of float with attributes can't be looked into, and stays as it is",
    "closed_streams": "the content of a closed one means that there is none",
    "causes_of_exceptions": "causes are not part of the content",
    "errors_of_the_system": "the fields of an OSError are not its arguments",
}
GAPS_IN_PLACE = {"generators_of_numpy_with_children": "children that were spawned later are still counted"}


def kind(make: Callable[[], Kind]) -> Callable[[], Kind]:
    KINDS[make.__name__] = make()
    return make


def seen(value: Any) -> Any:
    """A value that compares by bits and types: arrays and tensors as lists, containers with their classes."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        if plain.layout is not torch.strided:
            return "sparse", plain.is_coalesced(), seen(plain.coalesce().indices()), seen(plain.coalesce().values())
        return type(value).__name__, str(plain.dtype), tuple(plain.shape), value.requires_grad, plain.tolist()
    if isinstance(value, np.ma.MaskedArray):
        return "masked", value.dtype.str, seen(value.data), seen(np.ma.getmaskarray(value)), repr(value.fill_value)
    if isinstance(value, np.ndarray):
        return type(value).__name__, str(value.dtype), value.shape, seen(value.tolist())
    if isinstance(value, pandas.DataFrame | pandas.Series):
        return (
            type(value).__name__,
            value.to_json(orient="split", date_format="iso"),
            str(value.dtypes),
            repr(value.attrs),
        )
    if isinstance(value, dict):
        return type(value).__name__, [(seen(key), seen(one)) for key, one in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, getattr(value, "maxlen", None), [seen(one) for one in value]
    return type(value).__name__, repr(value) if isinstance(value, float) else value


def taken(folder: Path, things: Things, change: Callable[[Things], None]) -> tuple[Keeper, Any]:
    keeper = Keeper(folder, **things)
    keeper.capture.begin()
    change(things)
    return keeper, keeper.take()


def parameters(gaps: dict[str, str]) -> list[Any]:
    marks = {name: [pytest.mark.xfail(strict=True, reason=reason)] for name, reason in gaps.items()}
    return [pytest.param(name, id=name, marks=marks.get(name, [])) for name in KINDS]


# --- torch ------------------------------------------------------------------------------------------------------------


class Remembering(nn.Module):
    """Holds state that torch does not know of."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.mean = torch.zeros(2)
        self.history: list[float] = []
        self.same_history = self.history
        self.counts: dict[str, int] = {}
        self.table = np.zeros(3)
        self.extra = 0

    def get_extra_state(self) -> Any:
        return {"extra": self.extra}

    def set_extra_state(self, state: Any) -> None:
        self.extra = state["extra"]


@kind
def plain_attributes_of_modules() -> Kind:
    def change(things: Things) -> None:
        net = things["net"]
        net.mean.add_(1.5)
        net.history += [1.0, 2.0]
        net.counts["steps"] = 7
        net.table[1] = 3.0
        net.added = {"late": [torch.ones(1)]}

    def view(things: Things) -> Any:
        net = things["net"]
        rest = [seen(getattr(net, name, None)) for name in ("mean", "history", "counts", "table", "added")]
        return rest, net.history is net.same_history

    return lambda: {"net": Remembering()}, change, view


@kind
def extra_state_of_modules() -> Kind:
    def change(things: Things) -> None:
        things["net"].extra += 4

    return lambda: {"net": Remembering()}, change, lambda things: things["net"].get_extra_state()


class Lookahead(torch.optim.SGD):
    """An optimizer with attributes of its own."""

    def __init__(self, weights: Any) -> None:
        super().__init__(weights, lr=0.1, momentum=0.9)
        self.calls = 0
        self.slow = [torch.zeros(2)]
        self.first = self.param_groups[0]["params"][0]


@kind
def attributes_of_optimizer_subclasses() -> Kind:
    def build() -> Things:
        weight = nn.Parameter(torch.ones(2))
        return {"weight": weight, "optimizer": Lookahead([weight])}

    def change(things: Things) -> None:
        optimizer, weight = things["optimizer"], things["weight"]
        weight.grad = torch.full((2,), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        optimizer.calls += 1
        optimizer.slow[0].add_(weight.detach())
        optimizer.param_groups[0]["lr"] *= 0.5

    def view(things: Things) -> Any:
        optimizer, weight = things["optimizer"], things["weight"]
        group = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
        return [
            optimizer.calls, seen(optimizer.slow), seen(weight), seen(group), optimizer.first is weight,
            optimizer.param_groups[0]["params"][0] is weight, seen(optimizer.state[weight]), len(optimizer.state),
        ]  # fmt: skip

    return build, change, view


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("links", _sparse([[0, 1], [1, 0]], [1.0, 2.0]))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.loose = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1), requires_grad=False)]


def _sparse(indices: list[list[int]], values: list[float]) -> Any:
    return torch.sparse_coo_tensor(indices, values, (3, 3), check_invariants=True).coalesce()


@kind
def sparse_buffers() -> Kind:
    def change(things: Things) -> None:
        things["net"].links = _sparse([[0, 2, 2], [0, 1, 2]], [4.0, 5.0, 6.0])

    return lambda: {"net": Buffered()}, change, lambda things: seen(things["net"].links)


@kind
def sparse_tensors_that_are_not_coalesced() -> Kind:
    def build() -> Things:
        return {"sparse": [_sparse([[0], [0]], [1.0])]}

    def change(things: Things) -> None:
        made = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 3), check_invariants=True)
        things["sparse"][0] = made

    return build, change, lambda things: [seen(things["sparse"][0]), things["sparse"][0]._nnz()]


@kind
def buffers_that_are_not_persistent() -> Kind:
    def change(things: Things) -> None:
        things["net"].cache += 2.0

    def view(things: Things) -> Any:
        net = things["net"]
        return seen(net.cache), sorted(net._non_persistent_buffers_set), "cache" in net.state_dict()

    return lambda: {"net": Buffered()}, change, view


@kind
def parameters_in_a_list() -> Kind:
    def build() -> Things:
        net = Buffered()
        return {"net": net, "optimizer": torch.optim.Adam(net.loose[:1], lr=0.1)}

    def change(things: Things) -> None:
        loose = things["net"].loose
        loose[0].grad = torch.ones(2)
        things["optimizer"].step()
        things["optimizer"].zero_grad()
        loose[1].requires_grad_(True)
        loose.append(nn.Parameter(torch.full((1,), 9.0)))

    def view(things: Things) -> Any:
        loose, optimizer = things["net"].loose, things["optimizer"]
        return [
            seen(loose), optimizer.param_groups[0]["params"][0] is loose[0], seen(optimizer.state[loose[0]]),
            [type(one).__name__ for one in loose], len(optimizer.state),
        ]  # fmt: skip

    return build, change, view


class Box:
    """An object that holds anything."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


@kind
def views_of_one_storage() -> Kind:
    def build() -> Things:
        base = torch.zeros(6)
        return {"box": Box(base=base, parts=[base[:3], base[3:]], turned=base.view(2, 3).t()), "halves": [base[::2]]}

    def change(things: Things) -> None:
        things["box"].base += torch.arange(6.0)

    def view(things: Things) -> Any:
        box, halves = things["box"], things["halves"]
        before = [seen(box.base), seen(box.parts), seen(box.turned), seen(halves), box.turned.stride()]
        box.base.fill_(5.0)
        after = [seen(box.parts), seen(box.turned), seen(halves)]
        return before, after

    return build, change, view


@kind
def views_that_are_made_later() -> Kind:
    def change(things: Things) -> None:
        base = torch.arange(6.0)
        things["box"].views = [base, base[2:4], Box(inner=base.view(3, 2))]

    def view(things: Things) -> Any:
        base, part, box = things["box"].views or (torch.zeros(1), torch.zeros(1), Box(inner=torch.zeros(1)))
        before = [seen(base), seen(part), seen(box.inner)]
        base.mul_(0.0)
        return before, seen(part), seen(box.inner)

    return lambda: {"box": Box(views=None)}, change, view


@kind
def views_of_one_array() -> Kind:
    def build() -> Things:
        base = np.zeros(6)
        return {"box": Box(base=base, parts=[base[:3], base[3:]]), "turned": [base.reshape(2, 3).T, base[::-1]]}

    def change(things: Things) -> None:
        things["box"].base[:] = np.arange(6.0)

    def view(things: Things) -> Any:
        box, turned = things["box"], things["turned"]
        before = [seen(box.base), seen(box.parts), seen(turned)]
        box.base[:] = 5.0
        return before, seen(box.parts), seen(turned)

    return build, change, view


@kind
def tensors_and_arrays_of_one_memory() -> Kind:
    def build() -> Things:
        numbers = np.zeros(4)
        return {"pair": [numbers, torch.from_numpy(numbers)]}

    def change(things: Things) -> None:
        things["pair"][0][:] = [1.0, 2.0, 3.0, 4.0]

    def view(things: Things) -> Any:
        numbers, tensor = things["pair"]
        before = seen(things["pair"])
        numbers[:] = 7.0
        return before, seen(tensor)

    return build, change, view


@kind
def gradient_scalers() -> Kind:
    def change(things: Things) -> None:
        scaler = things["scaler"]
        scaler.scale(torch.ones(1))
        scaler.update(new_scale=256.0)
        scaler._growth_tracker.add_(3)

    def view(things: Things) -> Any:
        scaler = things["scaler"]
        return scaler.get_scale(), scaler.state_dict(), seen(scaler.scale(torch.ones(1)))

    return lambda: {"scaler": torch.amp.GradScaler("cpu", init_scale=8.0)}, change, view


class Halving:
    """A callable with state, for LambdaLR."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, epoch: int) -> float:
        self.calls += 1
        return 0.5**epoch


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda optimizer: schedulers.LambdaLR(optimizer, Halving()),
    "LambdaLR_of_a_lambda": lambda optimizer: schedulers.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda optimizer: schedulers.MultiplicativeLR(optimizer, lambda _: 0.9),
    "StepLR": lambda optimizer: schedulers.StepLR(optimizer, 2),
    "MultiStepLR": lambda optimizer: schedulers.MultiStepLR(optimizer, [1, 3, 3]),
    "ConstantLR": lambda optimizer: schedulers.ConstantLR(optimizer, total_iters=4),
    "LinearLR": lambda optimizer: schedulers.LinearLR(optimizer),
    "ExponentialLR": lambda optimizer: schedulers.ExponentialLR(optimizer, 0.9),
    "PolynomialLR": lambda optimizer: schedulers.PolynomialLR(optimizer, 6),
    "CosineAnnealingLR": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, 6),
    "CosineAnnealingWarmRestarts": lambda optimizer: schedulers.CosineAnnealingWarmRestarts(optimizer, 2, 2),
    "CyclicLR": lambda optimizer: schedulers.CyclicLR(optimizer, 0.01, 0.1, step_size_up=2),
    "OneCycleLR": lambda optimizer: schedulers.OneCycleLR(optimizer, 0.5, total_steps=30),
    "ReduceLROnPlateau": lambda optimizer: schedulers.ReduceLROnPlateau(optimizer, patience=1),
    "SWALR": lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs=3),
    "SequentialLR": lambda optimizer: schedulers.SequentialLR(
        optimizer, [schedulers.ConstantLR(optimizer, 0.1, 2), schedulers.ExponentialLR(optimizer, 0.9)], [2]
    ),
    "ChainedScheduler": lambda optimizer: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(optimizer, 0.1, 2), schedulers.ExponentialLR(optimizer, 0.9)]
    ),
}


def _scheduler_kind(make: Callable[[Any], Any]) -> Kind:
    def build() -> Things:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
        return {"scheduler": make(optimizer), "optimizer": optimizer}

    def step(things: Things, times: int) -> list[float]:
        scheduler, optimizer = things["scheduler"], things["optimizer"]
        rates = []
        for number in range(times):
            optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                is_plateau = isinstance(scheduler, schedulers.ReduceLROnPlateau)
                scheduler.step(float(number)) if is_plateau else scheduler.step()
            rates.append(float(optimizer.param_groups[0]["lr"]))
        return rates

    def view(things: Things) -> Any:
        scheduler, optimizer = things["scheduler"], things["optimizer"]
        inner = getattr(scheduler, "_schedulers", [scheduler])
        facts = [
            seen(scheduler.state_dict()), float(optimizer.param_groups[0]["lr"]),
            [one.optimizer is optimizer for one in inner], seen(optimizer.param_groups[0].get("initial_lr")),
        ]  # fmt: skip
        if isinstance(inner[0], schedulers.LambdaLR):
            facts.append(getattr(inner[0].lr_lambdas[0], "calls", None))
        return facts, step(things, 6)

    return build, lambda things: operator.truth(step(things, 3)), view


for _name, _make in SCHEDULERS.items():
    KINDS[_name] = _scheduler_kind(_make)


def test_every_scheduler_of_torch_is_tried() -> None:
    known = {name for name, one in vars(schedulers).items() if isinstance(one, type) and name[0] != "_"}
    named = {name for name in known if issubclass(getattr(schedulers, name), schedulers.LRScheduler)}

    assert named - {"LRScheduler"} <= set(SCHEDULERS)


@kind
def averaged_models() -> Kind:
    def build() -> Things:
        torch.manual_seed(0)
        net = nn.Linear(2, 2)
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        return {"net": net, "mean": torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=average)}

    def change(things: Things) -> None:
        for _ in range(2):
            with torch.no_grad():
                things["net"].weight.add_(1.0)
            things["mean"].update_parameters(things["net"])

    def view(things: Things) -> Any:
        before = seen(list(things["mean"].state_dict().items()))
        things["mean"].update_parameters(things["net"])
        return before, seen(list(things["mean"].state_dict().items()))

    return build, change, view


@kind
def gradients_of_parameters() -> Kind:
    def change(things: Things) -> None:
        things["net"].weight.requires_grad_(False)
        things["net"].half()

    return (
        lambda: {"net": nn.Linear(2, 1)},
        change,
        lambda things: [seen(things["net"].weight), seen(things["net"].bias)],
    )


# --- numbers ----------------------------------------------------------------------------------------------------------


@kind
def masked_arrays() -> Kind:
    def build() -> Things:
        return {"box": Box(masked=np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False], fill_value=-1.0))}

    def change(things: Things) -> None:
        masked = things["box"].masked
        masked[0] = np.ma.masked
        masked[1] = 9.0
        masked.fill_value = -5.0
        masked.harden_mask()

    def view(things: Things) -> Any:
        masked = things["box"].masked
        return seen(masked), masked.hardmask, seen(masked.filled()), float(masked.sum())

    return build, change, view


@kind
def object_arrays() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(array=np.array([shared, None, {"a": 1}], dtype=object), shared=shared)}

    def change(things: Things) -> None:
        box = things["box"]
        box.shared.append(4)
        box.array[1] = "text"
        box.array[2]["a"] = 2

    def view(things: Things) -> Any:
        box = things["box"]
        return seen(list(box.array)), box.array[0] is box.shared, box.array.dtype.kind, box.array.shape

    return build, change, view


@kind
def structured_arrays() -> Kind:
    def build() -> Things:
        return {"rows": [np.zeros(2, dtype=[("id", "i4"), ("place", "f8", (2,)), ("name", "U4")])]}

    def change(things: Things) -> None:
        things["rows"][0][1] = (3, (1.0, 2.0), "abc")
        things["rows"].append(np.rec.array([(1, 2.5)], dtype=[("a", "i2"), ("b", "f4")]))

    return build, change, lambda things: [(type(one).__name__, str(one.dtype), repr(one)) for one in things["rows"]]


@kind
def arrays_of_other_order_type_and_permissions() -> Kind:
    def build() -> Things:
        return {"box": Box(turned=np.zeros((2, 3)), fixed=np.zeros(2), when=np.zeros(1), big=None)}

    def change(things: Things) -> None:
        box = things["box"]
        box.turned = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        box.fixed = np.ones(2)
        box.fixed.flags.writeable = False
        box.when = np.array(["2024-01-02"], dtype="M8[D]")
        box.big = np.arange(3, dtype=">i4")

    def view(things: Things) -> Any:
        box = things["box"]
        facts = [seen(one) for one in (box.turned, box.fixed, box.when, box.big)]
        return facts, box.turned.flags.f_contiguous, box.fixed.flags.writeable

    return build, change, view


@kind
def arrays_that_take_less_memory() -> Kind:
    def change(things: Things) -> None:
        things["box"].array = np.arange(1, 5, dtype=np.int16)

    return lambda: {"box": Box(array=np.zeros(2))}, change, lambda things: seen(things["box"].array)


@kind
def arrays_that_take_more_memory() -> Kind:
    def change(things: Things) -> None:
        things["box"].array = np.arange(500, dtype=np.int16)

    return lambda: {"box": Box(array=np.zeros(2))}, change, lambda things: seen(things["box"].array)


@kind
def tensors_that_take_less_memory() -> Kind:
    def change(things: Things) -> None:
        things["box"].tensor = torch.ones(2)

    return lambda: {"box": Box(tensor=torch.zeros(4))}, change, lambda things: seen(things["box"].tensor)


@kind
def scalars_of_numpy() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1 + 2j), np.str_("é"),
                                np.datetime64("2024-05-06"), np.bytes_(b"x"), np.float64("nan")]  # fmt: skip

    return (
        lambda: {"box": Box(values=[])},
        change,
        lambda things: [(type(one).__name__, repr(one)) for one in things["box"].values],
    )


@kind
def generators_of_numpy_with_children() -> Kind:
    def build() -> Things:
        root = np.random.default_rng(1)
        return {"root": root, "children": root.spawn(1), "sequence": [np.random.SeedSequence(3)]}

    def change(things: Things) -> None:
        things["root"].random(3)
        things["children"][0].integers(9, size=3)
        things["children"] += things["root"].spawn(2)
        things["sequence"][0].spawn(2)

    def view(things: Things) -> Any:
        children = [*things["children"], *things["root"].spawn(2)]
        drawn = [seen(one.random(2)) for one in (things["root"], *children)]
        return (
            drawn,
            things["sequence"][0].spawn(1)[0].spawn_key,
            things["children"][-1].bit_generator.seed_seq.spawn_key,
        )

    return build, change, view


@kind
def older_and_other_generators() -> Kind:
    def build() -> Things:
        return {
            "legacy": np.random.RandomState(1), "torch": torch.Generator().manual_seed(1), "python": random.Random(1),
            "mersenne": np.random.Generator(np.random.MT19937(1)), "philox": [np.random.Philox(1)],
        }  # fmt: skip

    def change(things: Things) -> None:
        things["legacy"].randn(3)
        torch.rand(3, generator=things["torch"])
        things["python"].gauss(0, 1)
        things["mersenne"].normal(size=3)
        things["philox"][0].random_raw(3)

    def view(things: Things) -> Any:
        return [
            seen(things["legacy"].randn(3)), seen(torch.rand(3, generator=things["torch"])),
            [things["python"].gauss(0, 1) for _ in range(3)], seen(things["mersenne"].normal(size=3)),
            seen(things["philox"][0].random_raw(3)),
        ]  # fmt: skip

    return build, change, view


@kind
def generators_that_are_seeded_again() -> Kind:
    def build() -> Things:
        return {"box": Box(rng=np.random.default_rng(1), torch=torch.Generator().manual_seed(1))}

    def change(things: Things) -> None:
        things["box"].rng = np.random.default_rng(77)
        things["box"].same = things["box"].rng
        things["box"].torch.manual_seed(77)

    def view(things: Things) -> Any:
        box = things["box"]
        drawn = seen(box.rng.random(2)), seen(torch.rand(2, generator=box.torch))
        return drawn, getattr(box, "same", None) is box.rng, box.torch.initial_seed()

    return build, change, view


@kind
def data_frames() -> Kind:
    def build() -> Things:
        frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
        return {"frame": frame, "box": Box(frame=frame, series=pandas.Series([1.0, 2.0], name="s"))}

    def change(things: Things) -> None:
        things["frame"].loc[7, "a"] = 5
        things["frame"]["c"] = pandas.Categorical(["u", *["v"] * (len(things["frame"]) - 1)])
        things["box"].series.iloc[0] = 9.0
        things["box"].series.index = pandas.date_range("2024-01-01", periods=2)
        things["frame"].attrs["unit"] = "m"

    def view(things: Things) -> Any:
        return seen(things["frame"]), seen(things["box"].series), things["box"].frame is things["frame"]

    return build, change, view


# --- containers -------------------------------------------------------------------------------------------------------


@kind
def nested_deques() -> Kind:
    def build() -> Things:
        return {"box": Box(recent=deque([deque([1], maxlen=2)], maxlen=3))}

    def change(things: Things) -> None:
        recent = things["box"].recent
        for one in (one for one in recent if isinstance(one, deque)):
            one.extend([2, 3, 4])
        recent.append(deque([5], maxlen=1))
        things["box"].other = deque([1, 2], maxlen=2)

    def view(things: Things) -> Any:
        before = seen(things["box"].recent), seen(getattr(things["box"], "other", None))
        things["box"].recent.extend([1, 2, 3])
        return before, seen(things["box"].recent)

    return build, change, view


@kind
def a_list_under_two_names() -> Kind:
    def build() -> Things:
        return {"box": Box(first=[], second=[]), "other": {"third": []}}

    def change(things: Things) -> None:
        shared = things["box"].first
        shared.append([1])
        things["box"].second = things["other"]["third"] = shared
        things["other"]["inner"] = shared[0]

    def view(things: Things) -> Any:
        box, other = things["box"], things["other"]
        facts = box.first is box.second, box.first is other["third"], seen(box.first)
        return facts, "inner" in other and other["inner"] is box.first[0]

    return build, change, view


@kind
def lists_that_are_no_longer_shared() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(first=shared, second=shared)}

    def change(things: Things) -> None:
        things["box"].second = [9]
        things["box"].first.append(1)

    def view(things: Things) -> Any:
        return seen(things["box"].first), seen(things["box"].second), things["box"].first is things["box"].second

    return build, change, view


@kind
def cycles() -> Kind:
    def change(things: Things) -> None:
        inner: dict[str, Any] = {"up": things["box"]}
        inner["self"] = inner
        things["box"].inner = inner
        things["box"].ring.append(things["box"].ring)

    def view(things: Things) -> Any:
        box = things["box"]
        inner = getattr(box, "inner", {})
        return inner.get("up") is box, inner.get("self") is inner, bool(box.ring) and box.ring[0] is box.ring

    return lambda: {"box": Box(ring=[])}, change, view


class NotedList(list):  # type: ignore[type-arg]
    note = ""


class NotedDict(dict):  # type: ignore[type-arg]
    note = ""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError("restoring calls no code of the class")


class SlottedList(list):  # type: ignore[type-arg]
    __slots__ = ("limit",)


@kind
def attributes_of_list_and_dict_subclasses() -> Kind:
    def build() -> Things:
        return {"items": NotedList([1]), "table": NotedDict(a=1), "box": Box(slotted=SlottedList([1]), set=NotedSet())}

    def change(things: Things) -> None:
        things["items"].append(2)
        things["items"].note = "more"
        dict.__setitem__(things["table"], "b", [2])
        things["table"].note = ["list"]
        things["box"].slotted.limit = 5
        things["box"].set.add(3)
        things["box"].set.note = "set"
        things["box"].made = NotedDict(c=3)
        things["box"].made.note = "late"

    def view(things: Things) -> Any:
        holders = things["items"], things["table"], things["box"].set, getattr(things["box"], "made", NotedDict())
        slotted = things["box"].slotted
        return [(seen(one), seen(one.note)) for one in holders], seen(slotted), getattr(slotted, "limit", None)

    return build, change, view


class NotedSet(set):  # type: ignore[type-arg]
    note = ""


@kind
def defaults_of_dicts() -> Kind:
    def build() -> Things:
        return {"lists": defaultdict(list), "box": Box(numbers=defaultdict(int))}

    def change(things: Things) -> None:
        things["lists"]["a"].append(1)
        things["lists"].default_factory = set
        things["box"].numbers["b"] += 2
        things["box"].nested = defaultdict(functools.partial(defaultdict, float))
        things["box"].nested["x"]["y"] += 1.5
        things["box"].numbers.default_factory = None

    def view(things: Things) -> Any:
        lists, box = things["lists"], things["box"]
        nested = getattr(box, "nested", None)
        made = nested["new"]["new"] if nested is not None else None
        return seen(lists), lists.default_factory, seen(box.numbers), box.numbers.default_factory, seen(nested), made

    return build, change, view


@kind
def ordered_dicts_counters_and_chains() -> Kind:
    def build() -> Things:
        return {
            "order": OrderedDict(a=1, b=2, c=3), "counts": Counter("aab"), "plain": {"x": 1, "y": 2},
            "box": Box(chain=ChainMap({"a": 1}, {"b": 2}), user=UserDict(a=1)),
        }  # fmt: skip

    def change(things: Things) -> None:
        things["order"].move_to_end("a")
        things["order"]["d"] = 4
        things["counts"].update("bcc")
        things["plain"]["x"] = things["plain"].pop("x")
        things["box"].chain["c"] = 3
        things["box"].user["b"] = 2

    def view(things: Things) -> Any:
        box = things["box"]
        return [
            seen(things["order"]), seen(things["counts"]), things["counts"]["absent"], seen(things["plain"]),
            seen(box.chain.maps), seen(box.user.data),
        ]  # fmt: skip

    return build, change, view


Pair = namedtuple("Pair", ["left", "right"])


class Place(NamedTuple):
    row: int
    items: list[int]


@dataclass
class Plain:
    count: int = 0
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    count: int = 0
    items: tuple[Any, ...] = ()


@dataclass(slots=True)
class Slotted:
    count: int = 0
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    count: int = 0


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@kind
def named_tuples() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(pair=Pair(1, shared), place=Place(0, shared), shared=shared)}

    def change(things: Things) -> None:
        box = things["box"]
        box.shared.append(1)
        box.pair = Pair(2, box.shared)

    def view(things: Things) -> Any:
        box = things["box"]
        return seen(box.pair), seen(box.place), box.pair.right is box.shared, box.place.items is box.shared

    return build, change, view


@kind
def dataclasses_of_all_sorts() -> Kind:
    def build() -> Things:
        return {"box": Box(plain=Plain(), frozen=Frozen(), slotted=Slotted(), both=FrozenSlotted())}

    def change(things: Things) -> None:
        box = things["box"]
        box.plain.count, box.slotted.count = 3, 4
        box.plain.items.append(1)
        box.slotted.items.append(2)
        box.frozen = Frozen(5, (box.plain,))
        box.both = FrozenSlotted(6)

    def view(things: Things) -> Any:
        box = things["box"]
        is_shared = bool(box.frozen.items) and box.frozen.items[0] is box.plain
        return box.plain, box.frozen, box.slotted, box.both, is_shared

    return build, change, lambda things: copy.deepcopy(view(things))


@kind
def keys_that_are_frozen_dataclasses() -> Kind:
    def change(things: Things) -> None:
        things["box"].keys = {Frozen(1): "a", FrozenSlotted(2): "b"}

    def view(things: Things) -> Any:
        keys = things["box"].keys
        return list(keys.items()), keys.get(Frozen(1)), keys.get(FrozenSlotted(2))

    return lambda: {"box": Box(keys={})}, change, view


@kind
def combined_flags() -> Kind:
    def change(things: Things) -> None:
        things["box"].rights = Rights.READ | Rights.WRITE

    return lambda: {"box": Box(rights=Rights.READ)}, change, lambda things: things["box"].rights


@kind
def empty_tuples_and_frozen_sets() -> Kind:
    def change(things: Things) -> None:
        things["box"].items, things["box"].members, things["box"].holder = (), frozenset(), [()]

    def view(things: Things) -> Any:
        return things["box"].items, things["box"].members, list(things["box"].holder)

    return lambda: {"box": Box(items=(1,), members=frozenset({1}), holder=[])}, change, view


class Late:
    """A class that nothing refers to at first."""

    @classmethod
    def make(cls) -> Late:
        return cls()


class LateColour(enum.Enum):
    GREEN = 3


@kind
def classes_that_are_first_used_later() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [Late(), Late, Late.make, LateColour.GREEN, frozenset({LateColour.GREEN})]

    def view(things: Things) -> Any:
        return [type(things["box"].values[0]), *things["box"].values[1:]] if things["box"].values else []

    return lambda: {"box": Box(values=[])}, change, view


@kind
def keys_of_enums_and_other_objects() -> Kind:
    def build() -> Things:
        return {"table": {Colour.RED: 1}, "box": Box(rights=Rights.READ, colours={Colour.RED})}

    def change(things: Things) -> None:
        things["table"][Colour.BLUE] = 2
        things["table"][1, "a"] = 3
        things["table"][frozenset({1, 2})] = 4
        things["table"][None] = 5
        things["table"][float] = 6
        things["table"][len] = 7
        things["box"].rights = Rights.WRITE
        things["box"].colours.add(Colour.BLUE)

    def view(things: Things) -> Any:
        return list(things["table"].items()), things["box"].rights, things["box"].colours

    return build, change, lambda things: copy.copy(view(things))


class Hashed:
    """An object whose hash is its content."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and other.name == self.name


@kind
def keys_with_a_hash_of_their_own() -> Kind:
    def change(things: Things) -> None:
        key = Hashed("late")
        things["box"].table = {Hashed("b"): 1, key: [2]}
        things["box"].members = {key, Hashed("c")}
        things["box"].key = key

    def view(things: Things) -> Any:
        box = things["box"]
        found = [(one.name, value) for one, value in box.table.items()], sorted(one.name for one in box.members)
        return found, box.table.get(Hashed("late")), Hashed("c") in box.members, box.key in box.members

    return lambda: {"box": Box(table={}, members=set(), key=Hashed("first"))}, change, view


@kind
def a_set_that_has_shrunk() -> Kind:
    def change(things: Things) -> None:
        numbers = things["box"].numbers
        numbers.update(range(1000))
        for number in range(1000):
            if number % 97:
                numbers.discard(number)

    def view(things: Things) -> Any:
        return list(things["box"].numbers), list(things["box"].frozen)

    return lambda: {"box": Box(numbers={5}, frozen=frozenset({1, 2}))}, change, view


@kind
def frozen_sets_of_objects() -> Kind:
    def change(things: Things) -> None:
        things["box"].groups = frozenset({(1, 2), "a", 3.5, None, frozenset({7})})

    return lambda: {"box": Box(groups=frozenset())}, change, lambda things: things["box"].groups


@kind
def large_containers() -> Kind:
    def change(things: Things) -> None:
        things["numbers"].extend(range(1000))
        things["table"].update({f"key {number}": number / 3 for number in range(1000)})
        things["box"].mixed = [*range(100), [1], *range(100)]
        things["box"].queue.extend(range(200))

    def view(things: Things) -> Any:
        box = things["box"]
        return seen(things["numbers"]), seen(things["table"]), seen(box.mixed), seen(box.queue)

    def build() -> Things:
        return {"numbers": [1], "table": {"a": 1}, "box": Box(mixed=[], queue=deque(maxlen=150))}

    return build, change, view


# --- values of the standard library -----------------------------------------------------------------------------------


@kind
def immutable_values() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [
            decimal.Decimal("1.10"), datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.UTC), datetime.date(2024, 1, 2),
            datetime.timedelta(seconds=5), Fraction(1, 3), uuid.UUID(int=5), Path("/elsewhere/file"),
            PurePosixPath("a/b"), range(2, 9, 3), slice(1, 2), 1 + 2j, b"bytes", float("nan"), -0.0, 10**40, ..., int,
            "a \udcff b", re_pattern(), NotImplemented, types.SimpleNamespace(a=[1]),
        ]  # fmt: skip

    def view(things: Things) -> Any:
        return [(type(one).__name__, repr(one)) for one in things["box"].values]

    return lambda: {"box": Box(values=[])}, change, view


def re_pattern() -> Any:
    import re

    return re.compile("a+", re.IGNORECASE)


@kind
def paths_below_the_working_folder() -> Kind:
    def change(things: Things) -> None:
        things["box"].paths = [Path.cwd() / "out", str(Path.cwd() / "text")]

    return lambda: {"box": Box(paths=[])}, change, lambda things: list(things["box"].paths)


class Name(str):
    __slots__ = ()


class Count(int):
    __slots__ = ()


class Metres(float):
    """A number with attributes."""


@kind
def subclasses_of_plain_types() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [Name("x"), Count(7)]

    def view(things: Things) -> Any:
        return [(type(one).__name__, str(one)) for one in things["box"].values]

    return lambda: {"box": Box(values=[Name("first"), Count(1)])}, change, view


@kind
def numbers_with_attributes() -> Kind:
    def change(things: Things) -> None:
        things["box"].length = Metres(2.5)
        things["box"].length.unit = "m"

    def view(things: Things) -> Any:
        length = things["box"].length
        return type(length).__name__, float(length), getattr(length, "unit", None)

    return lambda: {"box": Box(length=Metres(1.0))}, change, view


@kind
def streams_in_memory() -> Kind:
    def build() -> Things:
        return {"text": io.StringIO("start"), "bytes": io.BytesIO(b"start"), "box": Box(made=None)}

    def change(things: Things) -> None:
        things["text"].seek(0, 2)
        things["text"].write(" é\n")
        things["bytes"].read(2)
        things["bytes"].write(b"xy")
        things["box"].made = io.StringIO("late")
        things["box"].made.read(2)

    def view(things: Things) -> Any:
        made = things["box"].made
        streams = [things["text"], things["bytes"], *([made] if made else [])]
        return [(one.getvalue(), one.tell(), one.read()) for one in streams]

    return build, change, view


@kind
def closed_streams() -> Kind:
    def change(things: Things) -> None:
        things["text"].close()

    return lambda: {"text": io.StringIO("start")}, change, lambda things: things["text"].closed


@kind
def arrays_of_bytes() -> Kind:
    def build() -> Things:
        return {"numbers": array.array("d", [1.0]), "bytes": bytearray(b"a"), "box": Box(made=None)}

    def change(things: Things) -> None:
        things["numbers"].append(2.5)
        things["bytes"] += b"bc"
        things["box"].made = [array.array("i", [7]), bytearray(b"z")]

    def view(things: Things) -> Any:
        numbers, made = things["numbers"], things["box"].made
        return numbers.typecode, numbers.tolist(), bytes(things["bytes"]), repr(made)

    return build, change, view


@kind
def counts_and_cycles() -> Kind:
    def build() -> Things:
        return {
            "box": Box(
                count=itertools.count(), odd=itertools.count(1, 2), cycle=itertools.cycle("ab"), parts=iter([*"abcde"]),
                numbers=iter(range(9)), pairs=enumerate("uvwxyz"), both=zip(range(6), "abcdef", strict=True),
                chain=itertools.chain([1, 2], [3, 4, 5, 6]), turned=reversed([*range(6)]), rest=itertools.repeat(7, 6),
            )
        }  # fmt: skip

    def change(things: Things) -> None:
        for one in vars(things["box"]).values():
            next(one)
            next(one)

    return build, change, lambda things: [next(one) for one in vars(things["box"]).values()]


def add(left: Any, right: Any, *, scale: int = 1) -> Any:
    return (left + right) * scale


@kind
def partial_functions() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(call=functools.partial(add, shared, scale=1), shared=shared)}

    def change(things: Things) -> None:
        box = things["box"]
        box.shared.append(1)
        box.call = functools.partial(add, box.shared, scale=2)
        box.bound = functools.partial(box.shared.append, 8)

    def view(things: Things) -> Any:
        box = things["box"]
        before = box.call([5]), box.call.keywords, box.call.args[0] is box.shared, box.call.func is add
        if hasattr(box, "bound"):
            box.bound()
        return before, list(box.shared)

    return build, change, view


@kind
def methods_and_closures() -> Kind:
    def build() -> Things:
        return {"box": Box(of_class=Meter.make), "count": counting(), "meter": Meter()}

    def change(things: Things) -> None:
        things["count"]()
        things["meter"].update(2)
        things["box"].bound = things["meter"].update

    def view(things: Things) -> Any:
        box = things["box"]
        if hasattr(box, "bound"):
            box.bound(1)
        return things["count"](), things["meter"].total, box.of_class().total

    return build, change, view


def counting() -> Callable[[], int]:
    total = 0

    def count() -> int:
        nonlocal total
        total += 1
        return total

    return count


class Meter:
    def __init__(self) -> None:
        self.total = 0

    @classmethod
    def make(cls) -> Meter:
        return cls()

    def update(self, value: int) -> None:
        self.total += value


@kind
def weak_references() -> Kind:
    def build() -> Things:
        target, other = Meter(), Meter()
        return {
            "target": target, "other": other,
            "box": Box(ref=weakref.ref(target), values=weakref.WeakValueDictionary(a=target),
                       keys=weakref.WeakKeyDictionary({target: 1}), members=weakref.WeakSet([target]), dead=None),
        }  # fmt: skip

    def change(things: Things) -> None:
        box, other = things["box"], things["other"]
        other.update(3)
        box.ref = weakref.ref(other)
        box.values["b"] = other
        box.keys[other] = [2]
        box.members.discard(things["target"])
        box.members.add(other)
        box.dead = weakref.ref(Meter())

    def view(things: Things) -> Any:
        box, other, target = things["box"], things["other"], things["target"]
        return [
            box.ref() is other, box.ref() is target, sorted(box.values), box.values.get("b") is other,
            box.values["a"] is target, box.keys.get(other), box.keys[target], other in box.members,
            target in box.members, len(box.members), box.dead is not None and box.dead() is None, other.total,
        ]  # fmt: skip

    return build, change, view


class Stopped(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@kind
def exceptions() -> Kind:
    def change(things: Things) -> None:
        things["box"].error = Stopped("late")
        things["box"].error.add_note("a note")

    def view(things: Things) -> Any:
        error = things["box"].error
        return type(error).__name__, error.args, getattr(error, "reason", None), getattr(error, "__notes__", None)

    return lambda: {"box": Box(error=ValueError("first"), other=Stopped("other"))}, change, view


@kind
def causes_of_exceptions() -> Kind:
    def change(things: Things) -> None:
        things["box"].error.__cause__ = KeyError("inner")

    return lambda: {"box": Box(error=ValueError("a"))}, change, lambda things: repr(things["box"].error.__cause__)


@kind
def errors_of_the_system() -> Kind:
    def change(things: Things) -> None:
        things["box"].error = FileNotFoundError(2, "gone", "file")

    def view(things: Things) -> Any:
        error = things["box"].error
        return type(error).__name__, error.errno, error.filename, str(error)

    return lambda: {"box": Box(error=OSError("first"))}, change, view


class Base:
    __slots__ = ("kept",)


class Derived(Base):
    __slots__ = ("__dict__", "__weakref__", "own")


class Guarded:
    """A class that objects to being set."""

    def __init__(self) -> None:
        vars(self)["count"] = 0

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError("restoring calls no code of the class")


@kind
def slots_and_guarded_attributes() -> Kind:
    def build() -> Things:
        derived = Derived()
        derived.kept = [1]
        return {"derived": derived, "guarded": Guarded(), "box": Box(gone=1)}

    def change(things: Things) -> None:
        derived = things["derived"]
        derived.kept.append(2)
        derived.own = 3
        derived.other = derived.kept
        vars(things["guarded"])["count"] = 5
        vars(things["box"]).pop("gone", None)
        things["box"].made = Derived()
        things["box"].made.kept = derived

    def view(things: Things) -> Any:
        derived, box = things["derived"], things["box"]
        made = getattr(box, "made", None)
        return [
            derived.kept, getattr(derived, "own", None), getattr(derived, "other", None) is derived.kept,
            things["guarded"].count, hasattr(box, "gone"), made is not None and made.kept is derived,
            made is not None and hasattr(made, "own"),
        ]  # fmt: skip

    return build, change, lambda things: copy.deepcopy(view(things))


@kind
def objects_that_change_their_class() -> Kind:
    def change(things: Things) -> None:
        things["box"].inner.__class__ = Meter
        things["box"].inner.total = 4

    def view(things: Things) -> Any:
        return type(things["box"].inner).__name__, vars(things["box"].inner)

    return lambda: {"box": Box(inner=Box(total=1))}, change, lambda things: copy.deepcopy(view(things))


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", parameters(GAPS_WHEN_FRESH))
def test_a_kind_is_restored_into_one_that_was_built_again(tmp_path: Path, name: str) -> None:
    build, change, view = KINDS[name]
    things = build()
    keeper, written = taken(tmp_path, things, change)
    expected = view(things)
    untouched = view(build())
    del things
    keeper.capture.named.clear()
    gc.collect()
    fresh = build()
    before = dict(fresh)

    keeper.restore(written, **fresh)

    assert untouched != expected
    assert view(fresh) == expected
    assert all(fresh[key] is value for key, value in before.items())


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", parameters(GAPS_IN_PLACE))
def test_a_kind_is_restored_into_itself(tmp_path: Path, name: str) -> None:
    build, change, view = KINDS[name]
    things = build()
    keeper, written = taken(tmp_path, things, change)
    expected = view(things)
    change(things)

    keeper.restore(written, **things)

    assert view(things) == expected
