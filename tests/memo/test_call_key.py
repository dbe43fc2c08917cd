"""Which arguments make a call a new one."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive.errors import ReliveError, Unstable
from relive.memo import Keys


def function(x: Any, *, size: int = 128, verbose: bool = False) -> None: ...


KEYS = Keys(function, ignore=["verbose"])


def key(*args: Any, keys: Keys = KEYS, **kwargs: Any) -> str:
    return keys.make(keys.bind(args, kwargs)).key


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Config:
    lr: float
    layers: list[int]


class Net(torch.nn.Module):
    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.drop = torch.nn.Dropout(rate)
        torch.nn.init.ones_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def forward(self, x: torch.Tensor) -> Any:
        return self.drop(self.layer(x))


class Walker:
    def __init__(self, stride: int) -> None:
        self.stride = stride

    def step(self, x: int) -> int:
        return x + self.stride


relive.memo.register(Walker, lambda walker: walker.stride)

simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(
    simple,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.frozensets(simple, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, frozenset):
        return {(type(one), one) for one in a} == {(type(one), one) for one in b}
    return bool(a == b) and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


@given(values, values)
def test_equal_arguments_have_one_key_and_different_ones_do_not(a: Any, b: Any):
    assert (key(a) == key(b)) == same(a, b)


@given(st.dictionaries(st.text(), st.integers()))
def test_the_order_of_a_dict_does_not_count(value: dict[str, int]):
    assert key(value) == key(dict(reversed(value.items())))


def test_no_two_kinds_collide():
    kinds = [["a", 1], ("a", 1), {"a": 1}, 1, 1.0, True, "1", b"1", 1 + 0j, None, {"a", 1}, frozenset({"a", 1}), "None"]
    kinds += [np.int64(1), np.float32(1), np.array(1), torch.tensor(1), Color.RED, Path("1"), Config(1, []), [], (), {}]

    assert len({key(kind) for kind in kinds}) == len(kinds)


def test_defaults_and_keywords_are_bound():
    assert key(1) == key(x=1) == key(1, size=128) == key(1, verbose=True) != key(1, size=64)


def test_any_shape_of_signature_is_bound():
    def any_shape(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> None: ...

    keys = Keys(any_shape)

    assert key(1, keys=keys) == key(1, 2, c=3, keys=keys) == key(1, b=2, keys=keys)
    assert len({key(1, 2, 3, keys=keys), key(1, 2, d=3, keys=keys), key(1, c=2, keys=keys)}) == 3


def test_what_does_not_fit_the_signature_is_the_users_type_error():
    for args, kwargs in [((), {}), ((1, 2), {}), ((1,), {"x": 1}), ((1,), {"wrong": 1})]:
        with pytest.raises(TypeError, match="argument"):
            KEYS.bind(args, kwargs)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: np.arange(6.0).reshape(2, 3), lambda: np.arange(6.0).reshape(3, 2)),
        (lambda: np.arange(6.0), lambda: np.arange(6.0, dtype="f4")),
        (lambda: torch.arange(6.0), lambda: torch.arange(6)),
        (lambda: pandas.DataFrame({"a": [1, 2]}), lambda: pandas.DataFrame({"b": [1, 2]})),
        (lambda: Config(0.1, [1]), lambda: Config(0.1, [2])),
        (lambda: Color.RED, lambda: Color.BLUE),
        (lambda: functools.partial(function, 1), lambda: functools.partial(function, 2)),
        (lambda: Walker(1).step, lambda: Walker(2).step),
        (lambda: Net(0.5), lambda: Net(0.6)),
        (lambda: Net(), lambda: torch.nn.Sequential(Net())),
        (lambda: lambda x: x + 1, lambda: lambda x: x + 2),
        (lambda: [np.mean, math.sin], lambda: [np.median, math.sin]),
        (lambda: Path("nowhere/a"), lambda: Path("nowhere/b")),
    ],
)
def test_objects_count_by_content(one: Any, other: Any):
    assert key(one()) == key(one()) != key(other())


@pytest.mark.long
def test_polars_counts_by_content():
    polars = pytest.importorskip("polars")

    assert key(polars.DataFrame({"a": [1]})) == key(polars.DataFrame({"a": [1]})) != key(polars.DataFrame({"a": [2]}))


EVERYWHERE = """
    import numpy, pathlib, enum, functools
    from relive.memo import Keys
    def function(x): ...
    class Color(enum.Enum):
        RED = 1
    values = [{"b": 1, "a": {3, 1, 2}}, numpy.arange(5), pathlib.Path("x"), Color.RED, lambda x: x, "text",
              functools.partial(function, 1), frozenset("abc")]
    WITH_TORCH
    print(*(Keys(function).make({"x": value}).key for value in values))
