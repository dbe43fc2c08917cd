"""How much longer a whole script takes with relive in it: 10 epochs of 1,000 steps of 1 ms, two values a step."""

from __future__ import annotations

import statistics
import time

from bench.measuring import project, report, run_script

SCRIPT = """
import json, os, sys, time
import numpy as np
WITH = sys.argv[1] == "relive"
if WITH:
    import relive
    log, loop = relive.log, relive.loop
else:
    log, loop = (lambda name, value: value), (lambda name, items: items)
a = np.random.default_rng(0).random((64, 64))

# A step is a fixed amount of work that takes about 1 ms, so that both scripts do exactly the same.
rounds = int(sys.argv[2])

def step():
    b = a
    for _ in range(rounds):
        b = b @ a * 1e-3
    return float(b[0, 0])

# Two processes that do the same work differ by several percent here (where their memory happens to lie), so the work
# itself is timed and taken off: what is left is what loops and logs cost, their threads and the first verb included.
wall = worked = 0.0
begun, cpu = time.perf_counter(), time.process_time()
for epoch in loop("epoch", range(10)):
    for number in loop("step", range(1000)):
        was, used = time.perf_counter(), time.thread_time()
        loss = step()
        worked += time.thread_time() - used
        wall += time.perf_counter() - was
        log("loss", loss)
        log("lr", 0.1)
    log("val_acc", loss)
took, used = time.perf_counter() - begun, time.process_time() - cpu
result = {"took_s": took, "cpu_s": used, "steps_s": wall, "steps_cpu_s": worked}
open(os.environ["BENCH_RESULT"], "w").write(json.dumps(result))
"""
PAIRS = 7
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Alternate runs with and without; the ratio of each pair is taken, and the median of the ratios."""
    with project(SCRIPT, git=True) as folder:
        rounds = _rounds_for_1_ms(folder)
        pairs = [(_run(folder, "plain", rounds), _run(folder, "relive", rounds)) for _ in range(PAIRS)]
    beside = [_beside(ours, "took_s", "steps_s") - _beside(plain, "took_s", "steps_s") for plain, ours in pairs]
    cpu = [_beside(ours, "cpu_s", "steps_cpu_s") - _beside(plain, "cpu_s", "steps_cpu_s") for plain, ours in pairs]
    whole = [ours["whole_s"] / plain["whole_s"] - 1 for plain, ours in pairs]
    report(
        "script_overhead",
        {"overhead": "< 0.01", "cpu_overhead": "< 0.01"},
        step_ms=pairs[0][0]["took_s"] / 10_000 * 1e3, overhead=statistics.median(beside),
        cpu_overhead=statistics.median(cpu), whole_process_overhead=statistics.median(whole),
        whole_process_scatter=[min(whole), max(whole)],
    )  # fmt: skip


def _beside(run: dict[str, float], all_of_it: str, steps: str) -> float:
    """What a script spent beside its steps, as a share of them."""
    return run[all_of_it] / run[steps] - 1


def _run(folder: object, how: str, rounds: int) -> dict[str, float]:
    begun = time.perf_counter()
    result = run_script(folder, how, str(rounds), **THREADS)  # type: ignore[arg-type]
    return {**result, "whole_s": time.perf_counter() - begun}


def _rounds_for_1_ms(folder: object) -> int:
    taken = _run(folder, "plain", 20)["took_s"] / 10_000
    return max(1, round(20 * 1e-3 / taken))


if __name__ == "__main__":
    main()
