"""Laws of background writers: calls return once their data is copied, run in order, and are never lost silently."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive.errors import ReliveError
from relive.record.background.ring_buffer import RingAllocator

# A writer as anybody could have it: plain methods, some state, and a file that shows what was done.
MODULE = """
import threading, time
import numpy as np

class Writer:
    def __init__(self, path, pause_s=0.0):
        self.path, self.pause_s = str(path), pause_s
        self.count = 0

    def _add(self, text):
        time.sleep(self.pause_s)
        self.count += 1
        with open(self.path, "a") as file:
            file.write(text + "\\n")

    def add(self, name, value, step=None):
        self._add(f"{name} {float(np.asarray(value, dtype=float).sum())} {step}")

    def add_at(self, name, walltime=None):
        self._add(f"{name} {walltime}")

    def add_many(self, values):
        self._add(" ".join(f"{key}={float(np.asarray(value, dtype=float).sum())}" for key, value in values.items()))

    def add_kind(self, value):
        self._add(f"{type(value).__name__} {value.dtype} {list(value.shape)} {value.tolist()}")

    def fail(self, value):
        raise ValueError(f"no room for {np.shape(value)}")

    def die(self):
        import os
        os._exit(7)

    def where(self):
        self._add(threading.current_thread().name)

    def flush(self):
        self._add("flushed")

    def close(self):
        self._add("closed")

def broken(path):
    raise OSError("no such folder")
