"""The Trainer of Hugging Face: its loops, what it logs, and how its training is entered at any epoch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from relive.checkpoint.state import Library, TrainerState
from relive.handsfree.capture import wrap_method
from relive.handsfree.frameworks.framework_loop import FrameworkLoop, insert_callback, find_framework_loop

_SKIPPED_ENDINGS = ("epoch", "runtime", "per_second")  # the loop tells the one, and the clock the others
_REQUIRED_METHODS = ("_run_epoch", "_inner_training_loop", "_finalize_training")  # of the Trainers whose loop can be entered
LIBRARY = Library(
    "transformers",
    ("transformers.trainer_callback", "transformers.integrations", "accelerate", "torch.utils.data"),
    frozenset(
        "args dataset train_dataset eval_dataset eval_dataloader processing_class tokenizer data_collator _dataloaders "
        "dataloader_references active_dataloader".split()
    ),
)


def transformers_callback(base: type) -> type:
    """The class of a callback for the Trainer of Hugging Face."""

    class ReliveCallback(base):  # type: ignore[misc]
        """Epochs and steps are loops, and what the Trainer logs becomes columns."""

        def __init__(self) -> None:
            self.relive_course = FrameworkLoop()

        def on_epoch_begin(self, *_args: Any, **_told: Any) -> None:
            if not self.relive_course.is_driven:
                self.relive_course.begin_epoch()

        def on_step_begin(self, *_args: Any, **_told: Any) -> None:
            self.relive_course.begin_step()

        def on_epoch_end(self, *_args: Any, **_told: Any) -> None:
            self.relive_course.end_steps()

        def on_train_end(self, *_args: Any, **_told: Any) -> None:
            if not self.relive_course.is_driven:
                self.relive_course.end()

        def on_log(self, *_args: Any, logs: dict[str, Any] | None = None, **_told: Any) -> None:
            told = (logs or {}).items()
            self.relive_course.log({name: value for name, value in told if not name.endswith(_SKIPPED_ENDINGS)})

    return ReliveCallback


def hook_transformers(module: ModuleType) -> None:
    made = transformers_callback(sys.modules["transformers.trainer_callback"].TrainerCallback)
    insert_callback(module.Trainer, lambda trainer: trainer.callback_handler.callbacks, made)
    enter_transformers(module)


def enter_transformers(module: ModuleType) -> None:
    """Let its training be entered at any epoch, if this version has the parts that it takes."""
    if not all(hasattr(module.Trainer, name) for name in _REQUIRED_METHODS):
        return
    wrap_method(module.Trainer, "_inner_training_loop", _wrap_training_loop)
    wrap_method(sys.modules["transformers.trainer_callback"].CallbackHandler, "on_epoch_begin", _wrap_epoch_begin)
    wrap_method(module.Trainer, "_run_epoch", _wrap_run_epoch)
    wrap_method(module.Trainer, "_finalize_training", _wrap_finalize)


def _wrap_training_loop(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    course = find_framework_loop(trainer.callback_handler.callbacks)
    if course is None:
        return original(trainer, *args, **options)
    course.drive(lambda: find_trainer_state(trainer))
    try:
        return original(trainer, *args, **options)
    finally:
        course.leave()


def _wrap_epoch_begin(original: Callable[..., Any], handler: Any, args: Any, state: Any, control: Any) -> Any:
    course = find_framework_loop(handler.callbacks)
    if course is not None and course.is_driven and not course.begins_epoch():
        return control  # nobody is told of an epoch that is not run
    return original(handler, args, state, control)


def _wrap_run_epoch(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    """The Trainer counts from where it began; a replay that went on elsewhere knows better."""
    course = find_framework_loop(trainer.callback_handler.callbacks)
    if course is None or not course.is_driven:
        return original(trainer, *args, **options)
    if course.is_over:
        course.stopped = trainer.control.should_training_stop
        trainer.control.should_training_stop = True  # the one way out of its loop
        return None
    if "epoch" in options and "epochs_trained" in options:
        options["epoch"] = options["epochs_trained"] + course.number
    return original(trainer, *args, **options)


def _wrap_finalize(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    course = find_framework_loop(trainer.callback_handler.callbacks)
    if course is not None and course.is_driven:
        if course.is_over:
            trainer.control.should_training_stop = course.stopped
        course.end()
    return original(trainer, *args, **options)


def find_trainer_state(trainer: Any) -> TrainerState | None:
    """The state of a Trainer; None where it is spread over processes, or its batches may change their size."""
    args = trainer.args
    spread = args.world_size > 1 or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if spread or args.auto_find_batch_size:
        return None
    held = TrainerState(LIBRARY, trainer, reads_own=bool(args.load_best_model_at_end))
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)  # of what accelerate put around it
    return held if held.holds([trainer.model, optimizer, trainer.lr_scheduler]) else None
