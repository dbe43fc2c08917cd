"""The Trainer of Lightning: its loops, what modules log, and how its training is entered at any epoch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from relive.checkpoint.analysis import project_texts
from relive.checkpoint.state import Library, TrainerState
from relive.handsfree.capture import script_logs, wrap_method
from relive.handsfree.frameworks.framework_loop import FrameworkLoop, insert_callback, find_framework_loop

LIBRARY = Library(
    "Lightning",
    ("lightning", "pytorch_lightning", "lightning_fabric", "torch.utils.data"),
    frozenset(
        "_results _loggers loggers logger profiler _signal_connector dataset datasets "
        "_combined_loader_states_to_load".split()
    ),
    ("lightning.pytorch.callbacks.progress", "pytorch_lightning.callbacks.progress"),
)
_CHECKPOINT_FILE_WORDS = ("best_model_path", "last_model_path", "load_from_checkpoint", "ckpt_path")  # who says so, reads what it wrote


def lightning_callback(base: type) -> type:
    """The class of a callback for the Trainer of Lightning."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Epochs and steps are loops; `self.log` of the module becomes columns."""

        def __init__(self) -> None:
            self.relive_course = FrameworkLoop()

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            capture_module_logs(type(pl_module))

        def on_train_epoch_start(self, *_args: Any) -> None:
            if not self.relive_course.is_driven:
                self.relive_course.begin_epoch()

        def on_train_batch_start(self, *_args: Any) -> None:
            self.relive_course.begin_step()

        def on_train_epoch_end(self, *_args: Any) -> None:
            self.relive_course.end_steps()

        def on_train_end(self, *_args: Any) -> None:
            if not self.relive_course.is_driven:
                self.relive_course.end()

    return ReliveCallback


def capture_module_logs(kind: type) -> None:
    """What a module logs by `self.log` is heard. `log_dict` calls `log` for each."""
    owner: Any = next(one for one in kind.__mro__ if "log" in vars(one))
    original = owner.log
    if hasattr(original, "__relive_heard__"):
        return

    @functools.wraps(original)
    def log(module: Any, name: str, value: Any, *args: Any, **options: Any) -> Any:
        result = original(module, name, value, *args, **options)
        script_logs.hear_always({name: value})
        return result

    log.__relive_heard__ = True  # type: ignore[attr-defined]
    owner.log = log


def hook_lightning(module: ModuleType) -> None:
    package = module.__name__.rpartition(".trainer.trainer")[0]
    made = lightning_callback(sys.modules[f"{package}.callbacks.callback"].Callback)
    insert_callback(module.Trainer, lambda trainer: trainer.callbacks, made)
    enter_lightning(package)


def enter_lightning(package: str) -> None:
    """Let its training be entered at any epoch, if this version has the parts that it takes."""
    loop = getattr(sys.modules.get(f"{package}.loops.fit_loop"), "_FitLoop", None)
    if loop is None or not all(hasattr(loop, name) for name in ("run", "on_advance_start", "on_run_end")):
        return
    wrap_method(loop, "run", _wrap_run)
    wrap_method(loop, "on_advance_start", _wrap_advance_start)
    wrap_method(loop, "on_run_end", _wrap_run_end)


def _wrap_run(original: Callable[..., Any], loop: Any) -> Any:
    course = find_framework_loop(loop.trainer.callbacks)
    if course is None:
        return original(loop)
    course.drive(lambda: find_trainer_state(loop.trainer))
    try:
        return original(loop)
    finally:
        course.leave()


def _wrap_advance_start(original: Callable[..., Any], loop: Any) -> Any:
    course = find_framework_loop(loop.trainer.callbacks)
    if course is not None and course.is_driven and not course.begins_epoch():
        raise StopIteration  # by which its loop ends
    return original(loop)


def _wrap_run_end(original: Callable[..., Any], loop: Any) -> Any:
    course = find_framework_loop(loop.trainer.callbacks)
    if course is not None and course.is_driven:
        course.end()
    return original(loop)


def find_trainer_state(trainer: Any) -> TrainerState | None:
    """The state of a Trainer; None where it is spread over processes."""
    if trainer.world_size > 1:
        return None
    reads = bool(trainer.checkpoint_callbacks) and any(word in text for text in project_texts() for word in _CHECKPOINT_FILE_WORDS)
    held = TrainerState(LIBRARY, trainer, reads_own=reads)
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    return held if held.holds([trainer.lightning_module, *trainer.optimizers, *schedulers]) else None
