"""The way of one checkpoint: captured, written to packs, looked up and restored."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.io.capture import Capture, CapturedState
    from relive.checkpoint.io.checkpoint_lookup import find_checkpoints, open_packs, restore_first_intact
    from relive.checkpoint.io.checkpoint_reader import Checkpoint, open_checkpoint
    from relive.checkpoint.io.checkpoint_writer import CheckpointWriter, WrittenCheckpoint
    from relive.checkpoint.io.frame_restore import restore_script, running_roots
    from relive.checkpoint.io.trainer_state import Library, TrainerState, unwrapped

__getattr__ = lazy_names(__name__)
