"""`model.fit` of Keras 3: its loops, and what it logs at the end of an epoch."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from relive.handsfree.frameworks.framework_loop import FrameworkLoop, insert_callback


def keras_callback(base: type) -> type:
    """The class of a callback for `model.fit` of Keras 3."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Epochs and steps are loops, and what Keras logs at the end of an epoch becomes columns."""

        def __init__(self) -> None:
            super().__init__()
            self.relive_course = FrameworkLoop()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.relive_course.begin_epoch()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.relive_course.begin_step()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.relive_course.end_steps()
            self.relive_course.log(logs or {})

        def on_train_end(self, logs: Any = None) -> None:
            self.relive_course.end()

    return ReliveCallback


def hook_keras(module: ModuleType) -> None:
    made = keras_callback(sys.modules["keras.src.callbacks.callback"].Callback)
    insert_callback(module.CallbackList, lambda owner: owner.callbacks, made)
