"""Settings of libraries that change results without being named in the code: default dtypes, error states."""

from __future__ import annotations

import copy
import decimal
import sys
from typing import Any

_DECIMAL = decimal.DefaultContext
_decimal_default = (_DECIMAL.prec, _DECIMAL.rounding, _DECIMAL.Emin, _DECIMAL.Emax, _DECIMAL.capitals, _DECIMAL.clamp)
_defaults: dict[str, Any] = {}


def changed_settings() -> dict[str, Any]:
    """Returns the settings that are not what they are when a process starts; on the path of every hit."""
    found: dict[str, Any] = {}
    context = decimal.getcontext()
    now = (context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp)
    if now != _decimal_default:
        found["decimal"] = now
    modules = sys.modules
    try:
        if "numpy" in modules:
            _add_numpy(found, modules["numpy"])
        if "torch" in modules:
            _add_torch(found, modules["torch"])
        if "pandas" in modules:
            _add_pandas(found)
    except (AttributeError, KeyError, ImportError):  # a library that is just being imported, or keeps them elsewhere
        return found
    return found


_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def _add_numpy(found: dict[str, Any], numpy: Any) -> None:
    errors = numpy.geterr()
    if errors != _NUMPY_ERRORS:
        found["numpy.seterr"] = errors
    if "numpy" not in _defaults:
        variable = getattr(sys.modules.get("numpy._core.printoptions"), "format_options", None)
        _defaults["numpy"] = variable.get if variable is not None else numpy.get_printoptions
    options = _defaults["numpy"]()
    if options != _NUMPY_PRINTING and numpy.get_printoptions() != _NUMPY_PRINTING | {"legacy": False}:
        found["numpy.set_printoptions"] = {name: repr(value) for name, value in options.items()}


_NUMPY_PRINTING = {
    "edgeitems": 3, "threshold": 1000, "floatmode": "maxprec", "precision": 8, "suppress": False, "linewidth": 75,
    "nanstr": "nan", "infstr": "inf", "sign": "-", "formatter": None, "legacy": sys.maxsize, "override_repr": None,
}  # fmt: skip


_TORCH_PRINTING = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}


def _add_torch(found: dict[str, Any], torch: Any) -> None:
    now = (
        torch.get_default_dtype() is torch.float32, torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled(), torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )  # fmt: skip
    if now != (True, True, False, False, False, "highest"):
        found["torch"] = [str(torch.get_default_dtype()), *now[1:]]
    printing = vars(torch._tensor_str.PRINT_OPTS)
    if printing != _TORCH_PRINTING:
        found["torch.set_printoptions"] = {name: repr(value) for name, value in printing.items()}


def _add_pandas(found: dict[str, Any]) -> None:
    from pandas._config import config

    if "pandas" not in _defaults:
        _defaults["pandas"] = _pandas_defaults(config)
    if config._global_config != _defaults["pandas"]:
        found["pandas"] = repr(config._global_config)


def _pandas_defaults(config: Any) -> dict[str, Any]:
    """Returns the options as they are before any is set."""
    tree: dict[str, Any] = copy.deepcopy(config._global_config)
    for name, option in config._registered_options.items():
        *path, last = name.split(".")
        place = tree
        for step in path:
            place = place[step]
        place[last] = option.defval
    return tree
