"""The Trainer of Hugging Face: records its loops and logs, and makes its training resumable at any epoch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from relive.checkpoint.io import Library, TrainerState
from relive.handsfree.capture import wrap_method
from relive.handsfree.frameworks.framework_loop import FrameworkLoop, find_framework_loop, insert_callback

_SKIPPED_ENDINGS = ("epoch", "runtime", "per_second")  # logged values that are no results of the training
_REQUIRED_METHODS = ("_run_epoch", "_inner_training_loop", "_finalize_training")  # that make a Trainer resumable
LIBRARY = Library(
    "transformers",
    ("transformers.trainer_callback", "transformers.integrations", "accelerate", "torch.utils.data"),
    frozenset(
        "args dataset train_dataset eval_dataset eval_dataloader processing_class tokenizer data_collator _dataloaders "
        "dataloader_references active_dataloader".split()
    ),
)


def transformers_callback(base: type) -> type:
    """Returns a callback class for the Trainer of Hugging Face."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Records epochs and steps as loops, and the logs of the Trainer as columns."""

        def __init__(self) -> None:
            self.relive_loop = FrameworkLoop()

        def on_epoch_begin(self, *_args: Any, **_kwargs: Any) -> None:
            if not self.relive_loop.is_resumable:
                self.relive_loop.begin_epoch()

        def on_step_begin(self, *_args: Any, **_kwargs: Any) -> None:
            self.relive_loop.begin_step()

        def on_epoch_end(self, *_args: Any, **_kwargs: Any) -> None:
            self.relive_loop.end_steps()

        def on_train_end(self, *_args: Any, **_kwargs: Any) -> None:
            if not self.relive_loop.is_resumable:
                self.relive_loop.end()

        def on_log(self, *_args: Any, logs: dict[str, Any] | None = None, **_kwargs: Any) -> None:
            items = (logs or {}).items()
            self.relive_loop.log({name: value for name, value in items if not name.endswith(_SKIPPED_ENDINGS)})

    return ReliveCallback


def hook_transformers(module: ModuleType) -> None:
    """Inserts our callback into every Trainer, and makes its training resumable."""
    callback = transformers_callback(sys.modules["transformers.trainer_callback"].TrainerCallback)
    insert_callback(module.Trainer, lambda trainer: trainer.callback_handler.callbacks, callback)
    patch_transformers(module)


def patch_transformers(module: ModuleType) -> None:
    """Makes the training resumable at any epoch, if this version has the required methods."""
    if not all(hasattr(module.Trainer, name) for name in _REQUIRED_METHODS):
        return
    wrap_method(module.Trainer, "_inner_training_loop", _wrap_training_loop)
    wrap_method(sys.modules["transformers.trainer_callback"].CallbackHandler, "on_epoch_begin", _wrap_epoch_begin)
    wrap_method(module.Trainer, "_run_epoch", _wrap_run_epoch)
    wrap_method(module.Trainer, "_finalize_training", _wrap_finalize)


def _wrap_training_loop(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    loop = find_framework_loop(trainer.callback_handler.callbacks)
    if loop is None:
        return original(trainer, *args, **options)
    loop.begin_resumable(lambda: find_trainer_state(trainer))
    try:
        return original(trainer, *args, **options)
    finally:
        loop.leave()


def _wrap_epoch_begin(original: Callable[..., Any], handler: Any, args: Any, state: Any, control: Any) -> Any:
    loop = find_framework_loop(handler.callbacks)
    if loop is not None and loop.is_resumable and not loop.try_begin_epoch():
        return control  # callbacks are not called for an epoch that is skipped
    return original(handler, args, state, control)


def _wrap_run_epoch(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    """Skips epochs after the last one, and corrects the epoch number after a replay has jumped to another epoch."""
    loop = find_framework_loop(trainer.callback_handler.callbacks)
    if loop is None or not loop.is_resumable:
        return original(trainer, *args, **options)
    if loop.is_over:
        loop.saved_stop_flag = trainer.control.should_training_stop
        trainer.control.should_training_stop = True  # the only way to leave its loop
        return None
    if "epoch" in options and "epochs_trained" in options:
        options["epoch"] = options["epochs_trained"] + loop.number
    return original(trainer, *args, **options)


def _wrap_finalize(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    loop = find_framework_loop(trainer.callback_handler.callbacks)
    if loop is not None and loop.is_resumable:
        if loop.is_over:
            trainer.control.should_training_stop = loop.saved_stop_flag
        loop.end()
    return original(trainer, *args, **options)


def find_trainer_state(trainer: Any) -> TrainerState | None:
    """Returns the state of a Trainer; None if it is distributed, or the batch size may change."""
    args = trainer.args
    spread = args.world_size > 1 or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if spread or args.auto_find_batch_size:
        return None
    state = TrainerState(LIBRARY, trainer, reads_own=bool(args.load_best_model_at_end))
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)  # unwraps the optimizer of accelerate
    return state if state.holds([trainer.model, optimizer, trainer.lr_scheduler]) else None
