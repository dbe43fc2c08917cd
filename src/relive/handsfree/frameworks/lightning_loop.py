"""The Trainer of Lightning: records its loops and logs, and makes its training resumable at any epoch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from relive.checkpoint.analysis import project_sources
from relive.checkpoint.io import Library, TrainerState
from relive.handsfree.capture import script_logs, wrap_method
from relive.handsfree.frameworks.framework_loop import FrameworkLoop, find_framework_loop, insert_callback

LIBRARY = Library(
    "Lightning",
    ("lightning", "pytorch_lightning", "lightning_fabric", "torch.utils.data"),
    frozenset(
        "_results _loggers loggers logger profiler _signal_connector dataset datasets "
        "_combined_loader_states_to_load".split()
    ),
    ("lightning.pytorch.callbacks.progress", "pytorch_lightning.callbacks.progress"),
)
# A script whose source holds one of these words reads the checkpoints that it wrote.
_READING_WORDS = ("best_model_path", "last_model_path", "load_from_checkpoint", "ckpt_path")


def lightning_callback(base: type) -> type:
    """Returns a callback class for the Trainer of Lightning."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Records epochs and steps as loops, and `self.log` of the module as columns."""

        def __init__(self) -> None:
            self.relive_loop = FrameworkLoop()

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            capture_module_logs(type(pl_module))

        def on_train_epoch_start(self, *_args: Any) -> None:
            if not self.relive_loop.is_resumable:
                self.relive_loop.begin_epoch()

        def on_train_batch_start(self, *_args: Any) -> None:
            self.relive_loop.begin_step()

        def on_train_epoch_end(self, *_args: Any) -> None:
            self.relive_loop.end_steps()

        def on_train_end(self, *_args: Any) -> None:
            if not self.relive_loop.is_resumable:
                self.relive_loop.end()

    return ReliveCallback


def capture_module_logs(kind: type) -> None:
    """Captures the values that a module passes to `self.log`; `log_dict` calls `log` for each of its values."""
    owner: Any = next(base for base in kind.__mro__ if "log" in vars(base))
    original = owner.log
    if hasattr(original, "__relive_captured__"):
        return

    @functools.wraps(original)
    def log(module: Any, name: str, value: Any, *args: Any, **options: Any) -> Any:
        result = original(module, name, value, *args, **options)
        script_logs.capture_always({name: value})
        return result

    log.__relive_captured__ = True  # type: ignore[attr-defined]
    owner.log = log


def hook_lightning(module: ModuleType) -> None:
    """Inserts our callback into every Trainer, and makes its training resumable."""
    package = module.__name__.rpartition(".trainer.trainer")[0]
    callback = lightning_callback(sys.modules[f"{package}.callbacks.callback"].Callback)
    insert_callback(module.Trainer, lambda trainer: trainer.callbacks, callback)
    patch_lightning(package)


def patch_lightning(package: str) -> None:
    """Makes the training resumable at any epoch, if this version has the required methods."""
    fit_loop = getattr(sys.modules.get(f"{package}.loops.fit_loop"), "_FitLoop", None)
    if fit_loop is None or not all(hasattr(fit_loop, name) for name in ("run", "on_advance_start", "on_run_end")):
        return
    wrap_method(fit_loop, "run", _wrap_run)
    wrap_method(fit_loop, "on_advance_start", _wrap_advance_start)
    wrap_method(fit_loop, "on_run_end", _wrap_run_end)


def _wrap_run(original: Callable[..., Any], fit_loop: Any) -> Any:
    loop = find_framework_loop(fit_loop.trainer.callbacks)
    if loop is None:
        return original(fit_loop)
    loop.begin_resumable(lambda: find_trainer_state(fit_loop.trainer))
    try:
        return original(fit_loop)
    finally:
        loop.leave()


def _wrap_advance_start(original: Callable[..., Any], fit_loop: Any) -> Any:
    loop = find_framework_loop(fit_loop.trainer.callbacks)
    if loop is not None and loop.is_resumable and not loop.try_begin_epoch():
        raise StopIteration  # ends the fit loop
    return original(fit_loop)


def _wrap_run_end(original: Callable[..., Any], fit_loop: Any) -> Any:
    loop = find_framework_loop(fit_loop.trainer.callbacks)
    if loop is not None and loop.is_resumable:
        loop.end()
    return original(fit_loop)


def find_trainer_state(trainer: Any) -> TrainerState | None:
    """Returns the state of a Trainer; None if it is distributed over several processes."""
    if trainer.world_size > 1:
        return None
    reads = bool(trainer.checkpoint_callbacks) and any(
        word in text for text in project_sources() for word in _READING_WORDS
    )
    state = TrainerState(LIBRARY, trainer, reads_own=reads)
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    return state if state.holds([trainer.lightning_module, *trainer.optimizers, *schedulers]) else None
