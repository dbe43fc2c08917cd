"""Data loaders whose iterators are counted, so that a loop which takes from one by `next` can be entered later."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from relive.checkpoint.state import watched
from relive.handsfree.capture.log_capture import safely
from relive.handsfree.capture.method_wrapper import wrap


def _listen(module: ModuleType) -> None:
    wrap(module._SingleProcessDataLoaderIter, "__init__", _begun)


def _begun(original: Callable[..., None], batches: Any, *args: Any, **options: Any) -> None:
    original(batches, *args, **options)
    safely("DataLoader", watched, batches)


LOADERS: dict[str, Callable[[ModuleType], None]] = {"torch.utils.data.dataloader": _listen}
