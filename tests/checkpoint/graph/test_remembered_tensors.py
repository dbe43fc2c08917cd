"""What a walk remembers of tensors from the last one is what a fresh look at them would find."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.checkpoint.graph import Observer, Roots

torch = pytest.importorskip("torch")


def _exchange(state: dict[str, Any]) -> None:
    state["first"], state["second"] = state["second"], state["first"]


def _give_other_type(state: dict[str, Any]) -> None:
    state["first"].data = state["first"].data.view(torch.int32 if state["first"].is_floating_point() else torch.float32)


def _make_view(state: dict[str, Any]) -> None:
    state["second"] = state["first"][2:]


def _make_view_first(state: dict[str, Any]) -> None:
    """The memory is now met first in another tensor."""
    state["earlier"][0] = state["first"].detach()


def _drop_view(state: dict[str, Any]) -> None:
    state["earlier"][0] = None


def _make_anew(state: dict[str, Any]) -> None:
    state["first"] = torch.zeros(8)


def _shrink(state: dict[str, Any]) -> None:
    if state["first"].untyped_storage().nbytes() == 32:
        state["first"].untyped_storage().resize_(32)
        state["first"].resize_(4)


def _transpose(state: dict[str, Any]) -> None:
    state["second"].data = torch.zeros(4, 4).t()


def _write(state: dict[str, Any]) -> None:
    state["second"].add_(1)


def _add_attribute(state: dict[str, Any]) -> None:
    state["first"].note = len(state)


CHANGES = [
    _exchange, _give_other_type, _make_view, _make_view_first, _drop_view, _make_anew, _shrink, _transpose, _write,
    _add_attribute,
]  # fmt: skip


def contents(observer: Observer, roots: Roots) -> list[Any]:
    walk = observer.walk(roots)
    nodes = [(node.way, node.kind, node.content, node.digest) for node in walk.nodes]
    memory = sorted((one.way, one.parent, one.address, one.size_bytes, one.used_bytes) for one in walk.buffers.found)
    walk.release()
    return [nodes, memory, walk.unknown]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(CHANGES), max_size=8))
def test_remembered_tensors_are_as_a_fresh_look_finds_them(changes) -> None:
    state: dict[str, Any] = {"earlier": [None]}
    roots = Roots({"state": state}, has_modules=False)
    observer = Observer()
    observer.begin(roots, elapsed_s=60.0)
    state["first"], state["second"] = torch.zeros(8), torch.ones(8)  # made in the loop
    contents(observer, roots)

    for change in changes:
        change(state)
        remembered = contents(observer, roots)
        observer._memo.clear()
        assert remembered == contents(observer, roots)


def test_tensors_that_are_made_in_the_loop_are_remembered() -> None:
    state: dict[str, Any] = {}
    roots = Roots({"state": state}, has_modules=False)
    observer = Observer()
    observer.begin(roots, elapsed_s=60.0)
    state["moment"] = torch.zeros(8)
    contents(observer, roots)

    assert id(state["moment"]) in observer._memo
