"""absl: the flags that modules of the project define."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from relive.handsfree.configs.config_notes import noted_settings
from relive.handsfree.configs.parse_hooks import listen_to


def hook_absl(module: ModuleType) -> None:
    listen_to(module.FlagValues, "__call__", _on_parsed)


def _on_parsed(_result: Any, flag_values: Any, *_args: Any, **_options: Any) -> None:
    flags = list(_flags_of_project(flag_values))
    given = {flag.name for flag in flags if flag.present}
    noted_settings.note_config({flag.name: flag.value for flag in flags}, "absl", given)


def _flags_of_project(flag_values: Any) -> Iterator[Any]:
    for name, flags in flag_values.flags_by_module_dict().items():
        # absl names the main module after the command line.
        main = name in (sys.argv[0], "__main__")
        path = getattr(sys.modules.get("__main__" if main else name), "__file__", None)
        if path and noted_settings.is_project_file(path):
            yield from flags
