"""Hydra: the composed config of a job, its overrides and the choices of its config groups."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from relive.handsfree.configs.config_notes import noted_settings
from relive.handsfree.configs.parse_hooks import listen_to


def hook_hydra(module: ModuleType) -> None:
    # It is called when the job begins, and has returned when the task starts: no frame of ours is in its tracebacks.
    listen_to(module.Callbacks, "on_job_start", _on_job_start)


def _on_job_start(_result: Any, _callbacks: Any, config: Any, **_others: Any) -> None:
    given = {_dotted(str(text).partition("=")[0].lstrip("+~")) for text in config.hydra.overrides.task}
    task = _without_hydra(config)
    groups = _choices(config, task)
    noted_settings.note_config(task, "hydra", given - set(groups))
    noted_settings.note_config(groups, "hydra", given)


def _without_hydra(config: Any) -> Any:
    from omegaconf import open_dict, read_write

    task = config.copy()
    with read_write(task), open_dict(task):
        del task["hydra"]
    return task


def _choices(config: Any, task: Any) -> dict[str, Any]:
    """Returns which config each group has, as `optimizer: adam`; not where the config has such a setting itself."""
    from omegaconf import OmegaConf

    chosen = {_dotted(str(group)): choice for group, choice in config.hydra.runtime.choices.items()}
    return {
        name: choice
        for name, choice in chosen.items()
        if not name.startswith("hydra.") and (OmegaConf.is_config(held := _held(task, name)) or held is None)
    }


def _held(task: Any, name: str) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.select(task, name)
    except OmegaConfBaseException:  # an interpolation that can't be resolved is a setting, too
        return name


def _dotted(group: str) -> str:
    """Returns the place of a group in the config: `optimizer@main` is at `main`, `model/encoder` at `model.encoder`."""
    name, _, package = group.partition("@")
    return (package or name).replace("/", ".")
