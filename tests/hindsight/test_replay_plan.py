"""Laws of plans: a plan is plain data, and says all that is needed to carry it out."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

import relive
from relive.hindsight import Plan, Question, ReplaySession, execute_plan, plan_replay
from relive.store import Home
from tests.conftest import Script

SCRIPT = """
import relive
net = [0.5]
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(4)):
        net[0] *= 2
        relive.log("loss", net[0])
"""
ASKED = SCRIPT + '        relive.log("x", net[0] + epoch)\n'
PLAIN = (str, bytes, int, float, bool, type(None))


def live_parts(value: Any, path: str = "plan") -> Iterator[str]:
    """The parts of a value that are not plain data, by the path to each."""
    if isinstance(value, PLAIN):
        return
    if isinstance(value, tuple | list | set | frozenset | range):
        for at, inner in enumerate(value):
            yield from live_parts(inner, f"{path}[{at}]")
    elif isinstance(value, Mapping) and type(value) is dict:
        for key, inner in value.items():
            yield from live_parts(key, f"{path} key")
            yield from live_parts(inner, f"{path}[{key!r}]")
    elif dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        for field in dataclasses.fields(value):
            yield from live_parts(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, msgspec.Struct) and value.__struct_config__.frozen:
        for name in value.__struct_fields__:
            yield from live_parts(getattr(value, name), f"{path}.{name}")
    else:
        yield f"{path}: {type(value).__name__}"


def plan_for(script: Script, session: ReplaySession, **how: Any) -> Plan:
    script(SCRIPT)
    script.write(ASKED)
    return plan_replay(session, Question(("x",), workers=2, **how))


def test_a_plan_is_plain_data(script: Script) -> None:
    with ReplaySession(Home(script.home)) as session:
        plan = plan_for(script, session)

    assert len(plan.cases) == 1
    assert list(live_parts(plan)) == []


def test_what_is_live_would_be_found_in_a_plan(script: Script) -> None:
    with ReplaySession(Home(script.home)) as session:
        plan = plan_for(script, session)
        (case,) = plan.cases
        history = session.history(case.record)

        assert list(live_parts({"session": session})) == ["plan['session']: ReplaySession"]
        assert list(live_parts(history))


def test_a_plan_is_equal_to_its_copies_and_says_so_when_printed(script: Script) -> None:
    with ReplaySession(Home(script.home)) as session:
        plan = plan_for(script, session)
        again = plan_replay(session, plan.question)

    assert plan == copy.deepcopy(plan) == pickle.loads(pickle.dumps(plan)) == again
    assert repr(plan) == repr(copy.deepcopy(plan))
    assert plan != dataclasses.replace(plan, workers=plan.workers + 1)


def test_leaving_guesses_out_makes_another_plan(script: Script) -> None:
    with ReplaySession(Home(script.home)) as session:
        plan = plan_for(script, session)
    (case,) = plan.cases
    unsure = tuple(dataclasses.replace(landing, probability=0.01) for landing in case.patch.landings)
    fit = msgspec.structs.replace(case.fit, patch=dataclasses.replace(case.patch, landings=unsure))
    guessed = dataclasses.replace(plan, cases=(dataclasses.replace(case, fit=fit),))

    certain = guessed.without_guesses()

    assert (len(guessed.cases), guessed.refusals) == (1, ())
    assert (certain.cases, [run for run, _ in certain.refusals]) == ((), [case.record.run])
    assert plan.without_guesses() == plan


@pytest.mark.long
def test_a_plan_that_was_sent_elsewhere_is_carried_out_by_another_session(script: Script) -> None:
    home = Home(script.home)
    home.create()  # before the session puts its folder there
    with ReplaySession(home) as session:
        sent = pickle.dumps(plan_for(script, session))
    assert not session.folder.exists()

    with ReplaySession(home) as another:
        found = execute_plan(another, pickle.loads(sent), watch=lambda _tasks: None)

    assert (found.added, found.is_good, found.is_verified) == (4, True, True)
    assert relive.dataframe("x", home=script.home)["x"].tolist() == [1.0, 3.0, 6.0, 11.0]


def test_a_session_leaves_no_folder_behind(script: Script) -> None:
    with ReplaySession(Home(script.home)) as session:
        was_there = session.folder.is_dir()

    assert was_there
    assert not session.folder.exists()


REPORTING = """
import relive
def report(net):
    relive.log("end", net[0])
net = [0.5]
with relive.checkpointing(net=net, every=1):
    for epoch in relive.loop("epoch", range(4)):
        net[0] *= 2
report(net)
"""
# All that makes `report` look as if anything could call it, in a file that no run imports.
NEVER_IMPORTED = """
import relive
from train import report
hooks = [report]
def train(model):
    for epoch in relive.loop("epoch", range(4)):
        model.train()
        report(model)
"""


def test_a_file_that_the_run_did_not_import_has_no_say(script: Script) -> None:
    for number in range(7):
        script.write(NEVER_IMPORTED, f"train_{number}.py")
    script(REPORTING)
    script.write(REPORTING.replace('    relive.log("end"', '    relive.log("x", net[0] * 2)\n    relive.log("end"'))
    with ReplaySession(Home(script.home)) as session:
        (case,) = plan_replay(session, Question(("x",))).cases

    assert (case.plan.depth, case.plan.iterations) == ("suffix", 0)


def test_a_statement_in_a_file_that_the_run_did_not_import_is_refused_with_the_reason(script: Script) -> None:
    script.write("import relive\ndef note():\n    pass\n", "other.py")
    script(SCRIPT)
    script.write("import relive\ndef note():\n    relive.log('x', 1)\n", "other.py")
    with ReplaySession(Home(script.home)) as session:
        plan = plan_replay(session, Question(("x",)))

    ((_, reason),) = plan.refusals
    assert plan.cases == ()
    assert "the run did not import other.py" in reason
