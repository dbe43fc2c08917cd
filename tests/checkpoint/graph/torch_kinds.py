"""Modules, optimizers, schedulers and tensors."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.checkpoint.graph.kinds import KINDS, Box, Kind, Things, kind, seen, torch

nn = torch.nn
schedulers = torch.optim.lr_scheduler


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
