"""Laws of restored objects: into objects that were built again, every kind comes back equal, shared as it was, whole.

Each kind is built, changed and captured. It is then restored into another one that was only built, as a new process
does, and into the same one after more changes. What a *view* tells of it is what it told when it was captured.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.graph import container_kinds, number_kinds, object_kinds, torch_kinds
from tests.checkpoint.graph.kinds import KINDS, Things
from tests.checkpoint.state.test_state_handlers import Keeper

MODULES = (torch_kinds, number_kinds, container_kinds, object_kinds)  # which fill KINDS
# What is not restored yet: into one that was built again, and into itself.
GAPS_WHEN_FRESH = {
    "classes_that_are_first_used_later": "a class is not looked up by its name",
    "closed_streams": "the content of a closed one means that there is none",
}
GAPS_IN_PLACE = {"generators_of_numpy_with_children": "children that were spawned later are still counted"}


def taken(folder: Path, things: Things, change: Callable[[Things], None]) -> tuple[Keeper, Any]:
    keeper = Keeper(folder, **things)
    keeper.capture.begin()
    change(things)
    return keeper, keeper.take()


def parameters(gaps: dict[str, str]) -> list[Any]:
    marks = {name: [pytest.mark.xfail(strict=True, reason=reason)] for name, reason in gaps.items()}
    return [pytest.param(name, id=name, marks=marks.get(name, [])) for name in KINDS]


def test_every_scheduler_of_torch_is_tried() -> None:
    known = {name for name, one in vars(torch_kinds.schedulers).items() if isinstance(one, type) and name[0] != "_"}
    named = {
        name for name in known if issubclass(getattr(torch_kinds.schedulers, name), torch_kinds.schedulers.LRScheduler)
    }

    assert named - {"LRScheduler"} <= set(torch_kinds.SCHEDULERS)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", parameters(GAPS_WHEN_FRESH))
def test_a_kind_is_restored_into_one_that_was_built_again(tmp_path: Path, name: str) -> None:
    build, change, view = KINDS[name]
    things = build()
    keeper, written = taken(tmp_path, things, change)
    expected = view(things)
    untouched = view(build())
    del things
    keeper.capture.named.clear()
    gc.collect()
    fresh = build()
    before = dict(fresh)

    keeper.restore(written, **fresh)

    assert untouched != expected
    assert view(fresh) == expected
    assert all(fresh[key] is value for key, value in before.items())


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", parameters(GAPS_IN_PLACE))
def test_a_kind_is_restored_into_itself(tmp_path: Path, name: str) -> None:
    build, change, view = KINDS[name]
    things = build()
    keeper, written = taken(tmp_path, things, change)
    expected = view(things)
    change(things)

    keeper.restore(written, **things)

    assert view(things) == expected
