"""State handlers: what is captured of each kind of object, and how it is restored into the same object."""

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

_SIMPLE_TYPES = (bool, int, float, str, type(None))
_MISSING = object()
_PARAMETER = "(parameter)"  # key of the parameter itself, beside the keys of its optimizer state
_requires_grad = attrgetter("requires_grad")
Flatten = Callable[[Any, str], Json]  # flattens a value into a tree; the name is for error messages
OtherState = Json | Callable[[], Json]  # a tree, or a function that builds it later from copies made now


class RestoreSource(Protocol):
    """The checkpoint that a handler restores from."""

    def unflatten(self, tree: Json) -> Any: ...
    def fill(self, leaf: int, target: Any) -> bool: ...
    def new_tensor(self, leaf: int) -> Any: ...
    def refill(self, before: Any, value: Any) -> Any: ...
    def live_object_for(self, value: Any) -> Any: ...


class StateHandler(Protocol):
    """Captures and restores one object.

    `tensors` are its leaves by key, which are copied at every capture; `has_same_layout` tells whether they are still
    the same tensors. `other_state` is the tree of everything else, which is small.
    """

    kind: str

    def tensors(self) -> dict[str, Any]: ...
    def has_same_layout(self) -> bool: ...
    def other_state(self, flatten: Flatten) -> OtherState: ...
    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None: ...


def handler_for(name: str, obj: Any) -> StateHandler:
    """Returns the handler of an object that the user named."""
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(obj, torch.nn.Module):
            return ModuleHandler(obj)
        if isinstance(obj, torch.optim.Optimizer) and _has_default_state_dict(obj, torch):
            return OptimizerHandler(obj)
    if is_leaf(obj):
        return ArrayHandler(obj)
    if is_generator(obj):
        return GeneratorHandler(obj)
    if hasattr(obj, "state_dict") and hasattr(obj, "load_state_dict"):
        return StateDictHandler(name, obj)
    return ValueHandler(name, obj)


def _has_default_state_dict(optimizer: Any, torch: Any) -> bool:
    base = torch.optim.Optimizer
    return type(optimizer).state_dict is base.state_dict and type(optimizer).load_state_dict is base.load_state_dict


class _TensorSlots:
    """Tensors in dicts, and a fast check that the dicts still hold the same ones."""

    def __init__(self) -> None:
        self._slots: tuple[list[dict[Any, Any]], list[Any], list[Any]] = [], [], []  # dicts, keys, values
        self._sized: tuple[list[dict[Any, Any]], list[int]] = [], []

    def add(self, holder: dict[Any, Any], key: Any, obj: Any) -> None:
        for column, value in zip(self._slots, (holder, key, obj), strict=True):
            column.append(value)

    def add_size(self, holder: dict[Any, Any]) -> None:
        self._sized[0].append(holder)
        self._sized[1].append(len(holder))

    def has_same_layout(self) -> bool:
        """Loops in C, because the training waits."""
        dicts, keys, values = self._slots
        holders, sizes = self._sized
        return all(map(is_, map(dict.get, dicts, keys), values)) and list(map(len, holders)) == sizes


def part_name(module: str, path: str) -> str:
    """Returns the name by which other entries refer to a layer, parameter or buffer of a module."""
    return f"{module}/{path}"


