"""Parsers that fill dataclasses from the command line: HfArgumentParser, simple_parsing, tyro, pydantic_settings."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from relive.handsfree.configs.config_leaves import holds_fields
from relive.handsfree.configs.config_notes import noted_settings
from relive.handsfree.configs.parse_hooks import given_options, listen_to

_HF_PARSERS = ("parse_args_into_dataclasses", "parse_dict", "parse_json_file", "parse_yaml_file")


def hook_hf_argparser(module: ModuleType) -> None:
    for name in _HF_PARSERS:
        listen_to(module.HfArgumentParser, name, _on_hf_parsed)


def _on_hf_parsed(result: Any, _parser: Any, args: Any = None, *_args: Any, **_options: Any) -> None:
    given = given_options(args if isinstance(args, list | tuple) else None)
    for config in result:
        if holds_fields(config):
            noted_settings.note_config(config, "HfArgumentParser", given)


def hook_simple_parsing(module: ModuleType) -> None:
    for name in ("parse", "parse_known_args"):
        listen_to(module, name, _on_simple_parsed)


def _on_simple_parsed(result: Any, *_args: Any, args: Any = None, **_options: Any) -> None:
    config = result[0] if isinstance(result, tuple) else result
    _note(config, "simple_parsing", args)


def hook_tyro(module: ModuleType) -> None:
    listen_to(module, "cli", _on_tyro_parsed)


def _on_tyro_parsed(result: Any, *_args: Any, args: Any = None, **_options: Any) -> None:
    config = result[0] if isinstance(result, tuple) and len(result) == 2 else result
    _note(config, "tyro", args)


def _note(config: Any, origin: str, args: Any) -> None:
    if holds_fields(config):
        given = given_options(args.split() if isinstance(args, str) else args)
        noted_settings.note_config(config, origin, given)
