"""The config libraries whose settings are args: the module of each, and the hook that is called when it is imported."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from relive.handsfree.configs.absl_flags import hook_absl
from relive.handsfree.configs.argparse_options import hook_argparse
from relive.handsfree.configs.dataclass_parsers import hook_hf_argparser, hook_simple_parsing, hook_tyro
from relive.handsfree.configs.jsonargparse_configs import hook_jsonargparse

# Hydra is not here, because its jobs are runs as well: relive.handsfree.sweeps.
CONFIG_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "absl.flags._flagvalues": hook_absl,
    "jsonargparse._core": hook_jsonargparse,
    "transformers.hf_argparser": hook_hf_argparser,
    "simple_parsing.parsing": hook_simple_parsing,
    "tyro._cli": hook_tyro,
    "argparse": hook_argparse,
}
