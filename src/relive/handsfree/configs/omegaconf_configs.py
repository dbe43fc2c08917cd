"""OmegaConf: a config as plain containers, with interpolations resolved where that is possible."""

from __future__ import annotations

from typing import Any

from relive.checkpoint.state import capture_random_states, restore_random_states

_MISSING = "???"  # OmegaConf's text for a value that must be given


def container_of(config: Any) -> dict[Any, Any]:
    """Returns the values of a config; an interpolation that can't be resolved stays as its text."""
    states = capture_random_states()  # a resolver of the script may draw random numbers
    try:
        return _resolved(config)
    finally:
        restore_random_states(states)


def _resolved(config: Any) -> dict[Any, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        resolved: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException:
        resolved = _resolve_each(config)
    found: dict[Any, Any] = _without_missing(resolved)
    return found


def _resolve_each(config: Any) -> dict[Any, Any]:
    from omegaconf import DictConfig, ListConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    texts: Any = OmegaConf.to_container(config, resolve=False)
    for key in texts:
        try:
            value = config[key] if not OmegaConf.is_missing(config, key) else _MISSING
        except OmegaConfBaseException:
            continue
        if isinstance(value, DictConfig):
            texts[key] = _resolved(value)
        elif not isinstance(value, ListConfig):
            texts[key] = value
    return dict(texts)


def _without_missing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_missing(inner) for key, inner in value.items() if inner != _MISSING}
    return value
