"""What replays took makes the next estimate better, and one bad moment does not make it worse."""

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


def test_nothing_known_gives_what_is_usual(home: Home) -> None:
    assert costs(home) == Costs(is_loaded=True)


def test_what_a_worker_took_is_expected_of_the_next(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.5, is_shared=False)

    found = costs(home)
    assert found.worker_s == pytest.approx(0.1)
    assert found.own_share == pytest.approx(0.1)
    assert found.first_restore_s == pytest.approx(0.046, abs=1e-3)
    assert found.after_s == 0.5


def test_one_bad_moment_moves_nothing(home: Home) -> None:
    for took_s in (4.35, 4.35, 9.35):
        record_measurements(home, [replace(TASK, took_s=took_s)], after_s=0.1, is_shared=False)

    assert costs(home).worker_s == pytest.approx(0.1)


def test_a_script_that_takes_twice_as_long_here_is_expected_to(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.1, is_shared=False)

    assert costs(home).pace == pytest.approx(2.0)
    assert costs(home, "another").pace == pytest.approx(2.0), "the machine is the same"


def test_the_pace_is_that_of_the_script_and_not_of_the_prediction(home: Home) -> None:
    """A prediction that was right already leaves the pace as it is."""
    record_measurements(home, [replace(TASK, script_s=4.0, costs=Costs(pace=2.0))], after_s=0.1, is_shared=False)

    assert costs(home).pace == pytest.approx(2.0)


def test_workers_beside_each_other_have_a_pace_of_their_own(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.1, is_shared=True)
    record_measurements(home, [replace(TASK, script_s=4.0)], after_s=0.1, is_shared=False)

    assert costs(home, is_shared=True).pace == pytest.approx(2.0)
    assert costs(home, is_shared=False).pace == pytest.approx(1.0)


def test_short_scripts_say_nothing_about_the_pace(home: Home) -> None:
    record_measurements(home, [replace(TASK, script_s=0.01)], after_s=0.1, is_shared=False)

    assert costs(home).pace == 1.0


def test_waiting_for_libraries_is_no_cost_of_a_worker(home: Home) -> None:
    record_measurements(home, [TASK], after_s=0.1, is_shared=False)
    record_measurements(home, [replace(TASK, waited_s=5.0, took_s=10.0)], after_s=0.1, is_shared=False)

    found = costs(home)
    assert found.worker_s == pytest.approx(0.1)
    assert found.loading_s == pytest.approx(5.67)


def test_a_process_of_its_own_is_learnt_by_itself(home: Home) -> None:
    record_measurements(home, [replace(TASK, modules=(), before_s=0.1)], after_s=0.1, is_shared=False)

    assert costs(home).worker_s == Costs().worker_s
    assert CostModel.read(home).costs("a", is_shared=False, is_loaded=False).process_s == pytest.approx(0.2)


def test_what_a_script_does_at_exit_is_learnt_where_it_is_seen(home: Home) -> None:
    job = msgspec.structs.replace(JOB, stop=False)
    report = WorkerReport(ok=True, set_up_s=0.1, ran_s=0.25)
    record_measurements(
        home, [replace(TASK, ranks=reporting(report, job), script_s=0.05)], after_s=0.1, is_shared=False
    )

    assert costs(home).ending_s == pytest.approx(0.1)


def test_what_failed_teaches_nothing(home: Home) -> None:
    record_measurements(
        home,
        [replace(TASK, ranks=reporting(WorkerReport(ok=False))), replace(TASK, attempts=2)],
        after_s=0.1,
        is_shared=False,
    )

    assert costs(home).worker_s == Costs().worker_s
    assert costs(home).pace == 1.0


@pytest.mark.parametrize("text", ["", "{", '{"worker_s": 0.4, "replays": 3}', '{"readings": 3}'])
def test_a_file_that_makes_no_sense_is_passed_over(home: Home, text: str) -> None:
    (home.path / FILE).write_text(text)

    assert costs(home) == Costs(is_loaded=True)


def test_the_file_stays_small(home: Home) -> None:
    for at in range(400):
        record_measurements(home, [replace(TASK, run=f"run {at}")], after_s=0.1, is_shared=False)

    assert len((home.path / FILE).read_bytes()) < 20_000
