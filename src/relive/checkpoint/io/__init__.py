"""The way of one checkpoint: captured, written to packs, looked up and restored."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.io.capture import Capture, CapturedState
    from relive.checkpoint.io.checkpoint_lookup import find_checkpoints, packs_of, restore_first_whole
    from relive.checkpoint.io.checkpoint_reader import (
        AROUND,
        DISCOVERED,
        GRADIENTS,
        RANDOM,
        UNKEPT,
        VARIABLES,
        Checkpoint,
    )
    from relive.checkpoint.io.checkpoint_writer import Writer, Written
    from relive.checkpoint.io.frame_restore import put_back

__getattr__ = lazy_names(__name__)
