"""Laws of the cost model: measurements improve the next prediction, and one outlier does not spoil it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from relive.hindsight.cost_measurements import record_measurements
from relive.hindsight.plan.cost_model import FILE, CostModel
from relive.hindsight.plan.segments import Costs
from relive.hindsight.workers.executor import RankTask, Task
from relive.hindsight.workers.wire import Job, WorkerReport
from relive.store import Home

REPORT = WorkerReport(
    ok=True, restores=1, restored_bytes=1000, restored_s=0.05, first_restore_s=0.05, set_up_s=0.2, ran_s=4.25
)
JOB = Job(
    run="a", home="", folder="", script="", module=None, cwd="", argv=[], search=[], protected=[], writable=[],
    args={}, loops=[], visits=[], skips={}, ends={}, stop=True, last_loop=0, mains=[],
)  # fmt: skip
TASK = Task(
    prepare=lambda: pytest.fail("nothing is started here"), python="", cost_s=5.0, run="a", modules=("torch",),
    before_s=2.0, script_s=2.0, attempts=1, ranks=[RankTask(JOB, {}, report=REPORT)], took_s=4.35,
)  # fmt: skip


def reporting(report: WorkerReport, job: Job = JOB) -> list[RankTask]:
    return [RankTask(job, {}, report=report)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def costs(home: Home, run: str = "a", *, is_shared: bool = False) -> Costs:
    return CostModel.read(home).costs(run, is_shared=is_shared, is_loaded=True)


def test_without_measurements_the_defaults_are_predicted(home: Home) -> None:
    assert costs(home) == Costs(is_loaded=True)


def test_the_time_of_a_worker_is_predicted_for_the_next(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.5, is_shared=False)

    found = costs(home)
    assert found.worker_s == pytest.approx(0.1)
    assert found.own_share == pytest.approx(0.1)
    assert found.first_restore_s == pytest.approx(0.046, abs=1e-3)
    assert found.after_s == 0.5


def test_one_outlier_does_not_change_the_prediction(home: Home) -> None:
    for took_s in (4.35, 4.35, 9.35):
        record_measurements(home, [replace(TASK, took_s=took_s)], after_s=0.1, is_shared=False)

    assert costs(home).worker_s == pytest.approx(0.1)


def test_a_script_that_is_twice_as_slow_here_is_predicted_to_be(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.1, is_shared=False)

    assert costs(home).pace == pytest.approx(2.0)
    assert costs(home, "another").pace == pytest.approx(2.0), "the machine is the same"


def test_the_pace_is_that_of_the_script_and_not_of_the_prediction(home: Home) -> None:
    """A prediction that was right already leaves the pace as it is."""
    record_measurements(home, [replace(TASK, script_s=4.0, costs=Costs(pace=2.0))], after_s=0.1, is_shared=False)

    assert costs(home).pace == pytest.approx(2.0)


def test_concurrent_workers_have_a_pace_of_their_own(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.1, is_shared=True)
    record_measurements(home, [replace(TASK, script_s=4.0)], after_s=0.1, is_shared=False)

    assert costs(home, is_shared=True).pace == pytest.approx(2.0)
    assert costs(home, is_shared=False).pace == pytest.approx(1.0)


def test_short_scripts_say_nothing_about_the_pace(home: Home) -> None:
    record_measurements(home, [replace(TASK, script_s=0.01)], after_s=0.1, is_shared=False)

    assert costs(home).pace == 1.0


def test_waiting_for_libraries_is_not_a_cost_of_a_worker(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.1, is_shared=False)
    record_measurements(home, [replace(TASK, waited_s=5.0, took_s=10.0)], after_s=0.1, is_shared=False)

    found = costs(home)
    assert found.worker_s == pytest.approx(0.1)
    assert found.loading_s == pytest.approx(5.67)


def test_the_start_of_a_new_process_is_measured_apart(home: Home) -> None:
    record_measurements(home, [replace(TASK, modules=(), before_s=0.1)], after_s=0.1, is_shared=False)

    assert costs(home).worker_s == Costs().worker_s
    assert CostModel.read(home).costs("a", is_shared=False, is_loaded=False).process_s == pytest.approx(0.2)


def test_the_time_of_exit_handlers_is_measured_for_scripts_that_run_to_their_end(home: Home) -> None:
    job = msgspec.structs.replace(JOB, stop=False)
    report = WorkerReport(ok=True, set_up_s=0.1, ran_s=0.25)
    record_measurements(
        home, [replace(TASK, ranks=reporting(report, job), script_s=0.05)], after_s=0.1, is_shared=False
    )

    assert costs(home).ending_s == pytest.approx(0.1)


def test_failed_tasks_are_not_measured(home: Home) -> None:
    record_measurements(
        home,
        [replace(TASK, ranks=reporting(WorkerReport(ok=False))), replace(TASK, attempts=2)],
        after_s=0.1,
        is_shared=False,
    )

    assert costs(home).worker_s == Costs().worker_s
    assert costs(home).pace == 1.0


@pytest.mark.parametrize("text", ["", "{", '{"worker_s": 0.4, "replays": 3}', '{"readings": 3}'])
def test_an_unreadable_file_is_ignored(home: Home, text: str) -> None:
    (home.path / FILE).write_text(text)

    assert costs(home) == Costs(is_loaded=True)


def test_the_file_stays_small(home: Home) -> None:
    for at in range(400):
        record_measurements(home, [replace(TASK, run=f"run {at}")], after_s=0.1, is_shared=False)

    assert len((home.path / FILE).read_bytes()) < 20_000
