"""Laws of planning again when checkpoints can't be read: the values come by another way, or the answer says why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import relive
from relive.hindsight import execution
from relive.store import Home
from relive.store.chunks import Chunks, list_checkpoints
from relive.store.chunks.tombstones import drop_checkpoints
from relive.store.journal import parse_run
from tests.conftest import Script

TWO_LOOPS = """
    import relive
    net = [1.0]
    with relive.checkpointing(net=net, every=1):
        for epoch in relive.loop("warmup", range(3)):
            net[0] *= 0.5
        relive.log("between", net[0])
        for epoch in relive.loop("epoch", range(4)):
            net[0] += 1
            relive.log("loss", net[0])
            {added}
"""


def leave_one_damaged_checkpoint(script: Script, loop: str, iterations: int) -> None:
    """Of the checkpoints of a loop, drops all but the one after so many iterations, and damages that."""
    home = Home(script.home)
    (run,) = home.run_ids()
    (recorded,) = parse_run(home, run)
    rows = [row for row in list_checkpoints(recorded) if row.name == loop]
    (kept,) = (row for row in rows if row.place == "iteration" and row.iterations == iterations)
    drop_checkpoints(home.run_folder(run), [row for row in rows if row is not kept])
    Chunks(home.chunks).path(kept.manifest).write_bytes(b"damaged")


@pytest.mark.long
def test_a_loop_without_any_readable_checkpoint_is_replayed_all_the_same(script: Script) -> None:
    script(TWO_LOOPS.format(added="pass"))
    leave_one_damaged_checkpoint(script, "epoch", 2)
    script.write(TWO_LOOPS.format(added="relive.log('x', net[0] * epoch)"))

    (run,) = relive.replay("x", where="epoch = 2", workers=1, home=script.home).runs

    assert (run.missing, run.mismatches) == ([], [])
    assert "passed over" in " ".join(run.notes)
    found = relive.dataframe("x", home=script.home)
    assert found[found["epoch"] == 2]["x"].tolist() == [2 * 3.125]


@pytest.mark.long
def test_a_run_for_which_nothing_can_be_planned_any_more_says_so(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(TWO_LOOPS.format(added="pass"))
    leave_one_damaged_checkpoint(script, "epoch", 2)
    script.write(TWO_LOOPS.format(added="relive.log('x', net[0] * epoch)"))
    plan_case = execution.plan_case

    def plan_nothing(*how: Any) -> Any:
        case = plan_case(*how)
        return replace(case, plan=replace(case.plan, segments=(), reasons=("nothing is left",)))

    monkeypatch.setattr(execution, "plan_case", plan_nothing)
    answer = relive.replay("x", where="epoch = 2", workers=1, home=script.home)

    (run,) = answer.runs
    assert not answer.is_good
    assert "nothing is left" in run.missing[0]
    assert "relive doctor" in run.missing[0]
