"""argparse: the options that a parser of the project returns."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from relive.handsfree.configs.config_notes import noted_settings
from relive.handsfree.configs.parse_hooks import given_options, listen_to, project_callers


def hook_argparse(module: ModuleType) -> None:
    for name in ("parse_args", "parse_known_args"):
        listen_to(module.ArgumentParser, name, _on_parsed, project_callers)


def _on_parsed(result: Any, _parser: Any, args: Any = None, *_args: Any, **_options: Any) -> None:
    options = result[0] if isinstance(result, tuple) else result
    noted_settings.note_config(options, "argparse", given_options(args))
