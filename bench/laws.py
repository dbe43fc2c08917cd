"""How often replay is right, over many programs made up at random, and how often wrong without saying so.

    python -m bench laws --examples 2000 --seeds 1 2 3 4 --jobs 2

The programs are those of tests/laws/programs.py, with an awkward part in every other one. The examples are shared out
among the seeds. Programs that were answered wrongly, or not at all, are told on standard error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.measuring import clean_environment, report

ROOT = Path(__file__).parent.parent
TEST = "tests/laws/test_replay_is_right.py"
GOALS = {"wrong": "0", "hung": "0", "broken": "0"}
FAILED = ("wrong", "hung", "broken", "failed")


def main() -> None:
    """Run the law with each seed, counting what comes out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    each = -(-options.examples // len(options.seeds))
    with ThreadPoolExecutor(options.jobs) as pool:
        found = [line for lines in pool.map(lambda seed: _tally(each, seed), options.seeds) for line in lines]
    outcomes = Counter(line["outcome"] for line in found)
    kinds = Counter(_kind(line["outcome"]) for line in found)
    report(
        "laws",
        GOALS,
        examples=len(found),
        seeds=len(options.seeds),
        **{kind: kinds[kind] for kind in ("right", "cautious", "marked", "wrong", "hung", "broken", "failed")},
        outcomes=dict(outcomes),
    )


def _kind(outcome: str) -> str:
    if outcome in FAILED:
        return outcome
    if outcome == "refused" or outcome.endswith("flagged"):
        return "marked"
    return "cautious" if outcome.startswith(("unverified", "contradicted")) else "right"


def _tally(examples: int, seed: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        tally = Path(name) / "tally"
        env = {**clean_environment(), "LAW_EXAMPLES": str(examples), "LAW_TALLY": str(tally), "LAW_COUNTS": "1",
               "RELIVE_WARM_SECONDS": "0"}  # fmt: skip
        words = ["-q", "-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "slow", TEST]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, f"--hypothesis-seed={seed}"], cwd=ROOT, env=env, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in tally.read_text().splitlines()] if tally.exists() else []
    if done.returncode or not lines:
        print(done.stdout[-3000:], done.stderr[-1000:], file=sys.stderr)
    for line in lines:
        if line["outcome"] in FAILED:
            print(json.dumps({"hypothesis_seed": seed, **line}), file=sys.stderr, flush=True)
    return lines


if __name__ == "__main__":
    main()
