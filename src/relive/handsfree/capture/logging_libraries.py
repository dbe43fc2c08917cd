"""Hooks for logging libraries: their calls work as before, and the values passed to them are captured."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from relive.handsfree.capture.log_capture import call_safely, script_logs

Listener = Callable[..., None]


def _listen_to(owner: Any, name: str, listener: Listener) -> None:
    """Wraps a function or method so that the listener gets the arguments of each call after it has returned."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "__relive_captured__"):
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        call_safely(name, listener, *args, **kwargs)
        return result

    wrapper.__relive_captured__ = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapper)


# --- TensorBoard ------------------------------------------------------------------------------------------------------


def _hook_tensorboard(module: ModuleType) -> None:
    _listen_to(module.SummaryWriter, "add_scalar", _on_add_scalar)
    _listen_to(module.SummaryWriter, "add_scalars", _on_add_scalars)


def _on_add_scalar(_writer: Any, tag: str = "", scalar_value: Any = None, *_args: Any, **_kwargs: Any) -> None:
    script_logs.capture("tensorboard", {tag: scalar_value})


def _on_add_scalars(_writer: Any, main_tag: str = "", tag_scalar_dict: Any = None, *_args: Any, **_kwargs: Any) -> None:
    script_logs.capture("tensorboard", {f"{main_tag}/{key}": value for key, value in (tag_scalar_dict or {}).items()})


# --- wandb and mlflow -------------------------------------------------------------------------------------------------


def _hook_wandb(module: ModuleType) -> None:
    _listen_to(module.Run, "log", _on_wandb_log)


def _on_wandb_log(_run: Any, data: Any = None, *_args: Any, **_kwargs: Any) -> None:
    if isinstance(data, Mapping):
        script_logs.capture_nested("wandb", data)


def _hook_mlflow(module: ModuleType) -> None:
    fluent = sys.modules.get("mlflow.tracking.fluent")
    for owner in (fluent, module):
        if owner is not None:
            _listen_to(owner, "log_metric", _on_log_metric)
            _listen_to(owner, "log_metrics", _on_log_metrics)


def _on_log_metric(key: Any, value: Any, *_args: Any, **_kwargs: Any) -> None:
    script_logs.capture("mlflow", {key: value})


def _on_log_metrics(metrics: Any, *_args: Any, **_kwargs: Any) -> None:
    script_logs.capture("mlflow", metrics)


# --- tqdm and logging -------------------------------------------------------------------------------------------------


def _hook_tqdm(module: ModuleType) -> None:
    bar = module.tqdm
    _listen_to(bar, "set_postfix", _on_set_postfix)
    for name in ("set_postfix_str", "set_description", "set_description_str"):
        _listen_to(bar, name, lambda _bar, text=None, *_args, **_kwargs: script_logs.capture_text("tqdm", [text]))
    original = bar.write

    @functools.wraps(original.__func__)
    def write(cls: Any, s: Any, *args: Any, **kwargs: Any) -> Any:
        result = original.__func__(cls, s, *args, **kwargs)
        script_logs.capture_text("tqdm", [s])
        return result

    bar.write = classmethod(write)


def _on_set_postfix(_bar: Any, ordered_dict: Any = None, refresh: bool = True, **values: Any) -> None:
    script_logs.capture("tqdm", {**(ordered_dict or {}), **values})


def _hook_logging(module: ModuleType) -> None:
    _listen_to(module.Logger, "handle", _on_log_record)


def _on_log_record(_logger: Any, record: Any) -> None:
    """Captures only messages of the project's own code, not those of libraries."""
    if script_logs.is_project_file(record.pathname):
        script_logs.capture_text("logging", [record.msg] if not record.args else [record.getMessage()])


LOGGER_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "torch.utils.tensorboard.writer": _hook_tensorboard,
    "tensorboardX.writer": _hook_tensorboard,
    "wandb.sdk.wandb_run": _hook_wandb,
    "mlflow": _hook_mlflow,
    "tqdm.std": _hook_tqdm,
    "logging": _hook_logging,
}
