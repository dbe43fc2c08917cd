"""How each logging library is listened to: its own call goes on as ever, and what it was told is heard."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from relive.handsfree.capture.log_capture import safely, teller

Hear = Callable[..., None]


def _after(owner: Any, name: str, hear: Hear) -> None:
    """Hear the arguments of each call of a function or method, when it has done its own work."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "__relive_heard__"):
        return

    @functools.wraps(original)
    def heard(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        safely(name, hear, *args, **kwargs)
        return result

    heard.__relive_heard__ = True  # type: ignore[attr-defined]
    setattr(owner, name, heard)


# --- TensorBoard ------------------------------------------------------------------------------------------------------


def _tensorboard(module: ModuleType) -> None:
    _after(module.SummaryWriter, "add_scalar", _scalar)
    _after(module.SummaryWriter, "add_scalars", _scalars)


def _scalar(_writer: Any, tag: str = "", scalar_value: Any = None, *_args: Any, **_kwargs: Any) -> None:
    teller.hear("tensorboard", {tag: scalar_value})


def _scalars(_writer: Any, main_tag: str = "", tag_scalar_dict: Any = None, *_args: Any, **_kwargs: Any) -> None:
    teller.hear("tensorboard", {f"{main_tag}/{key}": value for key, value in (tag_scalar_dict or {}).items()})


# --- wandb and mlflow -------------------------------------------------------------------------------------------------


def _wandb(module: ModuleType) -> None:
    _after(module.Run, "log", _wandb_log)


def _wandb_log(_run: Any, data: Any = None, *_args: Any, **_kwargs: Any) -> None:
    if isinstance(data, Mapping):
        teller.hear_nested("wandb", data)


def _mlflow(module: ModuleType) -> None:
    fluent = sys.modules.get("mlflow.tracking.fluent")
    for owner in (fluent, module):
        if owner is not None:
            _after(owner, "log_metric", lambda key, value, *_args, **_kwargs: teller.hear("mlflow", {key: value}))
            _after(owner, "log_metrics", lambda metrics, *_args, **_kwargs: teller.hear("mlflow", metrics))


# --- tqdm and logging -------------------------------------------------------------------------------------------------


def _tqdm(module: ModuleType) -> None:
    bar = module.tqdm
    _after(bar, "set_postfix", _postfix)
    for name in ("set_postfix_str", "set_description", "set_description_str"):
        _after(bar, name, lambda _bar, text=None, *_args, **_kwargs: teller.hear_text("tqdm", [text]))
    original = bar.write

    @functools.wraps(original.__func__)
    def write(cls: Any, s: Any, *args: Any, **kwargs: Any) -> Any:
        result = original.__func__(cls, s, *args, **kwargs)
        teller.hear_text("tqdm", [s])
        return result

    bar.write = classmethod(write)


def _postfix(_bar: Any, ordered_dict: Any = None, refresh: bool = True, **values: Any) -> None:
    teller.hear("tqdm", {**(ordered_dict or {}), **values})


def _logging(module: ModuleType) -> None:
    _after(module.Logger, "handle", _log_record)


def _log_record(_logger: Any, record: Any) -> None:
    """Only what the project's own code says: libraries tell much that nobody asked for."""
    if teller.is_own(record.pathname):
        teller.hear_text("logging", [record.msg] if not record.args else [record.getMessage()])


LISTENERS: dict[str, Callable[[ModuleType], None]] = {
    "torch.utils.tensorboard.writer": _tensorboard,
    "tensorboardX.writer": _tensorboard,
    "wandb.sdk.wandb_run": _wandb,
    "mlflow": _mlflow,
    "tqdm.std": _tqdm,
    "logging": _logging,
}
