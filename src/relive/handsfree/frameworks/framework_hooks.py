"""Libraries whose loop is their own, and who is told when one of them is loaded."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from relive.handsfree.frameworks.keras_loop import listen_to_keras
from relive.handsfree.frameworks.lightning_loop import listen_to_lightning
from relive.handsfree.frameworks.transformers_loop import listen_to_transformers

FRAMEWORKS: dict[str, Callable[[ModuleType], None]] = {
    "transformers.trainer": listen_to_transformers,
    "lightning.pytorch.trainer.trainer": listen_to_lightning,
    "pytorch_lightning.trainer.trainer": listen_to_lightning,
    "keras.src.callbacks.callback_list": listen_to_keras,
}
