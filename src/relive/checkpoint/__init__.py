"""State ↔ chunks: what a training keeps between iterations, taken in the background and put back bit for bit."""

from typing import TYPE_CHECKING

from relive.doors import lazily

if TYPE_CHECKING:
    from relive.checkpoint.batches import watched
    from relive.checkpoint.engine import Checkpointer, LoopWatch
    from relive.checkpoint.finding import Found, find_checkpoints, packs_of, restore_first_whole
    from relive.checkpoint.held import Held, Library
    from relive.checkpoint.liveouts import used_in
    from relive.checkpoint.moments import Moments, agreed_moments
    from relive.checkpoint.reach import Outer, frames_of, loops_frame, put_back, users_frame
    from relive.checkpoint.restoring import Checkpoint
    from relive.checkpoint.sources import project_texts
    from relive.checkpoint.writer import Writer

__all__ = [
    "Checkpoint",
    "Checkpointer",
    "Found",
    "Held",
    "Library",
    "LoopWatch",
    "Moments",
    "Outer",
    "Writer",
    "agreed_moments",
    "find_checkpoints",
    "frames_of",
    "loops_frame",
    "packs_of",
    "project_texts",
    "put_back",
    "restore_first_whole",
    "used_in",
    "users_frame",
    "watched",
]

__getattr__ = lazily(
    __name__,
    {
        "batches": "watched",
        "engine": "Checkpointer LoopWatch",
        "finding": "Found find_checkpoints packs_of restore_first_whole",
        "held": "Held Library",
        "liveouts": "used_in",
        "moments": "Moments agreed_moments",
        "reach": "Outer frames_of loops_frame put_back users_frame",
        "restoring": "Checkpoint",
        "sources": "project_texts",
        "writer": "Writer",
    },
)
