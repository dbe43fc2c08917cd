"""Discovers objects with state around a loop that the user did not name: modules, optimizers, generators, objects."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import is_project_module, names_read_by_functions, project_modules
from relive.checkpoint.state.function_state import (
    FileHandler,
    NamespaceHandler,
    UnsupportedHandler,
    class_namespace,
    function_namespace,
    function_objects,
    function_setter,  # fmt: skip
    is_input_file,
    module_namespace,
)
from relive.checkpoint.state.loader_iterators import (
    LoaderIteratorHandler,
    is_tracked_iterator,
    loader_iterator_classes,
    loader_iterator_name,
)
from relive.checkpoint.state.module_parts import ModulePartsCache
from relive.checkpoint.state.object_state import (
    MAX_OBJECTS,
    ModuleAttributesHandler,
    ObjectHandler,
    attributes_of,
    extra_attributes,  # fmt: skip
    has_uncaptured_objects,
    is_untracked_iterator,
    is_user_object,
)
from relive.checkpoint.state.random_state import generator_classes, is_generator
from relive.checkpoint.state.simulation_state import (
    AttributesHandler,
    environment_classes,
    environment_handlers,
    is_environment,
)
from relive.checkpoint.state.state_handlers import (
    GeneratorHandler,
    StateDictHandler,
    StateHandler,
    ValueHandler,
    handler_for,
)
from relive.checkpoint.state.trainer_state import TrainerState

MAX_DEPTH = 4
_CONTAINERS = (list, tuple, dict)
# Instances hold nothing that discovery looks for.
_STATELESS_TYPES = frozenset({type(None), int, float, str, bool, bytes, ModuleType})
_CODE = (FunctionType, MethodType, type)
_TRAINER_CLASSES = (
    ("transformers.trainer", "Trainer", "transformers"),
    ("lightning.pytorch.trainer.trainer", "Trainer", "Lightning"),
    ("pytorch_lightning.trainer.trainer", "Trainer", "Lightning"),
    ("keras.src.models.model", "Model", "Keras"),
)


@dataclass(slots=True)
class DiscoveredState:
    """The handlers of discovered objects, and the objects themselves, by the same names."""

    handlers: dict[str, StateHandler] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)


def discover_state(
    frames: Sequence[FrameType], named: Mapping[str, Any], bound_inside: Mapping[int, Collection[str]], *,
    modules: ModulePartsCache, with_empty: bool = False,
) -> DiscoveredState:  # fmt: skip
    """Discovers the state in these frames and in the project's modules, except the named objects.

    `bound_inside` lists for each frame the variables that the loop binds: they do not exist if the loop is skipped.
    Variables of the first frame keep their names, others are prefixed with their function or module. `with_empty` also
    returns functions, classes and modules without state, into which state may be restored.
    """
    discovery = _Discovery(identities_of(named.values(), modules), modules, with_empty=with_empty)
    for name, obj in named.items():
        discovery.visit_named(name, obj)
    for at, frame in enumerate(frames):
        inside = bound_inside.get(id(frame), ())
        prefix = "" if not at else f"{frame.f_code.co_qualname}."
        for name, value in list(frame.f_locals.items()):
            if name not in inside:
                discovery.visit(prefix + name, value, 0)
    module_frames = {
        id(frame.f_globals): bound_inside.get(id(frame), ()) for frame in frames if _is_module_frame(frame)
    }
    for module in project_modules():
        discovery.visit_project_module(module, module_frames.get(id(vars(module)), ()))
    return discovery.found


def _is_module_frame(frame: FrameType) -> bool:
    return frame.f_code.co_name == "<module>"


class _Discovery:
    """Visits variables and the attributes of objects recursively, each object once."""

    def __init__(self, named: Collection[int], modules: ModulePartsCache, *, with_empty: bool = False) -> None:
        self.found = DiscoveredState()
        self._modules = modules
        self._with_empty = with_empty
        self._seen = set(named)

    def visit_project_module(self, module: ModuleType, bound_inside: Collection[str]) -> None:
        """Visits the globals of a module of the project."""
        prefix, read = f"{module.__name__}.", names_read_by_functions(getattr(module, "__file__", None) or "")
        for name, value in list(vars(module).items()):
            if name in bound_inside or name.startswith("__"):
                continue
            if is_untracked_iterator(value) and name in read:
                why = f"{name} is an iterator, whose position can't be kept"
                self._add(prefix + name, UnsupportedHandler(why), value)
            self.visit(prefix + name, value, 0)
        if self._with_empty or module_namespace(module):
            namespace = partial(_without_names, partial(module_namespace, module), frozenset(bound_inside))
            handler = NamespaceHandler(module.__name__, module, namespace, vars(module).__setitem__)
            self._add(prefix[:-1], handler, module)

    def visit(self, name: str, value: Any, depth: int) -> None:
        kind: Any = type(value)
        if kind in _STATELESS_TYPES or id(value) in self._seen:
            return
        if kind in _CONTAINERS:
            self._visit_container(name, value, depth)
        elif isinstance(value, _CODE):
            self._visit_code(name, value, depth)
        elif _is_file(kind) and is_input_file(value):
            self._add(name, FileHandler(name, value), value)
        else:
            self._visit_object(name, value, depth)

    def visit_named(self, name: str, obj: Any) -> None:
        """Visits what a named object holds beyond the state that its handler captures."""
        if isinstance(obj, TrainerState):
            for path, inner in obj.foreign_objects().items():
                self.visit(path, inner, 0)
        elif _is_module(obj):
            self._visit_torch_modules(name, obj, 0)

    def _visit_container(self, name: str, value: Any, depth: int) -> None:
        if has_uncaptured_objects(value):
            why = f"{name} holds more than {MAX_OBJECTS} objects; name it in checkpointing"
            self._add(name, UnsupportedHandler(why), value)
        elif depth < MAX_DEPTH and 0 < len(value) <= MAX_OBJECTS:
            self._seen.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in list(items):
                self.visit(f"{name}[{key!r}]", item, depth + 1)

    def _visit_code(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, MethodType):
            self.visit(f"{name}.__self__", value.__self__, depth)
            return
        if depth >= MAX_DEPTH or not is_project_module(value.__module__ or ""):
            return
        self._seen.add(id(value))
        if isinstance(value, FunctionType):
            if self._with_empty or function_namespace(value):
                namespace = partial(function_namespace, value)
                self._add(name, NamespaceHandler(name, value, namespace, function_setter(value)), value)
            for key, inner in function_objects(value).items():
                self.visit(f"{name}.{key}", inner, depth + 1)
            return
        if self._with_empty or class_namespace(value):
            namespace = partial(class_namespace, value)
            self._add(name, NamespaceHandler(name, value, namespace, partial(setattr, value)), value)
        for key, inner in list(vars(value).items()):
            self.visit(f"{name}.{key}", getattr(inner, "__func__", inner), depth + 1)

    def _visit_object(self, name: str, value: Any, depth: int) -> None:
        for part, handler, obj in _handlers_of(name, value):
            if id(obj) not in self._seen:
                self._add(part, handler, obj)
                self._mark_parts_seen(obj)
        if _is_module(value):
            self._visit_torch_modules(name, value, depth)
        if id(value) not in self._seen and depth < MAX_DEPTH and is_user_object(value):
            self._add(name, ObjectHandler(name, value), value)
            for attribute, inner in attributes_of(value).items():
                self.visit(f"{name}.{attribute}", inner, depth + 1)

    def _visit_torch_modules(self, name: str, value: Any, depth: int) -> None:
        """Visits the lists, counters and objects that torch modules of the project hold besides their tensors."""
        for path, module in self._modules.parts_of(value).of_project:
            full_name = f"{name}.{path}" if path else name
            attributes = extra_attributes(module)
            if self._with_empty or attributes:
                self._add(f"{full_name} (attributes)", ModuleAttributesHandler(full_name, module), module)
            for attribute, inner in attributes.items():
                self.visit(f"{full_name}.{attribute}", inner, depth + 1)

    def _add(self, name: str, handler: StateHandler, obj: Any) -> None:
        self._seen.add(id(obj))
        while name in self.found.handlers:  # a recursive function has several frames with the same variables
            name += "'"
        self.found.handlers[name] = handler
        self.found.objects[name] = obj

    def _mark_parts_seen(self, obj: Any) -> None:
        """Marks the parts of an object as seen: its handler captures them."""
        if _is_module(obj):
            self._seen |= self._modules.parts_of(obj).identities
        elif isinstance(obj, TrainerState):
            self._seen.update(id(part) for part in obj.parts())


def _is_module(obj: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.nn.Module)


def _without_names(namespace: Callable[[], Mapping[str, Any]], excluded: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in namespace().items() if name not in excluded}


def identities_of(objects: Iterable[Any], modules: ModulePartsCache) -> set[int]:
    """Returns the identities of these objects and of all their parts."""
    discovery = _Discovery((), modules)
    for obj in objects:
        discovery._seen.add(id(obj))
        discovery._mark_parts_seen(obj)
    return discovery._seen


@lru_cache(maxsize=4096)
def _is_file(kind: type) -> bool:
    return issubclass(kind, io.IOBase)


@lru_cache(maxsize=4096)
def _may_have_handler(kind: type, _loaded: int) -> bool:
    """Whether instances of a class may have a handler; evaluated again when more modules are loaded.

    Nearly no value in a variable has one, so this check is cached per class.
    """
    torch, estimators = sys.modules.get("torch"), sys.modules.get("sklearn.base")
    kinds = [
        *generator_classes(),
        *(kind for _, kind in _loaded_trainer_classes()),
        *environment_classes(),
        *loader_iterator_classes(),
    ]
    kinds += [estimators.BaseEstimator] if estimators is not None else []
    if torch is not None:
        kinds += [torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler,
                  torch.utils.data.DataLoader, torch.utils.data.Sampler]  # fmt: skip
    return issubclass(kind, tuple(kinds))


def _handlers_of(name: str, value: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    kind: Any = type(value)
    if not _may_have_handler(kind, len(sys.modules)):
        return
    if is_generator(value):
        yield name, GeneratorHandler(value), value
        return
    trained_by = next((library for library, kind in _loaded_trainer_classes() if isinstance(value, kind)), None)
    if trained_by is not None:
        why = f"{name} is trained by {trained_by}, whose state is kept only inside its own loop"
        yield name, UnsupportedHandler(why), value
        return
    if is_tracked_iterator(value):
        yield loader_iterator_name(name, value), LoaderIteratorHandler(name, value), value
        return
    if is_environment(value):
        yield from environment_handlers(name, value)
        return
    estimators = sys.modules.get("sklearn.base")
    if estimators is not None and isinstance(value, estimators.BaseEstimator):
        yield name, AttributesHandler(name, value), value
        return
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        yield name, handler_for(name, value), value
    elif isinstance(value, torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
        yield name, StateDictHandler(name, value), value
    elif isinstance(value, torch.utils.data.DataLoader):
        yield from _loader_handlers(name, value)
    elif isinstance(value, torch.utils.data.Sampler):
        yield from _sampler_handlers(name, value)


def _loaded_trainer_classes() -> Iterator[tuple[str, type]]:
    """Yields the loaded classes of libraries that run the training loop themselves."""
    for module, name, library in _TRAINER_CLASSES:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None:
            yield library, kind


def _loader_handlers(name: str, loader: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    if hasattr(loader, "state_dict"):
        yield name, StateDictHandler(name, loader), loader
    if loader.generator is not None:
        yield f"{name}.generator", GeneratorHandler(loader.generator), loader.generator
    if loader.sampler is not None:
        yield from _sampler_handlers(f"{name}.sampler", loader.sampler)


def _sampler_handlers(name: str, sampler: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    generator = getattr(sampler, "generator", None)
    if is_generator(generator):
        yield f"{name}.generator", GeneratorHandler(generator), generator
    epoch = getattr(sampler, "epoch", None)
    if isinstance(epoch, int):
        yield name, _AttributeHandler(name, sampler, "epoch"), sampler


class _AttributeHandler(ValueHandler):
    """Captures one attribute of an object and nothing else of it."""

    kind = "attribute"

    def __init__(self, name: str, owner: Any, attribute: str) -> None:
        super().__init__(name, getattr(owner, attribute))
        self._owner, self._attribute = owner, attribute

    def other_state(self, flatten: Any) -> Any:
        return flatten(getattr(self._owner, self._attribute), self._name)

    def restore(self, leaves: dict[str, int], tree: Any, source: Any) -> None:
        setattr(self._owner, self._attribute, source.unflatten(tree))
