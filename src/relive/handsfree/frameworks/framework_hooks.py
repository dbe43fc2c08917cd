"""The frameworks that run the training loop themselves, by module name, with the hook for each."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from relive.handsfree.frameworks.keras_loop import hook_keras
from relive.handsfree.frameworks.lightning_loop import hook_lightning
from relive.handsfree.frameworks.transformers_loop import hook_transformers

FRAMEWORK_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "transformers.trainer": hook_transformers,
    "lightning.pytorch.trainer.trainer": hook_lightning,
    "pytorch_lightning.trainer.trainer": hook_lightning,
    "keras.src.callbacks.callback_list": hook_keras,
}
