"""Memory that a walk has met is kept as long as it is looked at, and other memory is never taken for it."""

from __future__ import annotations

import numpy as np
import pytest

from relive.checkpoint.graph import Observer, Roots
from relive.checkpoint.graph.buffers import Buffer

torch = pytest.importorskip("torch")

FLOATS = 1 << 18  # malloc gives so much back to the system at once: looking at it later would be a crash


def observed(weight: torch.Tensor) -> tuple[Observer, Buffer]:
    observer = Observer()
    roots = Roots({"weight": weight}, has_modules=False)
    observer.begin(roots, elapsed_s=60.0)
    return observer, _memory(observer, weight)


def _memory(observer: Observer, weight: torch.Tensor) -> Buffer:
    walk = observer.walk(Roots({"weight": weight}, has_modules=False))
    (found,) = [one for one in walk.buffers.found if one.size_bytes == 4 * FLOATS]
    return found


def test_memory_outlives_the_tensor_that_it_was_met_in() -> None:
    weight = torch.nn.Parameter(torch.full((FLOATS,), 7.0))
    _, memory = observed(weight)

    weight.data = torch.zeros(FLOATS)

    assert np.array_equal(memory.view().view(np.float32), np.full(FLOATS, 7.0, np.float32))
    assert memory.storage().data_ptr() == memory.address


def test_new_memory_where_the_old_was_is_not_taken_for_it() -> None:
    weight = torch.nn.Parameter(torch.zeros(FLOATS))
    observer, before = observed(weight)
    address = before.address
    before.release()
    for _ in range(20):  # until the allocator gives the same address again
        weight.data = torch.empty(0)
        weight.data = torch.zeros(FLOATS)
        if weight.data_ptr() == address:
            break
    else:
        pytest.skip("this allocator gives no address twice")

    assert _memory(observer, weight).way != before.way


def test_memory_is_known_while_a_view_of_it_is_left() -> None:
    weight = torch.zeros(FLOATS)
    observer, before = observed(weight)
    view = weight[1:]
    del weight

    walk = observer.walk(Roots({"weight": view}, has_modules=False))

    assert [one.way for one in walk.buffers.found if one.size_bytes == 4 * FLOATS] == [before.way]
