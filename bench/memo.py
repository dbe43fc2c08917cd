"""What remembering a call costs, beside joblib.Memory, diskcache and Parsl's memoizer, in one process and one run."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.measuring import once_s, report

ROUNDS = 7
HITS = 300
MISSES = 60
ARRAY_BYTES = 100 << 20

Call = Callable[[int], Any]


def main() -> None:
    """All are measured in turn, several times over, so that a machine that changes its mind hits them alike."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["RELIVE_HOME"] = str(folder / "home")
        with _contenders(folder) as contenders:
            hits = {who: [] for who in contenders}  # type: dict[str, list[float]]
            misses = {who: [] for who in contenders}  # type: dict[str, list[float]]
            for at in range(ROUNDS):
                for who, call in contenders.items():
                    misses[who].append(_per_call(call, range(at * MISSES, (at + 1) * MISSES)))
                    hits[who].append(_per_call(call, [at * MISSES] * HITS))
            in_run = _in_a_run(contenders["relive"])
        # The best round of each: others use this machine too, and the least disturbed one tells what a call costs.
        hit = {who: min(times) for who, times in hits.items()}
        miss = {who: min(times) for who, times in misses.items()}
        _tell(hit, miss, in_run)
        _tell_hashing()


def _tell(hit: dict[str, float], miss: dict[str, float], in_run: float) -> None:
    report(
        "memo",
        {"hit_us": "< 60", "joblib_ratio": ">= 3", "parsl_ratio": ">= 3", "miss_us": "< 300 plus the write"},
        hit_us=hit["relive"], hit_in_run_us=in_run, miss_us=miss["relive"],
        joblib_hit_us=hit["joblib"], diskcache_hit_us=hit["diskcache"], parsl_hit_us=hit["parsl"],
        joblib_miss_us=miss["joblib"], diskcache_miss_us=miss["diskcache"], parsl_miss_us=miss["parsl"],
        joblib_ratio=hit["joblib"] / hit["relive"], diskcache_ratio=hit["diskcache"] / hit["relive"],
        parsl_ratio=hit["parsl"] / hit["relive"], parsl_memoizer_alone_hit_us=hit["parsl_memoizer"],
    )  # fmt: skip


def _tell_hashing() -> None:
    """Large arguments: how many passes of a plain BLAKE3 and XXH3 over the same bytes the key takes."""
    import numpy
    import torch
    import xxhash

    from relive.hashing import hasher
    from relive.memo import Keys

    array = numpy.random.default_rng(0).random(ARRAY_BYTES // 8)
    tensor = torch.from_numpy(array.copy())
    keys = Keys(_on_data)
    work: dict[str, Callable[[], Any]] = {
        "blake3": lambda: hasher(ARRAY_BYTES).update(memoryview(array).cast("B")).digest(),
        "xxh3": lambda: xxhash.xxh3_128_digest(memoryview(array).cast("B")),
        "numpy": lambda: keys.make({"data": array}),
        "torch": lambda: keys.make({"data": tensor}),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, one in work.items():
            times[name].append(once_s(one) * 1000)
    ms = {name: statistics.median(found) for name, found in times.items()}
    report(
        "memo_hashing",
        {"numpy_ratio": "<= 3", "torch_ratio": "<= 3"},
        blake3_ms=ms["blake3"], xxh3_ms=ms["xxh3"], numpy_ms=ms["numpy"], torch_ms=ms["torch"],
        numpy_ratio=ms["numpy"] / ms["blake3"], torch_ratio=ms["torch"] / ms["blake3"],
    )  # fmt: skip


def _per_call(call: Call, arguments: Any) -> float:
    """The median time of a call, in microseconds."""
    times = []
    for argument in arguments:
        begun = time.perf_counter()
        call(argument)
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e6


def _in_a_run(call: Call) -> float:
    import relive

    with relive.run("bench"):
        return _per_call(call, [0] * HITS)


def _work(x: int, name: str = "data", scale: float = 0.5) -> dict[str, Any]:
    return {"x": x, "name": name, "scaled": x * scale}


def _on_data(data: Any) -> None: ...


@contextlib.contextmanager
def _contenders(folder: Path) -> Iterator[dict[str, Call]]:
    import diskcache
    import joblib

    import relive

    with _parsl(folder) as app, diskcache.Cache(str(folder / "diskcache")) as cache:
        yield {
            "relive": relive.memo(_work),
            "joblib": joblib.Memory(str(folder / "joblib"), verbose=0).cache(_work),
            "diskcache": cache.memoize()(_work),
            "parsl": lambda x: app(x).result(),
            "parsl_memoizer": _bare_memoizer(folder),
        }


@contextlib.contextmanager
def _parsl(folder: Path) -> Iterator[Callable[[int], Any]]:
    """An app as a Parsl user calls it, on threads, with Parsl's memoizer and its checkpoint file."""
    import parsl
    from parsl.dataflow.memoization import BasicMemoizer

    memoizer = BasicMemoizer(checkpoint_mode="task_exit")
    config = parsl.Config(
        executors=[parsl.ThreadPoolExecutor(max_threads=1)], memoizer=memoizer, run_dir=str(folder / "parsl"),
        initialize_logging=False,
    )  # fmt: skip
    with parsl.load(config):
        yield parsl.python_app(_work, cache=True)


def _bare_memoizer(folder: Path) -> Call:
    """Parsl's table in memory alone, without what a task costs around it: a dict, with a pickle and MD5 as the key."""
    from concurrent.futures import Future

    from parsl.dataflow.memoization import BasicMemoizer

    memoizer = BasicMemoizer(checkpoint_mode="task_exit")
    memoizer.start(run_dir=str(folder / "bare"), config_run_dir=str(folder))
    numbers = itertools.count()

    def call(x: int) -> Any:
        task: Any = {
            "id": next(numbers), "memoize": True, "func": _work, "args": (x,),
            "kwargs": {"name": "data", "scale": 0.5}, "ignore_for_cache": [], "app_fu": Future(),
        }  # fmt: skip
        known = memoizer.check_memo(task)
        if known is not None:
            return known.result()
        result = _work(x)
        memoizer.update_memo_result(task, result)
        task["app_fu"].set_result(result)
        return result

    return call


if __name__ == "__main__":
    main()
