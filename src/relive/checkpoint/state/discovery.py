"""Objects near a loop that carry state nobody named: modules, optimizers, generators, objects of the user's classes."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from relive.checkpoint.analysis import is_projects, project_modules, read_by_functions
from relive.checkpoint.state.function_state import (
    FileHandler,
    LostHandler,
    PlacesHandler,
    class_places,
    function_objects,
    function_places,
    is_read_file,
    module_places,
    put_into_function,  # fmt: skip
)
from relive.checkpoint.state.loader_iterators import LoaderIteratorHandler, batches_classes, is_watched, name_of_batches
from relive.checkpoint.state.module_parts import ModulePartsCache
from relive.checkpoint.state.object_state import (
    MAX_OBJECTS,
    ModuleAttributes,
    ObjectHandler,
    attributes_of,
    is_lost_iterator,
    is_users_object,
    loses_objects,
    own_attributes,  # fmt: skip
)
from relive.checkpoint.state.random_state import generator_classes, is_generator
from relive.checkpoint.state.simulation_state import (
    AttributesHandler,
    environment_classes,
    environments,
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
_EMPTY = frozenset({type(None), int, float, str, bool, bytes, ModuleType})  # hold nothing that is looked for here
_CODE = (FunctionType, MethodType, type)
_LEADERS = (
    ("transformers.trainer", "Trainer", "transformers"),
    ("lightning.pytorch.trainer.trainer", "Trainer", "Lightning"),
    ("pytorch_lightning.trainer.trainer", "Trainer", "Lightning"),
    ("keras.src.models.model", "Model", "Keras"),
)


@dataclass(slots=True)
class DiscoveredState:
    """What was found, and the objects themselves, by the same names."""

    subjects: dict[str, StateHandler] = field(default_factory=dict)
    things: dict[str, Any] = field(default_factory=dict)


def discover_state(
    frames: Sequence[FrameType], named: Mapping[str, Any], made_inside: Mapping[int, Collection[str]], *,
    modules: ModulePartsCache, with_empty: bool = False,
) -> DiscoveredState:  # fmt: skip
    """What these frames, and the modules of the project, hold that changes while training, but for what was named.

    `made_inside` says for a frame which of its variables the loop makes anew: those are not there when it is skipped.
    Variables of the first frame have their own names, all others are told apart by where they are. `with_empty` finds
    also functions, classes and modules that hold nothing yet: they may get something back.
    """
    walk = _Walk(covered(named.values(), modules), modules, with_empty=with_empty)
    for name, thing in named.items():
        walk.look_behind(name, thing)
    for at, frame in enumerate(frames):
        inside = made_inside.get(id(frame), ())
        prefix = "" if not at else f"{frame.f_code.co_qualname}."
        for name, value in list(frame.f_locals.items()):
            if name not in inside:
                walk.look(prefix + name, value, 0)
    tops = {id(frame.f_globals): made_inside.get(id(frame), ()) for frame in frames if _is_top(frame)}
    for module in project_modules():
        walk.look_into(module, tops.get(id(vars(module)), ()))
    return walk.found


def _is_top(frame: FrameType) -> bool:
    return frame.f_code.co_name == "<module>"


class _Walk:
    """Looks through variables, and the attributes of objects, each thing once."""

    def __init__(self, named: Collection[int], modules: ModulePartsCache, *, with_empty: bool = False) -> None:
        self.found = DiscoveredState()
        self._modules = modules
        self._with_empty = with_empty
        self._seen = set(named)

    def look_into(self, module: ModuleType, made_inside: Collection[str]) -> None:
        """Everything a module of the project holds."""
        prefix, read = f"{module.__name__}.", read_by_functions(getattr(module, "__file__", None) or "")
        for name, value in list(vars(module).items()):
            if name in made_inside or name.startswith("__"):
                continue
            if is_lost_iterator(value) and name in read:
                self._add(prefix + name, LostHandler(f"{name} is an iterator, whose place can't be kept"), value)
            self.look(prefix + name, value, 0)
        if self._with_empty or module_places(module):
            places = partial(_without, partial(module_places, module), frozenset(made_inside))
            self._add(prefix[:-1], PlacesHandler(module.__name__, module, places, vars(module).__setitem__), module)

    def look(self, name: str, value: Any, depth: int) -> None:
        kind: Any = type(value)
        if kind in _EMPTY or id(value) in self._seen:
            return
        if kind in _CONTAINERS:
            self._look_through(name, value, depth)
        elif isinstance(value, _CODE):
            self._look_at_code(name, value, depth)
        elif _is_file(kind) and is_read_file(value):
            self._add(name, FileHandler(name, value), value)
        else:
            self._look_at_object(name, value, depth)

    def look_behind(self, name: str, thing: Any) -> None:
        """What something that was named holds besides what is kept of it by its name."""
        if isinstance(thing, TrainerState):
            for way, inner in thing.things().items():
                self.look(way, inner, 0)
        elif _is_module(thing):
            self._look_into_modules(name, thing, 0)

    def _look_through(self, name: str, value: Any, depth: int) -> None:
        if loses_objects(value):
            why = f"{name} holds more than {MAX_OBJECTS} objects; name it in checkpointing"
            self._add(name, LostHandler(why), value)
        elif depth < MAX_DEPTH and 0 < len(value) <= MAX_OBJECTS:
            self._seen.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in list(items):
                self.look(f"{name}[{key!r}]", item, depth + 1)

    def _look_at_code(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, MethodType):
            self.look(f"{name}.__self__", value.__self__, depth)
            return
        if depth >= MAX_DEPTH or not is_projects(value.__module__ or ""):
            return
        self._seen.add(id(value))
        if isinstance(value, FunctionType):
            if self._with_empty or function_places(value):
                places = partial(function_places, value)
                self._add(name, PlacesHandler(name, value, places, put_into_function(value)), value)
            for key, inner in function_objects(value).items():
                self.look(f"{name}.{key}", inner, depth + 1)
            return
        if self._with_empty or class_places(value):
            self._add(name, PlacesHandler(name, value, partial(class_places, value), partial(setattr, value)), value)
        for key, inner in list(vars(value).items()):
            self.look(f"{name}.{key}", getattr(inner, "__func__", inner), depth + 1)

    def _look_at_object(self, name: str, value: Any, depth: int) -> None:
        for part, subject, thing in _subjects(name, value):
            if id(thing) not in self._seen:
                self._add(part, subject, thing)
                self._cover(thing)
        if _is_module(value):
            self._look_into_modules(name, value, depth)
        if id(value) not in self._seen and depth < MAX_DEPTH and is_users_object(value):
            self._add(name, ObjectHandler(name, value), value)
            for attribute, inner in attributes_of(value).items():
                self.look(f"{name}.{attribute}", inner, depth + 1)

    def _look_into_modules(self, name: str, value: Any, depth: int) -> None:
        """Lists, counters and objects that the user's own modules gather."""
        for way, module in self._modules.parts_of(value).own:
            whole = f"{name}.{way}" if way else name
            own = own_attributes(module)
            if self._with_empty or own:
                self._add(f"{whole} (attributes)", ModuleAttributes(whole, module), module)
            for attribute, inner in own.items():
                self.look(f"{whole}.{attribute}", inner, depth + 1)

    def _add(self, name: str, subject: StateHandler, thing: Any) -> None:
        self._seen.add(id(thing))
        while name in self.found.subjects:  # a function that calls itself has its variables more than once
            name += "'"
        self.found.subjects[name] = subject
        self.found.things[name] = thing

    def _cover(self, thing: Any) -> None:
        """A module's parts need not be looked at again."""
        if _is_module(thing):
            self._seen |= self._modules.parts_of(thing).identities
        elif isinstance(thing, TrainerState):
            self._seen.update(id(part) for part in thing.parts())


