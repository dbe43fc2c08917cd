"""What the machine offers this process."""

import contextlib
import os


def usable_cpu_count() -> int:
    """Returns how many processors this process may use: a job's share of a node, where the system tells it."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def memory_limit_bytes() -> int | None:
    """Returns how much private memory this process may still take, where the system limits it; else None."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        used_kb = next((int(row.split()[1]) for row in file if row.startswith("VmData:")), 0)
        return max(0, limit - used_kb * 1024)
    return limit
