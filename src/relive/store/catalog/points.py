"""Logged values as columns, in the form that the index returns to queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """One row per logged value, ordered by run (as in `runs`), rank, process, sequence number.

    `run`, `name` and `path` are positions in the lists below. Row r was logged inside the loops `paths[path[r]]`
    (outermost first), whose loop columns have the values `dims[r, :depth]`.
    """

    runs: list[str]
    names: list[str]
    paths: list[tuple[str, ...]]
    run: NDArray[np.int32]
    name: NDArray[np.int32]
    path: NDArray[np.int32]
    rank: NDArray[np.int32]
    process: NDArray[np.int32]  # 0 for the run's own process, else the pid of a child process
    seq: NDArray[np.int64]
    time_us: NDArray[np.int64]  # wall clock, microseconds since the epoch
    dims: NDArray[np.int64]  # shape (rows, deepest path)
    kind: NDArray[np.uint8]  # relive.store.journal.slot_kinds
    value: NDArray[np.float64]  # the number as a float (NaN if the value isn't a number)
    exact: NDArray[np.int64]  # the number as an integer, for integer kinds (uint64: the same bits)
    text: (
        NDArray[Any] | None
    )  # object array: JSON text of values of kind LINE, else None; None if there are no such values
    items: NDArray[Any] | None  # object array: JSON object of the loop columns whose item isn't an integer, else None
    replay: NDArray[np.int32] | None = None  # the number of the replay that computed the value, 0 if it was recorded
    verdict: NDArray[np.uint8] | None = None  # of relive.model.Verdict; None: all are recorded
    left_out: Mapping[str, int] = field(default_factory=dict)  # name → how many contradicted values are left out

    def __len__(self) -> int:
        return len(self.run)
