"""Flattens a config of any kind into settings with dotted names: `optimizer.lr`."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

_LEAF_TYPES = (bool, int, float, str, type(None))
_TEXT_TYPES = (PurePath, datetime.date, datetime.time, datetime.timedelta)
_LIBRARY_TEXTS = ("torch.dtype", "torch.device", "pydantic.types.SecretStr", "pydantic.types.SecretBytes")
_NAMESPACES = ("argparse.Namespace", "types.SimpleNamespace", "jsonargparse._namespace.Namespace")
MAX_DEPTH = 8
MAX_ITEMS = 32


def settings_of(config: Any) -> Iterator[tuple[str, Any]]:
    """Yields the settings of a config by their dotted names; what is neither a setting nor holds some is left out."""
    return _leaves(config, "", 0)


def holds_fields(value: Any) -> bool:
    """Whether a value is an instance of a dataclass, an attrs class or a pydantic model."""
    kind = type(value)
    return not isinstance(value, type) and (
        dataclasses.is_dataclass(value) or hasattr(kind, "__attrs_attrs__") or is_pydantic_model(value)
    )


def is_pydantic_model(value: Any) -> bool:
    pydantic = sys.modules.get("pydantic")  # a script that did not import it has no model
    return pydantic is not None and isinstance(value, getattr(pydantic, "BaseModel", ()))


def is_namespace(value: Any) -> bool:
    """Whether a value is what a parser of a command line returns."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in _NAMESPACES for kind in type(value).__mro__)


def is_omegaconf(value: Any) -> bool:
    return type(value).__module__.startswith("omegaconf") and type(value).__name__ == "DictConfig"


def is_config_dict(value: Any) -> bool:
    """Whether a value is a ConfigDict of ml_collections, which has items without being a mapping."""
    return type(value).__module__.startswith("ml_collections.config_dict")


def _leaves(value: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, inner in _items(value):
        name = f"{prefix}{key}"
        is_leaf, setting = _as_setting(inner)
        if is_leaf:
            yield name, setting
        elif depth < MAX_DEPTH and _holds_settings(inner):
            yield from _leaves(inner, f"{name}.", depth + 1)


def _as_setting(value: Any) -> tuple[bool, Any]:
    """Returns whether a value is a setting, and as what it is recorded."""
    if isinstance(value, enum.Enum):
        return True, value.name
    if isinstance(value, _LEAF_TYPES):
        return True, value
    kind = type(value)
    if isinstance(value, _TEXT_TYPES) or f"{kind.__module__}.{kind.__qualname__}" in _LIBRARY_TEXTS:
        return True, str(value)
    if isinstance(value, list | tuple) and len(value) <= MAX_ITEMS:
        items = [_as_setting(item) for item in value]
        if all(is_leaf for is_leaf, _ in items):
            return True, [item for _, item in items]
    return False, None


def _holds_settings(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= MAX_ITEMS and any(_holds_settings(item) for item in value)
    return isinstance(value, Mapping) or holds_fields(value) or is_namespace(value) or is_config_dict(value)


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if is_omegaconf(value):
        from relive.handsfree.configs.omegaconf_configs import container_of

        return list(container_of(value).items())
    if isinstance(value, Mapping) or is_config_dict(value):
        return list(value.items())
    return [(name, getattr(value, name)) for name in _field_names(value) if hasattr(value, name)]


def _field_names(value: Any) -> list[str]:
    kind = type(value)
    if is_pydantic_model(value):
        # `model_fields` is that of pydantic 2; models of `pydantic.v1` have `__fields__`.
        names = [
            *(getattr(kind, "model_fields", None) or kind.__fields__),
            *(getattr(value, "model_extra", None) or ()),
        ]
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    else:
        names = list(vars(value))
    return [name for name in names if not name.startswith("_")]
