"""State ↔ chunks: what a training keeps between iterations, taken in the background and put back bit for bit."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.checkpoint.engine import Checkpointer, LoopWatch
    from relive.checkpoint.finding import find_checkpoint, packs_of
    from relive.checkpoint.restoring import Checkpoint
    from relive.checkpoint.writer import Writer

__all__ = ["Checkpoint", "Checkpointer", "LoopWatch", "Writer", "find_checkpoint", "packs_of"]

__getattr__ = lazily(
    __name__,
    {
        "engine": "Checkpointer LoopWatch",
        "finding": "find_checkpoint packs_of",
        "restoring": "Checkpoint",
        "writer": "Writer",
    },
)
