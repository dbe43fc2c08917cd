"""How often a remembered result is not what the function would return now, and how often it is computed needlessly.

    python -m bench memo_stale --examples 200     # that many changes of state, and all edits of source
    python -m bench memo_stale --only torch       # those whose name holds a text

The examples are those of tests/laws/memo_mutations.py and tests/laws/memo_edits.py. `stale`: another result than that
of the undecorated function, and nobody is told; `warned`: the same, with a warning; `needless`: computed although
nothing had changed; `broken`: the example does not run here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.measuring import report
from tests.laws.memo_edits import EDITS, judge_edits
from tests.laws.memo_mutations import mutations, volatile_functions
from tests.laws.memo_worlds import judge

GOALS = {"stale": "0", "edits_stale": "0", "volatile_unwarned": "0", "broken": "0"}


def main() -> None:
    """Judge the examples, telling each that isn't simply right on standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name in ("torch", "pandas", "relive.memo.memoized_function"):  # once, before the examples fork
        importlib.import_module(name)
    chosen = [one for one in mutations(seed=options.seed) if options.only in one.name][: options.examples]
    verdicts = [judge(one) for one in chosen]
    volatile = [judge(one) for one in volatile_functions()]
    for verdict in verdicts:
        if verdict.stale or verdict.needless or verdict.error:
            print(json.dumps(asdict(verdict)), file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        stale, needless, _ = judge_edits(Path(folder) / "project")
    report(
        "memo_stale", GOALS, examples=len(chosen), stale=sum(one.stale and not one.warned for one in verdicts),
        warned=sum(one.stale and bool(one.warned) for one in verdicts),
        needless=sum(one.needless > 0 for one in verdicts), broken=sum(bool(one.error) for one in verdicts),
        volatile=len(volatile), volatile_unwarned=sum(one.stale and not one.warned for one in volatile),
        edits=len(EDITS), edits_stale=len(stale), edits_needless=len(needless),
    )  # fmt: skip


if __name__ == "__main__":
    main()