"""
WITH_TORCH = """import torch
    torch.manual_seed(0)
    values += [torch.ones(3), torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())]"""


@pytest.mark.parametrize("more", ["", pytest.param(WITH_TORCH, marks=pytest.mark.slow)])
def test_keys_are_the_same_in_every_process(script: Any, more: str):
    text = EVERYWHERE.replace("WITH_TORCH", more)
    first = script(text, env={"PYTHONHASHSEED": "1"})

    assert script(text, env={"PYTHONHASHSEED": "2"}).stdout == first.stdout != ""


def test_the_class_of_an_argument_counts_by_its_code():
    def make(sign: int) -> Any:
        space: dict[str, Any] = {"__name__": "nets", "torch": torch}
        exec(f"class Net(torch.nn.Module):\n    def forward(self, x):\n        return x * {sign}\n", space)
        return space["Net"]()

    assert key(make(1)) == key(make(1)) != key(make(-1))


def test_a_path_counts_by_what_lies_there(tmp_path: Path):
    path = tmp_path / "data.csv"
    absent = key(path)
    path.write_text("1")
    first = key(path)
    path.write_text("2")
    second = key(path)
    path.write_text("1")
    folder = key(tmp_path)
    (tmp_path / "more").write_text("x")

    assert len({absent, first, second, key(str(path))}) == 4
    assert key(path) == first
    assert key(tmp_path) != folder


def test_version_and_dependences_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("a")
    keys = Keys(function, version=1, depends=[vocabulary, "$RELIVE_TEST_LANGUAGE", Walker])
    seen = [key(1, keys=keys), key(1, keys=Keys(function, version=1)), key(1, keys=Keys(function, version=2)), key(1)]
    vocabulary.write_text("b")
    seen.append(key(1, keys=keys))
    monkeypatch.setenv("RELIVE_TEST_LANGUAGE", "de")
    seen.append(key(1, keys=keys))

    assert len(set(seen)) == len(seen)
    assert key(1, keys=keys) == seen[-1]


def test_invalid_declarations_raise_with_the_remedy():
    with pytest.raises(ReliveError, match="no parameter 'wrong' to ignore; its parameters are x, size, verbose"):
        Keys(function, ignore=["wrong"])
    with pytest.raises(ReliveError, match=r"write ignore=\['verbose'\]"):
        Keys(function, ignore="verbose")
    with pytest.raises(ReliveError, match="pass file paths"):
        key(1, keys=Keys(function, depends=[3]))


def test_a_type_without_a_stable_hash_is_refused_with_the_remedy():
    with pytest.raises(Unstable, match=r"relive\.memo\.register"):
        key([1, iter(x for x in ())])
    with pytest.raises(Unstable):
        key(x for x in ())


def test_an_object_of_a_plain_class_counts_by_what_it_holds():
    class Plain:
        __slots__ = ("__dict__", "slot")

        def __init__(self, slot: int, **more: int) -> None:
            self.slot = slot
            vars(self).update(more)

        def __getstate__(self) -> object:
            return "what it pickles does not matter"

    assert key(Plain(1, a=2)) == key(Plain(1, a=2))
    assert len({key(Plain(1)), key(Plain(2)), key(Plain(1, a=2)), key(Plain(1, a=3))}) == 4


def test_a_function_counts_by_what_it_comes_down_to():
    space: dict[str, Any] = {"__name__": "steps"}
    exec("def deep(x): return x\ndef step(x): return deep(x)\n", space)
    before = key(space["step"])
    exec("def deep(x): return -x\n", space)

    assert key(space["step"]) != before
