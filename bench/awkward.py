"""What becomes of questions to small programs whose state changes in awkward ways.

    python -m bench awkward                         # all of them
    python -m bench awkward --only torch --jobs 4   # those whose name holds a text, four at a time

The programs are those of tests/laws/awkward_programs.py. Each is recorded, its statements are added, and relive is
asked for each; a twin that had them from the start tells what is right. `right`; `cautious`: right, but marked as
doubtful; `marked`: wrong or missing, and said so; `wrong`: and nobody is told; `hung`: no answer; `broken`: the program
does not run here. `lost_exact` are questions that were right once (tests/laws/awkward_exact.txt), and aren't simply
right now.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from bench.measuring import report
from tests.laws.awkward_programs import EXACT, PROGRAMS, Outcome, ask

GOALS = {"wrong": "0", "hung": "0", "broken": "0", "lost_exact": "0"}


def main() -> None:
    """Ask all programs, telling each outcome that isn't right on standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [one for name, one in PROGRAMS.items() if options.only in name]
    found: list[Outcome] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcomes in pool.map(ask, chosen):
            found += outcomes
            for one in outcomes:
                if one.kind != "right":
                    print(json.dumps(asdict(one)), file=sys.stderr, flush=True)
    counts = Counter(one.kind for one in found)
    lost = [one.question for one in found if one.kind != "right" and one.question in EXACT]
    report(
        "awkward",
        GOALS,
        programs=len(chosen),
        questions=len(found),
        **{kind: counts[kind] for kind in ("right", "cautious", "marked", "wrong", "hung", "broken")},
        lost_exact=len(lost),
        lost=lost,
        failed=[one.question for one in found if one.kind in ("wrong", "hung", "broken")],
    )


if __name__ == "__main__":
    main()
