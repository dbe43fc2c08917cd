"""Libraries whose loop is their own: a callback for each, made from the library's own class when it is loaded."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from relive.handsfree.course import Course
from relive.handsfree.telling import safely, teller

SOURCE = "frameworks"
_NO_RESULTS = ("epoch", "runtime", "per_second")  # the loop tells the one, and the clock the others


# --- transformers ----------------------------------------------------------------------------------------------------


def transformers_callback(base: type) -> type:
    """The class of a callback for the Trainer of Hugging Face."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Epochs and steps are loops, and what the Trainer logs becomes columns."""

        def __init__(self) -> None:
            self._course = Course()

        def on_epoch_begin(self, *_args: Any, **_told: Any) -> None:
            self._course.begin_epoch()

        def on_step_begin(self, *_args: Any, **_told: Any) -> None:
            self._course.begin_step()

        def on_epoch_end(self, *_args: Any, **_told: Any) -> None:
            self._course.end_epoch()

        def on_train_end(self, *_args: Any, **_told: Any) -> None:
            self._course.end()

        def on_log(self, *_args: Any, logs: dict[str, Any] | None = None, **_told: Any) -> None:
            told = (logs or {}).items()
            self._course.log({name: value for name, value in told if not name.endswith(_NO_RESULTS)})

    return ReliveCallback


def listen_to_transformers(module: ModuleType) -> None:
    made = transformers_callback(sys.modules["transformers.trainer_callback"].TrainerCallback)
    _after_init(module.Trainer, lambda trainer: trainer.callback_handler.callbacks.insert(0, made()))


# --- Lightning -------------------------------------------------------------------------------------------------------


def lightning_callback(base: type) -> type:
    """The class of a callback for the Trainer of Lightning."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Epochs and steps are loops; `self.log` of the module becomes columns."""

        def __init__(self) -> None:
            self._course = Course()

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            listen_to_module(type(pl_module))

        def on_train_epoch_start(self, *_args: Any) -> None:
            self._course.begin_epoch()

        def on_train_batch_start(self, *_args: Any) -> None:
            self._course.begin_step()

        def on_train_epoch_end(self, *_args: Any) -> None:
            self._course.end_epoch()

        def on_train_end(self, *_args: Any) -> None:
            self._course.end()

    return ReliveCallback


def listen_to_module(kind: type) -> None:
    """What a module logs by `self.log` is heard. `log_dict` calls `log` for each."""
    owner: Any = next(one for one in kind.__mro__ if "log" in vars(one))
    original = owner.log
    if hasattr(original, "__relive_heard__"):
        return

    @functools.wraps(original)
    def log(module: Any, name: str, value: Any, *args: Any, **options: Any) -> Any:
        result = original(module, name, value, *args, **options)
        teller.hear_always({name: value})
        return result

    log.__relive_heard__ = True  # type: ignore[attr-defined]
    owner.log = log


def listen_to_lightning(module: ModuleType) -> None:
    package = module.__name__.rpartition(".trainer.trainer")[0]
    made = lightning_callback(sys.modules[f"{package}.callbacks.callback"].Callback)
    _after_init(module.Trainer, lambda trainer: trainer.callbacks.insert(0, made()))


# --- Keras -----------------------------------------------------------------------------------------------------------


def keras_callback(base: type) -> type:
    """The class of a callback for `model.fit` of Keras 3."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Epochs and steps are loops, and what Keras logs at the end of an epoch becomes columns."""

        def __init__(self) -> None:
            super().__init__()
            self._course = Course()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._course.begin_epoch()

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._course.begin_step()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._course.end_epoch()
            self._course.log(logs or {})

        def on_train_end(self, logs: Any = None) -> None:
            self._course.end()

    return ReliveCallback


def listen_to_keras(module: ModuleType) -> None:
    made = keras_callback(sys.modules["keras.src.callbacks.callback"].Callback)
    _after_init(module.CallbackList, lambda found: found.callbacks.insert(0, made()))


def _after_init(kind: Any, then: Callable[[Any], None]) -> None:
    """Put a callback before all others, so that they are in the loops that it tells of."""
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if SOURCE in teller.sources:
            safely(kind.__name__, then, self)

    kind.__init__ = init


FRAMEWORKS: dict[str, Callable[[ModuleType], None]] = {
    "transformers.trainer": listen_to_transformers,
    "lightning.pytorch.trainer.trainer": listen_to_lightning,
    "pytorch_lightning.trainer.trainer": listen_to_lightning,
    "keras.src.callbacks.callback_list": listen_to_keras,
}
