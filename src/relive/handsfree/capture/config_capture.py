"""Finds the settings of a script in its variables: parsed arguments, configs, dataclasses, constants."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import FrameType
from typing import Any

from relive.checkpoint.state import collect_user_frames
from relive.handsfree.capture.log_capture import script_logs
from relive.record import Driver

_LEAF_TYPES = (bool, int, float, str, type(None))
_CONFIG_NAME = re.compile(r"^_?(args?|cfg|conf|config|options?|opts?|opt|hparams?|hps?|params|flags|settings)$", re.I)
_CONSTANT = re.compile(r"^[A-Z][A-Z0-9_]+$")
MAX_ARGS = 200
MAX_DEPTH = 4


def record_configs(driver: Driver, frame: FrameType | None) -> None:
    """Records the settings in the variables of a frame and its callers as args of the run."""
    if "config" not in script_logs.sources:
        return
    found: dict[str, tuple[Any, str]] = {}
    for user_frame in reversed(collect_user_frames(frame)):  # the frame next to the loop wins
        for variables in (user_frame.f_globals, user_frame.f_locals):
            for name, value in list(variables.items()):
                found |= {key: (setting, name) for key, setting in _settings(name, value)}
    for name, (value, origin) in list(found.items())[:MAX_ARGS]:
        driver.note_arg(name, value, origin=origin)


def _settings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if _CONSTANT.match(name) and isinstance(value, int | float | str) and not isinstance(value, type):
        yield name.lower(), value
    elif _is_config(name, value):
        yield from _leaves(value, "", 0)


def _is_config(name: str, value: Any) -> bool:
    kind = type(value)
    if kind.__name__ == "Namespace" and kind.__module__ == "argparse":
        return True
    if kind.__module__.startswith("omegaconf"):
        return kind.__name__ == "DictConfig"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return bool(_CONFIG_NAME.match(name)) or kind.__name__.endswith(("Config", "Args", "Arguments", "Params"))
    return isinstance(value, dict) and bool(_CONFIG_NAME.match(name))


def _leaves(value: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, inner in _items(value):
        name = f"{prefix}{key}"
        if isinstance(inner, _LEAF_TYPES):
            yield name, inner
        elif isinstance(inner, PurePath):
            yield name, str(inner)
        elif isinstance(inner, list | tuple) and len(inner) <= 32 and all(isinstance(i, _LEAF_TYPES) for i in inner):
            yield name, list(inner)
        elif depth < MAX_DEPTH and _holds_settings(inner):
            yield from _leaves(inner, f"{name}.", depth + 1)


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        omegaconf = sys.modules.get("omegaconf")
        if omegaconf is not None and isinstance(value, omegaconf.DictConfig):
            return list(omegaconf.OmegaConf.to_container(value, resolve=True).items())
        return list(value.items())
    return [(key, inner) for key, inner in vars(value).items() if not key.startswith("_")]


def _holds_settings(value: Any) -> bool:
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance or isinstance(value, dict) or type(value).__name__ in ("Namespace", "DictConfig")