def _is_module(thing: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.nn.Module)


def _without(places: Callable[[], Mapping[str, Any]], left_out: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in places().items() if name not in left_out}


def covered(objects: Iterable[Any], modules: ModulePartsCache) -> set[int]:
    """The objects that were named, and all modules inside them."""
    walk = _Walk((), modules)
    for thing in objects:
        walk._seen.add(id(thing))
        walk._cover(thing)
    return walk._seen


@lru_cache(maxsize=4096)
def _is_file(kind: type) -> bool:
    return issubclass(kind, io.IOBase)


@lru_cache(maxsize=4096)
def _may_be_subject(kind: type, _loaded: int) -> bool:
    """Nearly nothing that variables hold is; asked once for each class, and again when more modules are loaded."""
    torch, estimators = sys.modules.get("torch"), sys.modules.get("sklearn.base")
    kinds = [*generator_classes(), *(leader for _, leader in _leaders()), *environment_classes(), *batches_classes()]
    kinds += [estimators.BaseEstimator] if estimators is not None else []
    if torch is not None:
        kinds += [torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler,
                  torch.utils.data.DataLoader, torch.utils.data.Sampler]  # fmt: skip
    return issubclass(kind, tuple(kinds))


def _subjects(name: str, value: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    kind: Any = type(value)
    if not _may_be_subject(kind, len(sys.modules)):
        return
    if is_generator(value):
        yield name, GeneratorHandler(value), value
        return
    trained_by = next((library for library, kind in _leaders() if isinstance(value, kind)), None)
    if trained_by is not None:
        why = f"{name} is trained by {trained_by}, whose state is kept only inside its own loop"
        yield name, LostHandler(why), value
        return
    if is_watched(value):
        yield name_of_batches(name, value), LoaderIteratorHandler(name, value), value
        return
    if is_environment(value):
        yield from environments(name, value)
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
        yield from _loader(name, value)
    elif isinstance(value, torch.utils.data.Sampler):
        yield from _sampler(name, value)


def _leaders() -> Iterator[tuple[str, type]]:
    """Classes of libraries that run the loop themselves, of those that are loaded."""
    for module, name, library in _LEADERS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None:
            yield library, kind


def _loader(name: str, loader: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    if hasattr(loader, "state_dict"):
        yield name, StateDictHandler(name, loader), loader
    if loader.generator is not None:
        yield f"{name}.generator", GeneratorHandler(loader.generator), loader.generator
    if loader.sampler is not None:
        yield from _sampler(f"{name}.sampler", loader.sampler)


def _sampler(name: str, sampler: Any) -> Iterator[tuple[str, StateHandler, Any]]:
    generator = getattr(sampler, "generator", None)
    if is_generator(generator):
        yield f"{name}.generator", GeneratorHandler(generator), generator
    epoch = getattr(sampler, "epoch", None)
    if isinstance(epoch, int):
        yield name, _Attribute(name, sampler, "epoch"), sampler


class _Attribute(ValueHandler):
    """One attribute of an object that is otherwise left alone."""

    kind = "attribute"

    def __init__(self, name: str, owner: Any, attribute: str) -> None:
        super().__init__(name, getattr(owner, attribute))
        self._owner, self._attribute = owner, attribute

    def rest(self, plant: Any) -> Any:
        return plant(getattr(self._owner, self._attribute), self._name)

    def put_back(self, leaves: dict[str, int], rest: Any, source: Any) -> None:
        setattr(self._owner, self._attribute, source.value(rest))
