"""Attributes of objects, in their dict and in slots, read and set without properties or methods of their class."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

from relive.checkpoint.analysis import is_project_module
from relive.checkpoint.graph.object_tokens import PLAIN_TYPES
from relive.checkpoint.graph.registry import MISSING, Restorer, Walker

HEAP_TYPE = 1 << 9  # flag of classes that are defined in Python


class Attributes:
    """Where the instances of a class hold their attributes."""

    __slots__ = ("has_dict", "has_hidden_memory", "skipped", "slots")

    def __init__(self, kind: type) -> None:
        self.has_dict = kind.__dictoffset__ != 0
        self.slots: tuple[tuple[str, Any], ...] = tuple(
            (name, member)
            for base in kind.__mro__
            for name, member in vars(base).items()
            if isinstance(member, MemberDescriptorType) and base.__flags__ & HEAP_TYPE and "__slots__" in vars(base)
        )
        # The question that pickle asks: is there memory of C besides a dict and slots?
        pointer = tuple.__itemsize__
        known = object.__basicsize__ + pointer * len(self.slots)
        known += pointer * (kind.__dictoffset__ > 0) + pointer * (kind.__weakrefoffset__ > 0)
        self.has_hidden_memory = kind.__basicsize__ > known or kind.__itemsize__ != 0
        self.skipped: Container[str] = _skipped_attributes(kind)

    @staticmethod
    def of(kind: Any) -> Attributes:
        return _attributes_of(kind)


@lru_cache(maxsize=8192)
def _attributes_of(kind: type) -> Attributes:
    return Attributes(kind)


# Attributes that are no state: caches, links to the whole library, clocks.
_SKIPPED: dict[str, frozenset[str]] = {
    "joblib.memory": frozenset({"_func_code_id", "_func_code_info", "timestamp", "_cached_output_identifiers"}),
    "logging": frozenset(
        {"_cache", "disabled", "filters", "handlers", "level", "manager", "name", "parent", "propagate", "root"}
    ),
    "numpy": frozenset({"_mmap"}),  # of a memmap, whose memory is seen like that of any array
    "pathlib": frozenset({"_str", "_hash", "_parts_normcase_cached", "_cached_cparts"}),
    "torch._dynamo.eval_frame": frozenset(
        {
            "dynamo_ctx",
            "forward",
            "get_compiler_config",
            "_torchdynamo_orig_callable",
            "_torchdynamo_wrapper_id",
            "_isolate_recompiles_id",
        }
    ),
    "transformers.trainer_callback": frozenset({"training_bar", "prediction_bar"}),
}
_CLOCK = "time"  # attributes of a library's objects with this in their name hold clock values of another process


class _LibraryAttributes:
    """The attributes that are left out of the objects of a library that runs the loop."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def __contains__(self, name: object) -> bool:
        return name in self._names or _CLOCK in str(name)


class _AllAttributes:
    """All attributes are left out: instances only display something."""

    def __contains__(self, name: object) -> bool:
        return True


_skipped_by_users: dict[str, frozenset[str] | None] = {}  # by module or package; None: all of them


def skip_attributes(modules: tuple[str, ...], names: frozenset[str], shown: tuple[str, ...] = ()) -> None:
    """Leaves attributes of these names, and clocks, out for all classes that are defined in these modules and packages.

    Of classes in `shown` all attributes are left out. Objects of the project in such an attribute are state.
    """
    for module in modules:
        _skipped_by_users[module] = names
    for module in shown:
        _skipped_by_users[module] = None
    _attributes_of.cache_clear()


def module_name(kind: Any) -> str:
    """Returns the module of a class, which may have overwritten it."""
    name: Any = kind.__module__
    return name if type(name) is str else ""


def _skipped_attributes(kind: type) -> Container[str]:
    names = frozenset(name for base in kind.__mro__ for name in _SKIPPED.get(module_name(base), ()))
    module = module_name(kind)
    while module and module not in _skipped_by_users:  # the innermost package that was named decides
        module = module.rpartition(".")[0]
    if not module:
        return names
    of_library = _skipped_by_users[module]
    return _AllAttributes() if of_library is None else _LibraryAttributes(names | of_library)


def own_dict(obj: Any) -> dict[str, Any] | None:
    """Returns the attribute dict of an object, without asking its class."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


def attribute_tokens(obj: Any, walk: Walker) -> tuple[Any, ...]:
    """Returns the names and tokens of all attributes, alternating."""
    where = Attributes.of(type(obj))
    found: list[Any] = []
    ref = walk.ref
    if where.has_dict and (own := own_dict(obj)):
        skipped = where.skipped
        for name, value in list(own.items()):
            if name not in skipped or _is_project_object(value):
                found.append(name)
                found.append(value if type(value) in PLAIN_TYPES else ref(value, ".", name))
    for name, member in where.slots:
        try:
            value = member.__get__(obj, type(obj))
        except AttributeError:
            continue
        if name in where.skipped and not _is_project_object(value):
            continue
        found.append(name)
        found.append(value if type(value) in PLAIN_TYPES else ref(value, ".", name))
    return tuple(found)


def _is_project_object(value: Any) -> bool:
    return is_project_module(module_name(type(value)))


def restore_attributes(obj: Any, tokens: tuple[Any, ...], restore: Restorer) -> None:
    """Gives an object these attributes and no others, except those that are skipped."""
    where = Attributes.of(type(obj))
    slots = dict(where.slots)
    own = own_dict(obj) if where.has_dict else None
    current = own or {}
    values = {
        name: restore.value_or(token, current.get(name, MISSING))
        for name, token in zip(tokens[::2], tokens[1::2], strict=True)
    }
    if own is not None:
        in_dict = {name: value for name, value in values.items() if name not in slots}
        for name in [name for name in own if name not in in_dict and name not in where.skipped]:
            del own[name]
        if list(own) != list(in_dict):  # the order of attributes is visible, too
            skipped = {name: value for name, value in own.items() if name in where.skipped}
            own.clear()
            own.update(skipped)
        own.update(in_dict)
    for name, member in where.slots:
        if name in values:
            member.__set__(obj, values[name])
        elif name not in where.skipped and getattr(obj, name, MISSING) is not MISSING:
            member.__delete__(obj)
