"""What is returned comes back exactly, and mostly without pickle."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relive.hashing import stable_hash
from relive.memo import Unstorable
from relive.memo.result_codec import StoredResult, read_value, store_value

simple = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
values = st.recursive(
    simple,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(simple, inner, max_size=4)
        | st.sets(st.integers() | st.text())
    ),
    max_leaves=12,
)


def again(value: Any) -> tuple[Any, StoredResult]:
    chunks: dict[str, bytes] = {}

    def put(data: Any) -> str:
        chunks[name := str(len(chunks))] = bytes(data)
        return name

    stored = store_value(value, put)
    assert stored.chunks == list(chunks)
    return read_value(stored.form, chunks.__getitem__, allow_pickle=True), stored


@given(values)
def test_plain_values_come_back(value: Any):
    read, _ = again(value)

    assert stable_hash(read) == stable_hash(value)
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5000.0).reshape(50, 100),
        np.arange(5000.0).reshape(50, 100).T,
        np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
        np.arange(100)[::3],
        np.zeros((0, 3), "f4"),
        np.ones(()),
        np.array(["a", "bc"]),
        np.array(["2020-01-01", "NaT"], "M8[s]"),
        np.zeros(3, [("a", "<i4"), ("b", "<f8", (2,))]),
        np.array([1, 2], ">i4"),
        np.float32(math.pi),
        np.bool_(True),
        np.datetime64("2020-01-01T00:00", "m"),
    ],
)
def test_arrays_come_back_with_their_layout_and_without_pickle(array: Any):
    read, stored = again(array)

    assert not stored.is_pickled
    assert type(read) is type(array)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)
    if array.size and array.base is None and array.ndim:
        assert read.strides == array.strides
    if isinstance(read, np.ndarray):
        assert read.flags.writeable


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(30, 40),
        torch.randn(30, 40).T,
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor(3),
        torch.empty(0, 2),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.complex64),
        torch.randn(3, requires_grad=True),
    ],
)
def test_tensors_come_back_as_tensors_without_pickle(tensor: torch.Tensor):
    read, stored = again(tensor)

    assert not stored.is_pickled
    assert (read.dtype, read.stride(), read.requires_grad) == (tensor.dtype, tensor.stride(), tensor.requires_grad)
    assert torch.equal(read, tensor)


@pytest.mark.parametrize(
    "value",
    [
        pandas.DataFrame({"a": np.arange(2000.0), "b": ["x"] * 2000}),
        Path("x"),
        np.array([{1: 2}, None]),
        torch.nn.Parameter(torch.ones(2)),
        bytearray(b"abc"),
    ],
)
def test_the_rest_is_pickled_and_marked(value: Any):
    read, stored = again(value)

    assert stored.is_pickled
    assert type(read) is type(value)
    assert stable_hash(read) == stable_hash(value)


def test_what_is_one_thing_stays_one_thing():
    shared = [1]
    knot: list[Any] = [shared, shared]
    knot.append(knot)
    read, _ = again(knot)

    assert read[0] is read[1]
    assert read[2] is read


def test_large_buffers_lie_beside_the_pickle():
    _, stored = again({"frame": pandas.DataFrame({"a": np.arange(50_000.0)}), 1: object})

    assert stored.is_pickled
    assert stored.chunks
    assert stored.size_bytes > 400_000 > 10 * len(stored.form)


def test_a_tensor_with_a_history_is_refused_rather_than_cut_off_from_it():
    with pytest.raises(Unstorable, match="detach"):
        again({"loss": (torch.ones(2, requires_grad=True) * 2).sum()})