class ModuleHandler:
    """Captures parameters, all buffers (also non-persistent ones), modes and simple attributes of modules."""

    kind = "module"

    def __init__(self, module: Any) -> None:
        self._module = module
        self._tensor_slots = _TensorSlots()
        self._modules: list[tuple[str, Any]] = []
        self._dicts: list[dict[str, Any]] = []  # the `__dict__` of each module
        self._parameters: tuple[list[str], list[Any]] = [], []
        self.parts: dict[str, Any] = {}  # layers and tensors by path, to which other objects may refer

    def tensors(self) -> dict[str, Any]:
        self._tensor_slots = _TensorSlots()
        self._modules = list(self._module.named_modules(remove_duplicate=True))
        self._dicts = [module.__dict__ for _, module in self._modules]
        self._parameters = [], []
        tensors: dict[str, Any] = {}
        for prefix, module in self._modules:
            for holder in (module._modules, module._parameters, module._buffers):
                self._tensor_slots.add_size(holder)
                for key, obj in holder.items():
                    self._tensor_slots.add(holder, key, obj)
                    name = f"{prefix}.{key}" if prefix else key
                    if holder is module._parameters and obj is not None:
                        self._parameters[0].append(name)
                        self._parameters[1].append(obj)
                    if holder is not module._modules and obj is not None and is_leaf(obj):
                        tensors[name] = obj
        self.parts = {**dict(self._modules[1:]), **tensors}
        return tensors

    def has_same_layout(self) -> bool:
        return bool(self._modules) and self._tensor_slots.has_same_layout()

    def other_state(self, flatten: Flatten) -> OtherState:
        # Shallow copies are fast; the writer's thread selects from them.
        modules, (names, parameters) = self._modules, self._parameters
        copies = list(map(dict.copy, self._dicts))
        grads = list(map(_requires_grad, parameters))

        def build_tree() -> Json:
            attributes = {
                prefix: _simple_attributes(values) for (prefix, _), values in zip(modules, copies, strict=True)
            }
            frozen = [name for name, grad in zip(names, grads, strict=True) if not grad]
            return flatten({"attributes": attributes, "frozen": frozen}, "module")

        return build_tree

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        live = self.tensors()
        missing = [name for name in leaves if name not in live]
        if missing:
            raise ReliveError(
                f"the module has no {missing[0]!r}, which the checkpoint holds; build the same model first"
            )
        for name, leaf in leaves.items():
            if not source.fill(leaf, live[name]):
                live[name].data = source.new_tensor(leaf).to(live[name].device)
        state = source.unflatten(tree)
        frozen = set(state["frozen"])
        for prefix, module in self._modules:
            for key, value in state["attributes"].get(prefix, {}).items():
                if getattr(module, key, _MISSING) != value:
                    setattr(module, key, value)
        for name, parameter in zip(*self._parameters, strict=True):
            parameter.requires_grad_(name not in frozen)


def _simple_attributes(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if type(value) in _SIMPLE_TYPES and key[0] != "_"}


class OptimizerHandler:
    """Captures the state of each parameter and the options of each group; models capture their own parameters."""

    kind = "optimizer"

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._tensor_slots = _TensorSlots()
        self._is_known = False
        self._non_tensors: list[
            tuple[int, dict[str, Any], list[str]]
        ] = []  # parameter number, its state, the keys of values that aren't tensors

    def _parameters(self) -> list[Any]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def tensors(self) -> dict[str, Any]:
        self._tensor_slots, self._non_tensors, self._is_known = _TensorSlots(), [], True
        self._tensor_slots.add_size(self._optimizer.state)
        tensors: dict[str, Any] = {}
        for number, parameter in enumerate(self._parameters()):
            state = self._optimizer.state.get(parameter)
            if state is None:
                continue
            self._tensor_slots.add_size(state)
            plain = [key for key, value in state.items() if not is_leaf(value)]
            if plain or not state:
                self._non_tensors.append((number, state, plain))
            for key, tensor in state.items():
                if is_leaf(tensor):
                    self._tensor_slots.add(state, key, tensor)
                    tensors[f"{number}.{key}"] = tensor
        return tensors

    def parameters_beyond(self, known: Container[int]) -> dict[str, Any]:
        """Returns the parameters that no other handler captures: a script may train tensors that are in no module."""
        parameters = enumerate(self._parameters())
        return {f"{number}.{_PARAMETER}": one for number, one in parameters if id(one) not in known}

    def has_same_layout(self) -> bool:
        return self._is_known and self._tensor_slots.has_same_layout()

    def other_state(self, flatten: Flatten) -> OtherState:
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self._optimizer.param_groups]
        sizes = [len(group["params"]) for group in self._optimizer.param_groups]
        others = {number: {key: state[key] for key in keys} for number, state, keys in self._non_tensors}
        everything = {"groups": groups, "sizes": sizes, "others": others}
        if all(_is_immutable(value) for values in (*groups, *others.values()) for value in values.values()):
            return partial(flatten, everything, "optimizer")  # immutable values: nothing can change until it is written
        return flatten(everything, "optimizer")

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        state = source.unflatten(tree)
        groups = self._optimizer.param_groups
        if [len(group["params"]) for group in groups] != state["sizes"]:
            raise ReliveError("the optimizer has other parameter groups than the checkpoint; build the same one first")
        parameters = self._parameters()
        states: dict[int, dict[str, Any]] = {number: dict(plain) for number, plain in state["others"].items()}
        for name, leaf in leaves.items():
            index, _, key = name.partition(".")
            parameter = parameters[int(index)]
            if key == _PARAMETER:
                if not source.fill(leaf, parameter):
                    parameter.data = source.new_tensor(leaf).to(parameter.device)
                continue
            live = self._optimizer.state.get(parameter, {}).get(key)
            if live is None or not is_leaf(live) or not source.fill(leaf, live):
                fresh = source.new_tensor(leaf)
                live = fresh if key == "step" and fresh.ndim == 0 else fresh.to(parameter.device)
            states.setdefault(int(index), {})[key] = live
        self._optimizer.state.clear()
        for number, values in states.items():
            self._optimizer.state[parameters[number]] = values
        for group, options in zip(groups, state["groups"], strict=True):
            group.update(options)