"""
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "some_writers.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        import some_writers  # type: ignore[import-not-found]

        yield some_writers


@pytest.fixture(params=["thread", "process"])
def opened(request: pytest.FixtureRequest, writers: Any, tmp_path: Path) -> Open:
    """Opens a writer whose calls run in a thread, and one whose calls run in a process."""

    def open_it(max_bytes: int = 1 << 20, **how: Any) -> Any:
        if request.param == "process":
            return relive.background(writers.Writer, tmp_path / "out", max_bytes=max_bytes, **how)
        return relive.background(writers.Writer(tmp_path / "out", **how), max_bytes=max_bytes)

    return open_it


def lines(folder: Path) -> list[str]:
    path = folder / "out"
    return path.read_text().splitlines() if path.exists() else []


def test_calls_are_made_in_order_with_their_original_arguments(opened: Open, tmp_path: Path) -> None:
    array, nested = np.zeros(1000), {"a": np.ones(3), "b": [1, 2]}
    with opened() as writer:
        for step in range(50):
            writer.add("x", array, step)
            array += 1
        writer.add_many(nested)
        nested["a"] += 1
        nested["b"].append(100)

    *calls, last, closed = lines(tmp_path)
    assert calls == [f"x {step * 1000.0!r} {step}" for step in range(50)]
    assert last == "a=3.0 b=3.0"
    assert closed == "closed"


@pytest.mark.long
def test_tensors_of_all_kinds_arrive_as_they_were(opened: Open, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = [
        torch.nn.Parameter(torch.ones(2, 3)),
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor(3.5),
        torch.empty(0),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, requires_grad=True) * 2,
        torch.tensor([1 + 2j]).conj(),
    ]
    with opened() as writer:
        for tensor in tensors:
            writer.add_kind(tensor)
            tensor.data.zero_()

    found = lines(tmp_path)
    assert found[0].partition(" ")[2] == "torch.float32 [2, 3] [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]"
    assert found[1] == "Tensor torch.int64 [3, 2] [[0, 3], [1, 4], [2, 5]]"
    assert found[2] == "Tensor torch.float32 [] 3.5"
    assert found[3] == "Tensor torch.float32 [0] []"
    assert found[4] == "Tensor torch.bfloat16 [3] [1.0, 1.0, 1.0]"
    assert found[5] == "Tensor torch.float32 [3] [2.0, 2.0, 2.0]"
    assert found[6] == "Tensor torch.complex64 [1] [(1-2j)]"


def test_flush_waits_for_every_call_before_it(opened: Open, tmp_path: Path) -> None:
    with opened(pause_s=0.005) as writer:
        for step in range(20):
            writer.add("x", 1, step)
        writer.flush()

        assert lines(tmp_path)[-1] == "flushed"
        assert len(lines(tmp_path)) == 21


def test_a_full_queue_makes_the_caller_wait_and_loses_nothing(opened: Open, tmp_path: Path) -> None:
    with opened(max_bytes=100_000, pause_s=0.002) as writer:
        for step in range(50):
            writer.add("x", np.full(4_000, step), step)  # 32 kB each
        writer.add("large", np.ones(100_000), 50)  # alone larger than the bound

    assert [line.split()[-1] for line in lines(tmp_path)[:-1]] == [str(step) for step in range(51)]


def test_close_raises_failures_with_the_call_and_its_traceback(
    opened: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = opened()
    writer.fail(np.zeros((2, 3)))
    writer.add("after", 1)
    for _ in range(10):
        writer.fail("more")

    with pytest.raises(ReliveError) as failed:
        writer.close()
    message = str(failed.value)
    assert message.startswith(
        "11 calls failed in the background:\n  fail(float64[2, 3]): ValueError: no room for (2, 3)"
    )
    assert "and 6 more" in message
    assert "in fail" in str(failed.value.__cause__)
    assert lines(tmp_path) == ["after 1.0 None", "closed"], "the others were made"
    assert capfd.readouterr().err.count("in the background, fail(float64[2, 3])") == 1, "said once, and at once"


def test_flush_raises_failures_and_close_does_not_repeat_them(opened: Open) -> None:
    writer = opened()
    writer.fail(1)
    with pytest.raises(ReliveError, match="a call failed"):
        writer.flush()
    writer.close()


def test_the_users_own_error_is_the_one_raised(opened: Open, capfd: pytest.CaptureFixture[str]) -> None:
    def train() -> None:
        with opened() as writer:
            writer.fail(1)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        train()

    assert "a call failed in the background" in capfd.readouterr().err


def test_attributes_pass_through_and_what_is_missing_is_missing(opened: Open, tmp_path: Path) -> None:
    with opened() as writer:
        writer.add("x", 1)
        writer.flush()

        assert writer.path == str(tmp_path / "out")
        assert writer.count == 2
        assert not hasattr(writer, "_private")
        with pytest.raises(AttributeError):
            writer.nothing  # noqa: B018
        assert writer.add("y", 1) is None


def test_the_time_is_that_of_the_call(opened: Open, tmp_path: Path) -> None:
    with opened(pause_s=0.1) as writer:
        before = time.time()
        for _ in range(3):
            writer.add_at("x")
        after = time.time()
        writer.add_at("given", walltime=5.0)

    *times, given = [float(line.split()[1]) for line in lines(tmp_path)[:-1]]
    assert all(before <= at <= after for at in times)
    assert given == 5.0


def test_a_closed_writer_says_so_and_closing_again_is_fine(opened: Open) -> None:
    writer = opened()
    writer.close()
    writer.close()

    with pytest.raises(ReliveError, match="closed; create a new one"):
        writer.add("x", 1)


def test_several_threads_may_call(opened: Open, tmp_path: Path) -> None:
    def work(name: str) -> None:
        for step in range(30):
            writer.add(name, np.full(10, step), step)

    with opened() as writer:
        threads = [threading.Thread(target=work, args=(name,)) for name in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for name in "xyz":
        mine = [line for line in lines(tmp_path) if line.startswith(name)]
        assert mine == [f"{name} {step * 10.0!r} {step}" for step in range(30)]


def test_a_forked_child_leaves_the_writer_to_its_parent(opened: Open, tmp_path: Path) -> None:
    writer = opened(pause_s=0.01)
    writer.add("before", 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            writer.add("child", 1)
            writer.flush()
            writer.close()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    writer.add("after", 1)
    writer.close()

    assert status == 0
    assert lines(tmp_path) == ["before 1.0 None", "after 1.0 None", "closed"]


def test_a_background_writer_cannot_be_pickled(opened: Open) -> None:
    with opened() as writer, pytest.raises(ReliveError, match="create one there"):
        pickle.dumps(writer)


def test_dropping_an_open_writer_warns_and_loses_nothing(opened: Open) -> None:
    writer = opened()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.warns(ResourceWarning, match="dropped without close"):
            del writer


@pytest.mark.long
@pytest.mark.parametrize("how", ["Writer('out')", "Writer, 'out'"])
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise RuntimeError('mine')"])
def test_everything_is_written_at_exit(script: Any, how: str, end: str) -> None:
    script.write(MODULE, "some_writers.py")
    done = script(
        f"""
        import relive
        from some_writers import Writer
        writer = relive.background({how}, **({{}} if "(" in {how!r} else dict(pause_s=0.01)))
        for step in range(30):
            writer.add("x", step, step)
        writer.fail(5)
        {end}
        """,
        check=False,
    )

    assert done.returncode == (3 if "Exit" in end else 1 if end else 0)
    assert lines(done.project) == [*(f"x {step}.0 {step}" for step in range(30)), "closed"]
    assert "a call failed in the background:\n  fail(5): ValueError" in done.stderr
    assert done.stdout == ""


def test_killing_the_training_loses_no_call_sent_to_the_process(script: Any) -> None:
    script.write(MODULE, "some_writers.py")
    process = script.start(
        """
        import relive, time
        from some_writers import Writer
        writer = relive.background(Writer, "out", pause_s=0.005)
        for step in range(40):
            writer.add("x", step, step)
        print("given", flush=True)
        time.sleep(60)
        """
    )
    assert process.stdout.readline() == "given\n"
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while "closed" not in lines(script.project) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert lines(script.project) == [*(f"x {step}.0 {step}" for step in range(40)), "closed"]


def test_the_death_of_the_process_is_reported(writers: Any, tmp_path: Path) -> None:
    writer = relive.background(writers.Writer, tmp_path / "out")
    writer.die()
    with pytest.raises(ReliveError, match="ended with exit code 7, and waiting calls are lost"):
        writer.flush()
    writer.add("x", 1)  # training goes on

    with pytest.raises(ReliveError, match="its process is gone"):
        writer.close()


def test_a_writer_that_cannot_be_created_is_reported_with_the_reason(writers: Any, tmp_path: Path) -> None:
    writer = relive.background(writers.broken, tmp_path)
    writer.add("x", 1)

    with pytest.raises(ReliveError, match="OSError: no such folder"):
        writer.close()


def test_a_factory_that_cannot_be_pickled_is_an_error_at_once(writers: Any, tmp_path: Path) -> None:
    with pytest.raises(ReliveError, match="pass a writer instance instead of its class"):
        relive.background(lambda: None)
    writer = relive.background(writers.Writer, tmp_path / "out")
    writer.add("x", threading.Lock())
    writer.add("y", 1)

    with pytest.raises(ReliveError, match="cannot pickle"):
        writer.close()
    assert lines(tmp_path) == ["y 1.0 None", "closed"]


def test_wrong_arguments_of_background_are_errors() -> None:
    with pytest.raises(ReliveError, match="leave them out"):
        relive.background(object(), "folder")
    with pytest.raises(ReliveError, match="above zero"):
        relive.background(object, max_bytes=0)


def test_all_calls_come_from_one_thread(writers: Any, tmp_path: Path) -> None:
    with relive.background(writers.Writer(tmp_path / "out")) as writer:
        writer.where()

    assert lines(tmp_path) == ["relive-background", "closed"]


def _events(folder: Path) -> list[tuple[int, str, bytes]]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    events = [event for path in folder.iterdir() for event in LegacyEventFileLoader(str(path)).Load()]
    return [(event.step, value.tag, value.SerializeToString()) for event in events for value in event.summary.value]


def _log_everything(writer: Any) -> None:
    torch = pytest.importorskip("torch")
    chance = torch.Generator().manual_seed(0)
    values = [
        torch.randn(50, 7, generator=chance),
        torch.randn(3000, generator=chance).double(),
        torch.zeros(5),
        torch.tensor([1e-30, -1e20, 0.0, 3.0]),
        torch.randn(9_000, generator=chance).abs(),  # of more, BLAS adds the squares in two threads
        torch.randn(9, 4, generator=chance).t(),
        np.arange(10),
    ]
    for step, value in enumerate(values):
        writer.add_histogram("histogram", value, step)
        writer.add_scalar("scalar", step / 3, step)
        writer.add_text("text", "word " * 100 * step, step)
        if isinstance(value, torch.Tensor):
            value.zero_()
    writer.add_histogram("no numbers", torch.tensor([float("nan"), 1.0]), 0)


@pytest.mark.long
@pytest.mark.parametrize("how", ["thread", "process"])
def test_tensorboard_files_are_byte_identical(tmp_path: Path, how: str) -> None:
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what TensorBoard warns of is not ours
        from torch.utils.tensorboard import SummaryWriter

        direct = SummaryWriter(tmp_path / "direct")
        path = str(tmp_path / "background")
        background = (
            relive.background(SummaryWriter, path) if how == "process" else relive.background(SummaryWriter(path))
        )
        for writer in (direct, background):
            _log_everything(writer)
        background.add_histogram("empty", np.empty(0), 0)
        direct.close()
        with pytest.raises(ReliveError, match="no element"):
            background.close()

        assert _events(tmp_path / "background") == _events(tmp_path / "direct")
        assert len(_events(tmp_path / "direct")) == 22


@given(st.lists(st.one_of(st.integers(1, 40), st.just(0)), max_size=200))
def test_waiting_messages_never_overlap_and_wait_only_for_lack_of_space(steps: list[int]):
    ring, received, touched = RingAllocator(100), 0, 0
    for size in steps:
        if not size:
            received += bool(ring.waiting)
            ring.free(received)
            continue
        begin = ring.allocate(size)
        allocated = sorted(ring.waiting)

        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(allocated))
        assert all(0 <= low < high <= 100 for low, high in allocated)
        assert begin is not None or touched + size > 100
        touched = max([touched, *(end for _, end in allocated)])
