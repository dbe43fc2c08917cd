"""How the rows of `Points` are grouped: which a rank logged itself, where a group starts, a row's position in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.store.catalog import Points

if TYPE_CHECKING:
    from numpy.typing import NDArray


def main_process_rows(points: Points) -> NDArray[Any]:
    """Returns the rows that the ranks logged themselves, without those of their child processes."""
    import numpy as np

    return np.flatnonzero(points.process == 0)


def group_starts(*keys: NDArray[Any]) -> NDArray[Any]:
    """Returns the rows at which one of the keys changes; equal keys must be adjacent."""
    import numpy as np

    is_start = np.ones(len(keys[0]), bool)
    is_start[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.flatnonzero(is_start)


def group_ends(starts: NDArray[Any], count: int) -> NDArray[Any]:
    """Returns for each group the row after its last one, in a column of `count` rows."""
    import numpy as np

    return np.append(starts, count)[1:]


def positions_in_group(starts: NDArray[Any], count: int) -> NDArray[Any]:
    """Returns for each of `count` rows how many rows of its group precede it."""
    import numpy as np

    positions: NDArray[Any] = np.arange(count) - np.repeat(starts, group_ends(starts, count) - starts)
    return positions
