"""Laws of the value codec: a decoded value equals the value that was encoded."""

from __future__ import annotations

import datetime
import math
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.store.journal import decode_value, encode_value, from_json, to_json

torch = pytest.importorskip("torch")

CHUNKS: dict[str, bytes] = {}


def put(data: bytes) -> str:
    CHUNKS[str(len(CHUNKS))] = bytes(data)
    return str(len(CHUNKS) - 1)


def round_trip(value: object) -> object:
    return decode_value(from_json(to_json(encode_value(value, put))), CHUNKS.__getitem__)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_values_come_back_equal_and_of_the_same_type(value: object) -> None:
    back = round_trip(value)

    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 10**40, -(2**63), 2**63, pytest.param(10**5000, id="long")])
def test_extreme_numbers_come_back(value: float) -> None:
    assert round_trip(value) == value


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(round_trip([math.nan])[0])  # type: ignore[index]


@pytest.mark.parametrize("text", ["", "ünïcode ✓", "\x00\n\t", "\ud800 half a character", "x" * 100_000])
def test_any_text_comes_back(text: str) -> None:
    assert round_trip(text) == text


@pytest.mark.parametrize("value", [{"$int": "5"}, {"$float": "nan", "x": 1}, {"$array": {}}])
def test_a_dict_that_looks_like_a_tag_is_kept_as_a_dict(value: dict[str, object]) -> None:
    assert round_trip(value) == value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(10_000, dtype=np.int16)[::3],
        np.array([], np.float32),
        np.array(5),
        np.array(["a", "bc"]),
        np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")]),
        np.array([1 + 2j]),
        np.asfortranarray(np.eye(40)),
        np.array([True, False]),
    ],
)
def test_arrays_come_back_as_arrays(array: np.ndarray) -> None:
    back = round_trip(array)

    assert isinstance(back, np.ndarray)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("scalar", [np.float32(0.1), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.float16(2)])
def test_numpy_scalars_inside_containers_keep_their_type(scalar: np.generic) -> None:
    back = round_trip([scalar])[0]  # type: ignore[index]

    assert type(back) is type(scalar)
    assert back == scalar


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).view(2, 3).t(),
        torch.ones(3, dtype=torch.bfloat16) * 1.5,
        torch.eye(3).to_sparse(),
        torch.zeros(0, 4),
        torch.ones(2, requires_grad=True),
        torch.tensor([1 + 2j]).conj(),
    ],
)
def test_tensors_come_back_as_arrays_of_the_same_numbers(tensor: torch.Tensor) -> None:
    back = round_trip(tensor)

    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    dense = dense.float() if dense.dtype == torch.bfloat16 else dense
    np.testing.assert_array_equal(back, dense.resolve_conj().numpy())


def test_frames_come_back_as_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, math.nan]})

    back = round_trip(frame)

    assert list(back.columns) == ["a", "b", "c"]  # type: ignore[attr-defined]
    assert back["a"].tolist() == [1, 2]  # type: ignore[index]
    assert back["b"].tolist()[0] == "x"  # type: ignore[index]


def test_paths_dates_sets_and_complex_numbers_come_back() -> None:
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)

    assert round_trip([PurePosixPath("/a/b"), now, {1, 2}, frozenset({3}), 1 + 2j]) == [
        PurePosixPath("/a/b"), now, {1, 2}, frozenset({3}), 1 + 2j,
    ]  # fmt: skip


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Hostile(dict):  # type: ignore[type-arg]
    def items(self) -> object:  # type: ignore[override]
        raise RuntimeError("no")


def test_an_object_whose_repr_raises_is_kept_as_its_type() -> None:
    assert "Unprintable" in str(round_trip(Unprintable()))


def test_a_list_that_contains_itself_is_cut_off() -> None:
    cyclic: list[object] = []
    cyclic.append(cyclic)

    assert round_trip(cyclic) is not None


def test_only_large_values_go_to_chunks() -> None:
    before = len(CHUNKS)
    encode_value(np.zeros(4), put)
    encode_value("short", put)
    assert len(CHUNKS) == before

    form = encode_value(np.arange(1000.0), put)
    assert len(CHUNKS) == before + 1
    assert form["$array"]["summary"] == {"min": 0.0, "max": 999.0, "mean": 499.5}
