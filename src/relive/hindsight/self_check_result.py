"""The result of the self-check of a run: a small file beside its journals."""

from __future__ import annotations

from pathlib import Path

import msgspec

from relive.errors import Damaged
from relive.store import read_sealed, write_sealed

FILE = "check.json"
FAILED = "unverified"


class Check(msgspec.Struct, frozen=True):
    """The result of replaying one iteration of a finished run."""

    verdict: str  # "exact", "unverified", "nothing to compare", or why nothing was replayed
    loop: str = ""
    iteration: int = -1
    reproduced: int = 0
    first: str = ""  # the first value that was not reproduced

    @property
    def is_failed(self) -> bool:
        return self.verdict == FAILED

    def write(self, folder: Path) -> None:
        write_sealed(folder / FILE, msgspec.json.encode(self), durable=False)


def read_check(folder: Path) -> Check | None:
    """Returns the check of a run; None if there was none. The result of a damaged one says so."""
    try:
        return msgspec.json.decode(read_sealed(folder / FILE), type=Check)
    except OSError:
        return None
    except (ValueError, Damaged):
        return Check(f"unknown: {FILE} is damaged")
