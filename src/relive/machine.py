"""What the machine offers this process."""

import os


def usable_cpu_count() -> int:
    """Returns how many processors this process may use: a job's share of a node, where the system tells it."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity else os.cpu_count() or 1
