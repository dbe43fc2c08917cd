"""jsonargparse: what its parsers return, to `CLI`, `auto_cli` and scripts alike."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from relive.handsfree.configs.config_notes import noted_settings
from relive.handsfree.configs.parse_hooks import given_options, listen_to, project_callers


def hook_jsonargparse(module: ModuleType) -> None:
    listen_to(module.ArgumentParser, "parse_args", _on_parsed_args, _is_whole)
    for name in ("parse_path", "parse_string", "parse_object", "parse_env"):
        listen_to(module.ArgumentParser, name, _on_parsed, _is_whole)


def _is_whole(caller: str) -> bool:
    """Whether a call is for a whole config.

    The library parses subcommands and parts of a config as well; their names would lack what is before the dot.
    """
    return project_callers(caller) or os.path.basename(caller) == "_cli.py"


def _on_parsed_args(config: Any, _parser: Any, args: Any = None, *_args: Any, **_options: Any) -> None:
    noted_settings.note_config(config, "jsonargparse", given_options(args))


def _on_parsed(config: Any, *_args: Any, **_options: Any) -> None:
    noted_settings.note_config(config, "jsonargparse")
