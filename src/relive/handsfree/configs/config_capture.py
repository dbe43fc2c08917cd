"""Finds the settings of a script in its variables: parsed arguments, configs, dataclasses, models, constants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import FrameType
from typing import Any

from relive.checkpoint.state import collect_user_frames
from relive.handsfree.configs.config_leaves import (
    holds_fields,
    is_config_dict,
    is_namespace,
    is_omegaconf,
    settings_of,
)
from relive.handsfree.configs.config_notes import is_same_setting, noted_settings
from relive.record import Driver

_CONFIG_NAME = re.compile(
    r"^_?(args?|cfg|conf|config|options?|opts?|opt|hparams?|hps?|params|hyperparameters|flags|settings)$", re.I
)
_CONFIG_CLASS = re.compile(r"(Config|Cfg|Conf|Args|Arguments|Params|Settings|Options|H[Pp]arams|Hyperparameters)$")
_CONSTANT = re.compile(r"^[A-Z][A-Z0-9_]+$")


def record_configs(driver: Driver, frame: FrameType | None) -> None:
    """Records the settings in the variables of a frame and its callers as args of the run."""
    if not noted_settings.is_on:
        return
    found: dict[str, tuple[Any, str]] = {}
    seen: set[int] = set()  # the modules whose variables were read: several frames are of one module
    for user_frame in reversed(collect_user_frames(frame)):  # the frame next to the loop wins
        for variables in (user_frame.f_globals, user_frame.f_locals):
            if id(variables) not in seen:
                for name, value in _variables(variables):
                    _add(found, name, dict(_settings(name, value)))
            seen.add(id(user_frame.f_globals))
    noted_settings.note(driver, ((name, value, origin) for name, (value, origin) in found.items()))


def _add(found: dict[str, tuple[Any, str]], variable: str, settings: dict[str, Any]) -> None:
    """Adds the settings of a variable. A setting of that name with another value gets the name of its variable."""
    for key, setting in settings.items():
        value, holder = found.get(key, (setting, variable))
        is_constant = holder.lower() == key
        if holder != variable and not is_constant and not is_same_setting(value, setting):
            found[f"{holder}.{key}"] = value, holder
        found[key] = setting, variable


def _variables(variables: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields variables, and the configs that the object of a method holds: `self.cfg`."""
    held = getattr(variables.get("self"), "__dict__", {})
    yield from [(name, value) for name, value in list(held.items()) if _is_config(name, value)]
    yield from list(variables.items())


def _settings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if _CONSTANT.match(name) and isinstance(value, int | float | str) and not isinstance(value, type):
        yield name.lower(), value
    elif _is_config(name, value):
        yield from settings_of(value)


def _is_config(name: str, value: Any) -> bool:
    if is_namespace(value) and type(value).__name__ == "Namespace":
        return True
    if is_omegaconf(value) or is_config_dict(value):
        return True
    if holds_fields(value):
        return bool(_CONFIG_NAME.match(name) or _CONFIG_CLASS.search(type(value).__name__))
    return (isinstance(value, dict) or is_namespace(value)) and bool(_CONFIG_NAME.match(name))
