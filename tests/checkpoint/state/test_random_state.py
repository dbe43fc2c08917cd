"""Laws of random states: a captured state can be restored any number of times."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest

from relive.checkpoint.state.random_state import capture_random_states, restore_random_states

torch = pytest.importorskip("torch")


def test_the_global_generators_go_on_where_they_were_and_the_state_stays_as_it_is() -> None:
    np.random.seed(1)
    states = capture_random_states()
    before = copy.deepcopy(states)
    drawn = [(random.random(), np.random.rand(), float(torch.rand(1)))]
    for _ in range(2):
        restore_random_states(states)
        drawn.append((random.random(), np.random.rand(), float(torch.rand(1))))

    assert drawn[0] == drawn[1] == drawn[2]
    assert states == before
