"""What comes of a damaged file in a home: noticed, repaired, harmless, or silently wrong, by kind of file.

    python -m bench damage --examples 1000 --seed 1

The home, the ways to damage it and the answers are those of tests/laws/damage.py. Damage that is not noticed is told on
standard error, with the number that repeats it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from bench.measuring import report
from tests.laws import damage

VERDICTS = ("noticed", "repaired", "harmless", "silently wrong", "broken", "unreported")
GOALS = {"silently_wrong": "0", "broken": "0", "unreported": "0", "false_alarms": "0"}
BETWEEN = 50  # examples between two looks at an undamaged copy


def main() -> None:
    """Damage one file at a time, in a copy of the home."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=list(damage.KINDS), choices=list(damage.KINDS))
    options = parser.parse_args()
    chance, counts = random.Random(options.seed), defaultdict[str, Counter[str]](Counter)
    false_alarms = 0
    with damage.example_home() as (home, whole), tempfile.TemporaryDirectory() as scratch:
        for number in range(options.examples):
            kind, seed = chance.choice(options.kinds), chance.randrange(1 << 40)
            outcome = damage.try_damage(home, whole, kind, seed, Path(scratch))
            counts[kind][outcome.verdict] += 1
            if outcome.verdict not in VERDICTS[:3]:
                print(f"{outcome.verdict}: seed {seed}: {outcome}", file=sys.stderr)
            if number % BETWEEN == 0:
                false_alarms += _is_false_alarm(home, whole, Path(scratch))
    totals = sum(counts.values(), Counter[str]())
    report(
        "damage",
        GOALS,
        examples=options.examples,
        **{verdict.replace(" ", "_"): totals[verdict] for verdict in VERDICTS},
        false_alarms=false_alarms,
        kinds={kind: dict(counts[kind]) for kind in sorted(counts)},
    )


def _is_false_alarm(home: Path, whole: dict[str, Any], scratch: Path) -> bool:
    copy = scratch / "undamaged"
    shutil.copytree(home, copy)
    outcome = damage.compare(copy, whole, "none", "", "")
    shutil.rmtree(copy)
    return outcome.verdict != "harmless"


if __name__ == "__main__":
    main()
