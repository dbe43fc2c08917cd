"""The processes of a group, and the processor time they have used, as Linux tells them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_GROUP, _USER_TIME, _SYSTEM_TIME = 2, 11, 12  # fields of /proc/PID/stat, counted after the name of the program


def group_members(group: int) -> list[int]:
    """Returns the processes of a group, its leader first; only the leader where there is no /proc."""
    others = [pid for pid, fields in _all_processes() if int(fields[_GROUP]) == group and pid != group]
    return [group, *sorted(others)]


def processor_seconds(groups: Iterable[int]) -> float | None:
    """Returns the processor time that all processes of these groups have used; None where that isn't known."""
    wanted = set(groups)
    found = [
        int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])
        for _, fields in _all_processes()
        if int(fields[_GROUP]) in wanted
    ]
    return sum(found) / os.sysconf("SC_CLK_TCK") if found else None


def _all_processes() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        yield int(path.parent.name), text.rpartition(")")[2].split()
