"""`model.fit` of Keras 3: its loops, and the logs at the end of each epoch."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from relive.handsfree.frameworks.framework_loop import FrameworkLoop, insert_callback


def keras_callback(base: type) -> type:
    """Returns a callback class for `model.fit` of Keras 3."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Records epochs and steps as loops, and the logs at the end of an epoch as columns."""

        def __init__(self) -> None:
            super().__init__()
            self.relive_loop = FrameworkLoop()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.relive_loop.begin_epoch()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.relive_loop.begin_step()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.relive_loop.end_steps()
            self.relive_loop.log(logs or {})

        def on_train_end(self, logs: Any = None) -> None:
            self.relive_loop.end()

    return ReliveCallback


def hook_keras(module: ModuleType) -> None:
    """Inserts our callback into every `model.fit`."""
    callback = keras_callback(sys.modules["keras.src.callbacks.callback"].Callback)
    insert_callback(module.CallbackList, lambda owner: owner.callbacks, callback)