def _is_immutable(value: Any) -> bool:
    return type(value) in _SIMPLE_TYPES or (type(value) is tuple and all(map(_is_immutable, value)))


class ArrayHandler:
    """Captures a tensor or an array, and restores it in place."""

    kind = "array"

    def __init__(self, array: Any) -> None:
        self._array = array

    def tensors(self) -> dict[str, Any]:
        return {"": self._array}

    def has_same_layout(self) -> bool:
        return True

    def other_state(self, flatten: Flatten) -> Json:
        return None

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        if not source.fill(leaves[""], self._array):
            raise ReliveError("the array has another type or shape than the checkpoint; give one like the original")


class TensorlessHandler:
    """Base of handlers without large tensors: all of the state is `other_state`."""

    def tensors(self) -> dict[str, Any]:
        return {}

    def has_same_layout(self) -> bool:
        return True


class GeneratorHandler(TensorlessHandler):
    """Captures the state of a random generator."""

    kind = "generator"

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def other_state(self, flatten: Flatten) -> Json:
        return flatten(generator_state(self._generator), "generator")

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        restore_generator(self._generator, source.unflatten(tree))


class StateDictHandler(TensorlessHandler):
    """Captures anything with a state_dict: schedulers, scalers, stateful loaders, metrics."""

    kind = "state_dict"

    def __init__(self, name: str, obj: Any) -> None:
        self._name = name
        self._object = obj

    def other_state(self, flatten: Flatten) -> Json:
        return flatten(self._object.state_dict(), self._name)

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        self._object.load_state_dict(source.unflatten(tree))


class ValueHandler(TensorlessHandler):
    """Captures any other object by value; restores containers by refilling them, other objects by their attributes."""

    kind = "value"

    def __init__(self, name: str, obj: Any) -> None:
        self._name = name
        self._object = obj

    def other_state(self, flatten: Flatten) -> Json:
        return flatten(self._object, self._name)

    def restore(self, leaves: dict[str, int], tree: Json, source: RestoreSource) -> None:
        value, obj = source.unflatten(tree), self._object
        if isinstance(obj, list):
            obj[:] = value
        elif isinstance(obj, dict | set):
            obj.clear()
            obj.update(value)
        elif isinstance(obj, deque):
            obj.clear()
            obj.extend(value)
        elif hasattr(obj, "__dict__"):
            obj.__dict__.clear()
            obj.__dict__.update(value.__dict__)
        elif obj != value:
            raise ReliveError(f"{self._name} can't be changed in place; take it from what restore() gives back")
