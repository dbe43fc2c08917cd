"""Whether the checkpoints of a run reproduced it when they were tried: a small file beside its journals."""

from __future__ import annotations

from pathlib import Path

import msgspec

FILE = "check.json"
FAILED = "unverified"


class Check(msgspec.Struct, frozen=True):
    """What came out when one iteration of a finished run was replayed."""

    verdict: str  # "exact", "unverified", "nothing to compare", or why it could not be tried
    loop: str = ""
    iteration: int = -1
    reproduced: int = 0
    first: str = ""  # the first value that came out differently

    @property
    def is_failed(self) -> bool:
        return self.verdict == FAILED

    def write(self, folder: Path) -> None:
        part = folder / f"{FILE}.part"
        part.write_bytes(msgspec.json.encode(self))
        part.rename(folder / FILE)


def read_check(folder: Path) -> Check | None:
    """The check of a run; None if there was none, or it can't be read any more."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Check)
    except (OSError, msgspec.DecodeError):
        return None
