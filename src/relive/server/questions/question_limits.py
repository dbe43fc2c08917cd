"""What one question may take; imports nothing, since the command line reads it without the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuestionLimits:
    """What one question may take, and how many are answered at once."""

    seconds: float = 30.0
    memory_bytes: int = 512 << 20
    readers: int = 4
