"""`python -m bench [NAME …] [--OPTION …]`: run all benchmarks, or some, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "log_cost",
    "script_overhead",
    "start_up",
    "index_speed",
    "leaderboard",
    "disk",
    "killed",
    "damage",
    "checkpoint_cost",
    "checkpoint_overhead",
    "replay",
    "pseudoresume",
    "multiversion",
    "background",
    "memo",
    "memo_stale",
    "parsl_tests",
    "alignment",
    "awkward",
    "laws",
    "completeness",
    "handsfree",
    "ingest",
    "fleet",
    "adversary",
    "page_speed",
)


def main() -> None:
    """Run the named benchmarks one after the other; a failing one doesn't stop the others."""
    words = sys.argv[1:]
    begun = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    chosen, options = words[:begun] or NAMES, words[begun:]
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        raise SystemExit(f"no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    ended = {
        name: subprocess.run([sys.executable, "-m", f"bench.{name}", *options], check=False).returncode
        for name in chosen
    }
    failed = [name for name, code in ended.items() if code]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


main()
