"""Settings of libraries and of Python's own modules that functions change: their values, and how they are set."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

_PLAIN = (int, float, bool, str, type(None))
_TINY, _ONE = 5e-324, 1.0  # their product is zero if the processor flushes denormal numbers
Setting = tuple[Any, Callable[[Any], None]]


def current_library_settings() -> dict[str, Setting]:
    """Returns the settings of what is loaded: the value of each now, and how it is set."""
    modules = sys.modules
    found: dict[str, Setting] = {
        "collection thresholds": (gc.get_threshold(), lambda values: gc.set_threshold(*values))
    }
    socket, csv = modules.get("socket"), modules.get("_csv")
    if socket is not None and hasattr(socket, "setdefaulttimeout"):
        found["socket timeout"] = (socket.getdefaulttimeout(), socket.setdefaulttimeout)
    if csv is not None:
        found["csv field size"] = (csv.field_size_limit(), lambda value: (csv.field_size_limit(value), None)[1])
    pandas, options = modules.get("pandas"), modules.get("pandas._config.config")
    if pandas is not None and hasattr(pandas, "set_option") and options is not None:
        table = tuple(_flat(getattr(options, "_global_config", {})))
        found["pandas options"] = (table, lambda pairs: _set_pandas(pandas, pairs))
    sklearn = modules.get("sklearn")
    if sklearn is not None and hasattr(sklearn, "get_config"):
        pairs = tuple((name, value) for name, value in sklearn.get_config().items() if isinstance(value, _PLAIN))
        found["sklearn settings"] = (pairs, lambda values: sklearn.set_config(**dict(values)))
    arrow = modules.get("pyarrow")
    if arrow is not None and hasattr(arrow, "set_cpu_count"):
        found["pyarrow threads"] = (arrow.cpu_count(), arrow.set_cpu_count)
    return found | _numeric_settings()


def _numeric_settings() -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and hasattr(numpy, "geterr"):
        options = numpy.get_printoptions()
        if options["formatter"] is None:
            found["numpy printing"] = (_sorted_pairs(options), lambda pairs: numpy.set_printoptions(**dict(pairs)))
        found["numpy errors"] = (tuple(sorted(numpy.geterr().items())), lambda pairs: numpy.seterr(**dict(pairs)))
    if torch is not None and hasattr(torch, "get_default_dtype"):
        found |= {f"torch {name}": fact for name, fact in _torch_facts(torch).items()}
    return found


def _torch_facts(torch: Any) -> dict[str, Setting]:
    from torch.backends import cudnn

    def set_flag(owner: Any, name: str) -> Callable[[Any], None]:
        return lambda value: setattr(owner, name, value)

    return {
        "default dtype": (
            torch.get_default_dtype().__reduce__(), lambda name: torch.set_default_dtype(getattr(torch, name))
        ),
        "default device": (str(torch.get_default_device()), lambda name: torch.set_default_device(name)),
        "gradients": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.use_deterministic_algorithms),
        "matmul precision": (torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision),
        "anomaly": (torch.is_anomaly_enabled(), torch.autograd.set_detect_anomaly),
        "threads": (torch.get_num_threads(), torch.set_num_threads),
        "printing": (_torch_printing(torch), lambda options: torch.set_printoptions(**dict(options))),
        "cudnn.benchmark": (cudnn.benchmark, set_flag(cudnn, "benchmark")),
        "cudnn.deterministic": (cudnn.deterministic, set_flag(cudnn, "deterministic")),
        "flush denormal": (_TINY * _ONE == 0.0, torch.set_flush_denormal),
        "mkldnn": (torch.backends.mkldnn.enabled, set_flag(torch.backends.mkldnn, "enabled")),
    }  # fmt: skip


def _torch_printing(torch: Any) -> tuple[tuple[str, Any], ...]:
    options = torch._tensor_str.PRINT_OPTS
    return tuple(
        (name, getattr(options, name)) for name in ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")
    )


def _sorted_pairs(options: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(options.items()))


def _flat(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the plain values of nested tables, with their dotted names."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{name}.")
        elif isinstance(value, _PLAIN):
            yield path + name, value


def _set_pandas(pandas: Any, pairs: tuple[tuple[str, Any], ...]) -> None:
    for name, value in pairs:
        if pandas.get_option(name) != value:
            pandas.set_option(name, value)
