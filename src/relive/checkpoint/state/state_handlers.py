"""What each kind of object keeps between iterations, and how it is put back into the very same object."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Container
from functools import partial
from operator import attrgetter, is_
from typing import Any, Protocol

from relive.checkpoint.memory import Json, is_leaf
from relive.checkpoint.state.random_state import generator_state, is_generator, restore_generator
from relive.errors import ReliveError

_ATTRIBUTES = (bool, int, float, str, type(None))
_MISSING = object()
_PARAMETER = "(parameter)"  # beside the state of a parameter, the parameter itself
_requires_grad = attrgetter("requires_grad")
Rest = Json | Callable[[], Json]  # a tree, or what makes it later, from copies made now


class RestoreSource(Protocol):
    """Gives back what was taken out of a tree."""

    def value(self, tree: Json) -> Any: ...
    def fill(self, leaf: int, target: Any) -> bool: ...
    def made(self, leaf: int) -> Any: ...
    def settle(self, before: Any, value: Any) -> Any: ...
    def settled(self, value: Any) -> Any: ...


class StateHandler(Protocol):
    """An object whose state is kept. `tensors` are large and stay where they are; `rest` is small and changes."""

    kind: str

    def tensors(self) -> dict[str, Any]: ...
    def is_same(self) -> bool: ...
    def rest(self, plant: Callable[[Any, str], Json]) -> Rest: ...
    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None: ...


def handler_for(name: str, thing: Any) -> StateHandler:
    """The subject for an object that the user named."""
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(thing, torch.nn.Module):
            return ModuleHandler(thing)
        if isinstance(thing, torch.optim.Optimizer) and _has_plain_state(thing, torch):
            return OptimizerHandler(thing)
    if is_leaf(thing):
        return ArrayHandler(thing)
    if is_generator(thing):
        return GeneratorHandler(thing)
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return StateDictHandler(name, thing)
    return ValueHandler(name, thing)


def _has_plain_state(optimizer: Any, torch: Any) -> bool:
    base = torch.optim.Optimizer
    return type(optimizer).state_dict is base.state_dict and type(optimizer).load_state_dict is base.load_state_dict


class _Slots:
    """Tensors found in dicts, and a quick look whether they are still the ones that were found."""

    def __init__(self) -> None:
        self._slots: tuple[list[dict[Any, Any]], list[Any], list[Any]] = [], [], []  # dicts, keys, what was there
        self._sized: tuple[list[dict[Any, Any]], list[int]] = [], []

    def keep(self, holder: dict[Any, Any], key: Any, thing: Any) -> None:
        for column, value in zip(self._slots, (holder, key, thing), strict=True):
            column.append(value)

    def watch(self, holder: dict[Any, Any]) -> None:
        self._sized[0].append(holder)
        self._sized[1].append(len(holder))

    def is_same(self) -> bool:
        """In loops of C, because the training waits for the answer."""
        dicts, keys, things = self._slots
        holders, sizes = self._sized
        return all(map(is_, map(dict.get, dicts, keys), things)) and list(map(len, holders)) == sizes


def part_name(module: str, way: str) -> str:
    """What a layer, a parameter or a buffer of a module is called where it is only referred to."""
    return f"{module}/{way}"


class ModuleHandler:
    """Parameters, all buffers (also those that a state_dict leaves out), modes and simple attributes of modules."""

    kind = "module"

    def __init__(self, module: Any) -> None:
        self._module = module
        self._found = _Slots()
        self._modules: list[tuple[str, Any]] = []
        self._dicts: list[dict[str, Any]] = []  # the attributes of each of them
        self._parameters: tuple[list[str], list[Any]] = [], []
        self.parts: dict[str, Any] = {}  # everything in it that others may hold, too

    def tensors(self) -> dict[str, Any]:
        self._found = _Slots()
        self._modules = list(self._module.named_modules(remove_duplicate=True))
        self._dicts = [module.__dict__ for _, module in self._modules]
        self._parameters = [], []
        tensors: dict[str, Any] = {}
        for prefix, module in self._modules:
            for holder in (module._modules, module._parameters, module._buffers):
                self._found.watch(holder)
                for key, thing in holder.items():
                    self._found.keep(holder, key, thing)
                    name = f"{prefix}.{key}" if prefix else key
                    if holder is module._parameters and thing is not None:
                        self._parameters[0].append(name)
                        self._parameters[1].append(thing)
                    if holder is not module._modules and thing is not None and is_leaf(thing):
                        tensors[name] = thing
        self.parts = {**dict(self._modules[1:]), **tensors}
        return tensors

    def is_same(self) -> bool:
        return bool(self._modules) and self._found.is_same()

    def rest(self, plant: Callable[[Any, str], Json]) -> Rest:
        # Shallow copies are quick to make here; choosing from them is left to the writer's thread.
        modules, (names, parameters) = self._modules, self._parameters
        copies = list(map(dict.copy, self._dicts))
        grads = list(map(_requires_grad, parameters))

        def later() -> Json:
            attributes = {prefix: _simple(values) for (prefix, _), values in zip(modules, copies, strict=True)}
            frozen = [name for name, grad in zip(names, grads, strict=True) if not grad]
            return plant({"attributes": attributes, "frozen": frozen}, "module")

        return later

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        live = self.tensors()
        missing = [name for name in leaves if name not in live]
        if missing:
            raise ReliveError(
                f"the module has no {missing[0]!r}, which the checkpoint holds; build the same model first"
            )
        for name, leaf in leaves.items():
            if not source.fill(leaf, live[name]):
                live[name].data = source.made(leaf).to(live[name].device)
        kept = source.value(rest)
        frozen = set(kept["frozen"])
        for prefix, module in self._modules:
            for key, value in kept["attributes"].get(prefix, {}).items():
                if getattr(module, key, _MISSING) != value:
                    setattr(module, key, value)
        for name, parameter in zip(*self._parameters, strict=True):
            parameter.requires_grad_(name not in frozen)


def _simple(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if type(value) in _ATTRIBUTES and key[0] != "_"}


class OptimizerHandler:
    """The state of each parameter, and the numbers of each group; parameters that are a model's are left to it."""

    kind = "optimizer"

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._found = _Slots()
        self._is_known = False
        self._plain: list[tuple[int, dict[str, Any], list[str]]] = []  # what of a state isn't a tensor

    def _parameters(self) -> list[Any]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def tensors(self) -> dict[str, Any]:
        self._found, self._plain, self._is_known = _Slots(), [], True
        self._found.watch(self._optimizer.state)
        tensors: dict[str, Any] = {}
        for number, parameter in enumerate(self._parameters()):
            state = self._optimizer.state.get(parameter)
            if state is None:
                continue
            self._found.watch(state)
            plain = [key for key, value in state.items() if not is_leaf(value)]
            if plain or not state:
                self._plain.append((number, state, plain))
            for key, tensor in state.items():
                if is_leaf(tensor):
                    self._found.keep(state, key, tensor)
                    tensors[f"{number}.{key}"] = tensor
        return tensors

    def parameters_beyond(self, known: Container[int]) -> dict[str, Any]:
        """The parameters that nobody else keeps: a script may train a tensor that is in no module."""
        parameters = enumerate(self._parameters())
        return {f"{number}.{_PARAMETER}": one for number, one in parameters if id(one) not in known}

    def is_same(self) -> bool:
        return self._is_known and self._found.is_same()

    def rest(self, plant: Callable[[Any, str], Json]) -> Rest:
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self._optimizer.param_groups]
        sizes = [len(group["params"]) for group in self._optimizer.param_groups]
        others = {number: {key: state[key] for key in keys} for number, state, keys in self._plain}
        everything = {"groups": groups, "sizes": sizes, "others": others}
        if all(_is_fixed(value) for values in (*groups, *others.values()) for value in values.values()):
            return partial(plant, everything, "optimizer")  # nothing of it can change until it is written
        return plant(everything, "optimizer")

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        kept = source.value(rest)
        groups = self._optimizer.param_groups
        if [len(group["params"]) for group in groups] != kept["sizes"]:
            raise ReliveError("the optimizer has other parameter groups than the checkpoint; build the same one first")
        parameters = self._parameters()
        states: dict[int, dict[str, Any]] = {number: dict(plain) for number, plain in kept["others"].items()}
        for name, leaf in leaves.items():
            at, _, key = name.partition(".")
            parameter = parameters[int(at)]
            if key == _PARAMETER:
                if not source.fill(leaf, parameter):
                    parameter.data = source.made(leaf).to(parameter.device)
                continue
            live = self._optimizer.state.get(parameter, {}).get(key)
            if live is None or not is_leaf(live) or not source.fill(leaf, live):
                made = source.made(leaf)
                live = made if key == "step" and made.ndim == 0 else made.to(parameter.device)
            states.setdefault(int(at), {})[key] = live
        self._optimizer.state.clear()
        for number, state in states.items():
            self._optimizer.state[parameters[number]] = state
        for group, values in zip(groups, kept["groups"], strict=True):
            group.update(values)


