"""Counts the batches that iterators of data loaders return, so that replays can restore their position."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from relive.checkpoint.state import track_loader_iterator
from relive.handsfree.capture.log_capture import call_safely
from relive.handsfree.capture.method_wrapper import wrap_method


def _hook_data_loader(module: ModuleType) -> None:
    wrap_method(module._SingleProcessDataLoaderIter, "__init__", _on_init)


def _on_init(original: Callable[..., None], batches: Any, *args: Any, **options: Any) -> None:
    original(batches, *args, **options)
    call_safely("DataLoader", track_loader_iterator, batches)


LOADER_HOOKS: dict[str, Callable[[ModuleType], None]] = {"torch.utils.data.dataloader": _hook_data_loader}
