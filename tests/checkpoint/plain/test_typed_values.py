"""Typed forms give back what they were made of, and readers without trust accept nothing but data."""

from __future__ import annotations

import datetime
import decimal
import fractions
import marshal
import pickle
import random
import re
import uuid
import zoneinfo
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.checkpoint.graph import GraphState, Observer, Roots, StoredNode, content_digest
from relive.checkpoint.io.old_tokens import with_typed_values
from relive.checkpoint.plain import NotTyped, load_plain_pickle, read_marshalled, typed_form, value_of_form
from relive.checkpoint.state import capture_random_states
from relive.errors import Damaged

VALUES: tuple[Any, ...] = (
    np.dtype("f4"), np.dtype([("a", "i4"), ("b", "f8", (2,))]), np.float32(3), np.zeros(1, [("a", "i4")])[0],
    np.datetime64("2020-01-01"), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.time(3, fold=1),
    datetime.datetime(2020, 10, 25, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
    datetime.date(2020, 1, 1),
    datetime.timedelta(1, 2, 3), decimal.Decimal("1.50"), fractions.Fraction(1, 3), uuid.UUID(int=7), range(1, 9, 2),
    re.compile("a.*", re.IGNORECASE), re.compile(b"x"), slice(1, None), NotImplemented, {1: (2, [3.0, None])},
)  # fmt: skip
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.binary() | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_typed_form_gives_the_value_back(value: Any) -> None:
    form = read_marshalled(marshal.dumps(typed_form(value), 2))

    assert pickle.dumps(value_of_form(form)) == pickle.dumps(value)


def test_values_of_torch_have_forms() -> None:
    torch = pytest.importorskip("torch")
    for value in (torch.float32, torch.device("cuda:1"), torch.Size([2, 3]), torch.strided, torch.channels_last):
        assert value_of_form(typed_form(value)) == value
    assert torch.equal(value_of_form(typed_form(torch.arange(4))), torch.arange(4))


def test_states_of_random_generators_need_no_pickle() -> None:
    generators = (np.random.default_rng(3).bit_generator.state, np.random.RandomState(3).get_state(legacy=False))
    for state in (capture_random_states(), random.Random(3).getstate(), *generators):
        assert marshal.dumps(typed_form(value_of_form(typed_form(state))), 2) == marshal.dumps(typed_form(state), 2)


@given(plain)
def test_marshalled_values_are_read_as_marshal_reads_them(value: Any) -> None:
    data = marshal.dumps(value, 2)

    assert repr(read_marshalled(data)) == repr(marshal.loads(data))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_values_are_refused(data: bytes) -> None:
    try:
        read_marshalled(data)
    except Damaged:
        return


def test_code_and_classes_are_refused() -> None:
    with pytest.raises(Damaged):
        read_marshalled(marshal.dumps(test_code_and_classes_are_refused.__code__, 2))
    for value in (print, decimal.Context(), np.zeros(3), GraphState):
        with pytest.raises(NotTyped):
            load_plain_pickle(pickle.dumps(value))
    with pytest.raises(NotTyped):
        value_of_form(("dtype", "|O"))
    with pytest.raises(NotTyped):
        value_of_form(("array", ("dtype", "|O"), ("tuple", 1), bytes(8)))
    with pytest.raises(NotTyped):
        value_of_form(("torch.dtype", "load"))


def test_a_graph_with_pickles_is_compared_like_one_with_typed_values() -> None:
    held = {"when": datetime.date(2020, 1, 1), "kind": np.dtype("f4"), "generator": np.random.default_rng(3)}
    observer = Observer()
    observer.begin(Roots({"held": held}, has_modules=False), elapsed_s=0.0)
    now = observer.start
    assert now is not None

    def old(token: Any) -> Any:
        if type(token) is tuple and len(token) == 2 and token[0] == "d":
            return ("v", pickle.dumps(value_of_form(token[1]), 4))
        return tuple(map(old, token)) if type(token) is tuple else token

    def old_node(node: StoredNode) -> StoredNode:
        content = old(node.content)
        return StoredNode(node.way, node.parent, node.label, node.kind, content, content_digest(node.kind, content))

    then = replace(now, nodes={way: old_node(node) for way, node in now.nodes.items() if node.content is not None})
    pickled = sum(then.nodes[way].digest != now.nodes[way].digest for way in then.nodes)
    upgraded = with_typed_values(then, is_trusted=True)

    assert pickled >= 2
    assert {way: node.digest for way, node in upgraded.nodes.items()} == {
        way: now.nodes[way].digest for way in upgraded.nodes
    }
