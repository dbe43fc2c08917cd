"""The profile of a run holds the time of its script, without the time of recording."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from relive.hindsight.plan.run_profile import RunProfile, read_profile
from relive.store import Home
from relive.store.chunks import list_checkpoints
from relive.store.journal import ParsedJournal, parse_run
from relive.store.journal.line_schema import CheckpointTaken, lines_of

SCRIPT = """
import time
import relive
net = [0.5]
with relive.checkpointing(net=net, every=2):
    for epoch in relive.loop("epoch", range(5)):
        for step in relive.loop("step", range(3)):
            time.sleep(0.02)
        time.sleep(0.02)
relive.log("final", net[0])
"""


def profile(journal: ParsedJournal, run: str, **times: float) -> RunProfile:
    """The profile of the run, as if its checkpoints had taken these times."""
    lines = [
        msgspec.structs.replace(line, **times) if isinstance(line, CheckpointTaken) else line for line in journal.lines
    ]
    return read_profile(run, replace(journal, lines=lines), list_checkpoints(journal), start_up_s=0.1)


def test_the_time_of_checkpoints_is_not_counted_as_the_scripts(script: Any) -> None:
    script(SCRIPT)
    home = Home(script.home)
    (run,) = home.run_ids()
    (journal,) = parse_run(home, run)

    bare = profile(journal, run, stall_s=0.0, write_s=0.0).mains[0]
    found = profile(journal, run, stall_s=0.004, write_s=0.002).mains[0]

    stalled_s = {
        iteration.number: bare.iterations[iteration.number].took_s - iteration.took_s for iteration in found.iterations
    }
    taken = lines_of(CheckpointTaken, journal.lines)
    assert sum(stalled_s.values()) == pytest.approx(0.004 * len(taken) + 0.002)
    assert stalled_s[4] >= 0.006 - 1e-9, "the end is waited for"
    assert stalled_s[0] == pytest.approx(0.0)
    for iteration, before in zip(found.iterations, bare.iterations, strict=True):
        at_nested = [line for line in taken if line.place == "loop" and line.loop == iteration.nested[0].number]
        assert before.nested[0].took_s - iteration.nested[0].took_s == pytest.approx(0.004 * len(at_nested))