def _is_fixed(value: Any) -> bool:
    return type(value) in _ATTRIBUTES or (type(value) is tuple and all(map(_is_fixed, value)))


class ArrayHandler:
    """A tensor or an array, kept in place."""

    kind = "array"

    def __init__(self, array: Any) -> None:
        self._array = array

    def tensors(self) -> dict[str, Any]:
        return {"": self._array}

    def is_same(self) -> bool:
        return True

    def rest(self, plant: Callable[[Any, str], Json]) -> Json:
        return None

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        if not source.fill(leaves[""], self._array):
            raise ReliveError("the array has another type or shape than the checkpoint; give one like the original")


class _Small:
    """A subject without large tensors of its own: all of it is `rest`."""

    def tensors(self) -> dict[str, Any]:
        return {}

    def is_same(self) -> bool:
        return True


class GeneratorHandler(_Small):
    kind = "generator"

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def rest(self, plant: Callable[[Any, str], Json]) -> Json:
        return plant(generator_state(self._generator), "generator")

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        restore_generator(self._generator, source.value(rest))


class StateDictHandler(_Small):
    """Anything with a state_dict: schedulers, scalers, stateful loaders, metrics."""

    kind = "state_dict"

    def __init__(self, name: str, thing: Any) -> None:
        self._name = name
        self._thing = thing

    def rest(self, plant: Callable[[Any, str], Json]) -> Json:
        return plant(self._thing.state_dict(), self._name)

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        self._thing.load_state_dict(source.value(rest))


class ValueHandler(_Small):
    """Lists, dicts and other containers are refilled; any other object gets its attributes back."""

    kind = "value"

    def __init__(self, name: str, thing: Any) -> None:
        self._name = name
        self._thing = thing

    def rest(self, plant: Callable[[Any, str], Json]) -> Json:
        return plant(self._thing, self._name)

    def put_back(self, leaves: dict[str, int], rest: Json, source: RestoreSource) -> None:
        value, thing = source.value(rest), self._thing
        if isinstance(thing, list):
            thing[:] = value
        elif isinstance(thing, dict | set):
            thing.clear()
            thing.update(value)
        elif isinstance(thing, deque):
            thing.clear()
            thing.extend(value)
        elif hasattr(thing, "__dict__"):
            thing.__dict__.clear()
            thing.__dict__.update(value.__dict__)
        elif thing != value:
            raise ReliveError(f"{self._name} can't be changed in place; take it from what restore() gives back")
