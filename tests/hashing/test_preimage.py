"""Laws of the stable hash."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import os
import pathlib
import subprocess
import sys
import threading
import types
import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import Unstable
from relive.hashing import digest, plain_dict_hasher, register, stable_hash

np = pytest.importorskip("numpy")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Config:
    lr: float
    extra: Any = None


@dataclasses.dataclass
class OtherConfig:
    lr: float
    extra: Any = None
    cache: Any = dataclasses.field(default=None, compare=False)


class Net:
    lr = 0.1

    def __init__(self, width: int) -> None:
        self.width = width

    def forward(self) -> int:
        return self.width


class Text(str):
    pass


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.complex_numbers(), st.dates()
)
keys = st.one_of(st.text(), st.integers(), st.tuples(st.integers(), st.text()))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(keys, inner), st.tuples(inner, inner), st.sets(st.integers())
    ),
    max_leaves=12,
)


def rebuilt(value: Any) -> Any:
    """An equal value of other objects, with every dict and set filled in the other order."""
    if isinstance(value, dict):
        return {rebuilt(key): rebuilt(item) for key, item in reversed(value.items())}
    if isinstance(value, list | tuple):
        return type(value)(rebuilt(item) for item in value)
    return functools.reduce(lambda built, item: built | {item}, sorted(value), set()) if type(value) is set else value


def described(value: Any) -> Any:
    """The value with its types spelt out, for a comparison that is stricter than `==`."""
    if isinstance(value, dict):
        return "dict", sorted(((repr(described(k)), repr(described(v))) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return type(value).__name__, [described(item) for item in value]
    return type(value).__name__, repr(sorted(value) if isinstance(value, set) else value)


@given(values)
def test_equal_values_have_one_hash_in_whatever_order_they_were_built(value: Any) -> None:
    assert stable_hash(value) == stable_hash(rebuilt(value))


@given(values, values)
def test_values_that_differ_in_content_or_type_have_different_hashes(one: Any, two: Any) -> None:
    assert (stable_hash(one) == stable_hash(two)) == (described(one) == described(two))


@given(st.lists(st.text()), st.lists(st.text()))
def test_strings_that_join_to_the_same_text_have_different_hashes(one: list[str], two: list[str]) -> None:
    assert (stable_hash(one) == stable_hash(two)) == (one == two)


def different_kinds() -> list[Any]:
    return [
        None, True, False, 0, 1, -1, 255, -256, 1.0, 0.0, -0.0, 1j, 10**40, "", "1", "a", b"", b"a", bytearray(b"a"),
        [], (), {}, set(), frozenset(), [[]], [()], ["a", 1], ("a", 1), {"a": 1}, {"a", 1}, [1, 2], [2, 1], ["ab"],
        ["a", "b"], ("a", "b"), [1, [2]], [[1], 2], {1: "a"}, {"1": "a"}, frozenset({1}), {1},
        pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("a"), Color.RED, Color.BLUE, Level.LOW,
        Config(1.0), OtherConfig(1.0), Config(1), Point(1, 2), (1, 2), Text("a"),
        datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2), datetime.timedelta(1), datetime.time(1),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), decimal.Decimal("1"), fractions.Fraction(1),
        uuid.UUID(int=1), range(3), range(0, 3, 2), slice(3), functools.partial(int, "3"), functools.partial(int, "4"),
        int, float, len, Net, Net(1).forward.__func__, types.SimpleNamespace(a=1), collections.deque([1]),
        collections.OrderedDict(a=1), collections.defaultdict(int, a=1), collections.defaultdict(list, a=1),
        array.array("i", [1]), memoryview(b"a"), ..., NotImplemented,
        np.float64(1), np.float32(1), np.int64(1), np.bool_(True), np.str_("a"), np.array(1.0), np.array([1.0]),
        np.array([[1.0]]), np.array([1], dtype=object), np.array(["a"]), np.dtype("f4"), np.zeros(0), np.zeros((0, 3)),
        np.datetime64("2026-01-01"), np.array(["2026-01-01"], dtype="M8[ns]"), np.array(["2026-01-01"], dtype="M8[D]"),
        np.add, np.mean, np.float32,
    ]  # fmt: skip


def test_no_two_kinds_collide() -> None:
    hashes = [stable_hash(value) for value in different_kinds()]

    clashes = [pair for pair in itertools.combinations(range(len(hashes)), 2) if hashes[pair[0]] == hashes[pair[1]]]
    assert clashes == []
    assert {len(one) for one in hashes} == {64}


def test_every_nan_is_the_same() -> None:
    import struct

    odd = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\xff")[0]

    assert stable_hash(odd) == stable_hash(float("nan"))
    assert stable_hash(np.float32(-np.nan)) == stable_hash(np.float32("nan"))


def test_fields_left_out_of_comparison_do_not_count() -> None:
    assert stable_hash(OtherConfig(1.0, cache=1)) == stable_hash(OtherConfig(1.0, cache=object()))


def test_a_value_that_contains_itself_has_a_hash() -> None:
    def cyclic(last: int) -> list[Any]:
        value: list[Any] = [1, {"deep": [last]}]
        value[1]["deep"].append(value)
        return value

    assert stable_hash(cyclic(2)) == stable_hash(cyclic(2))
    assert stable_hash(cyclic(2)) != stable_hash(cyclic(3))


def test_a_value_used_twice_is_not_a_cycle() -> None:
    shared = [1]

    assert stable_hash([shared, shared]) == stable_hash([[1], [1]])


def test_the_error_names_the_type_and_the_place() -> None:
    value = [1, 2, Config(0.1, extra={"model": [object()]})]

    with pytest.raises(Unstable, match=r"builtins\.object.* at \[2\]\.extra\['model'\]\[0\] of .*register"):
        stable_hash(value)


@pytest.mark.parametrize("value", [object(), Net(1), iter([]), sys.stdin, Net(1).forward])
def test_ordinary_objects_have_no_hash_unless_their_state_is_asked_for(value: Any) -> None:
    with pytest.raises(Unstable, match=r"register"):
        stable_hash([value])


def test_ordinary_objects_count_by_their_state_when_asked() -> None:
    assert stable_hash(Net(3), by_state=True) == stable_hash(Net(3), by_state=True)
    assert stable_hash(Net(3), by_state=True) != stable_hash(Net(4), by_state=True)
    with pytest.raises(Unstable, match=r"lock.* at \.width of"):
        stable_hash(Net(threading.Lock()), by_state=True)  # type: ignore[arg-type]


def test_endless_nesting_is_an_error_with_a_remedy() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(Unstable, match="flatter"):
        stable_hash(value)


def test_a_registered_type_and_its_subclasses_hash_by_the_registered_function() -> None:
    class Tokenizer:
        def __init__(self, words: list[str]) -> None:
            self.words = words

    class Fast(Tokenizer):
        pass

    with pytest.raises(Unstable):
        stable_hash(Tokenizer(["a"]))
    register(Tokenizer, lambda tokenizer: tokenizer.words)

    assert stable_hash(Tokenizer(["a"])) == stable_hash(Tokenizer(["a"])) != stable_hash(Tokenizer(["b"]))
    assert stable_hash(Fast(["a"])) != stable_hash(Tokenizer(["a"])) != stable_hash(["a"])


def test_functions_count_by_code_defaults_and_closure() -> None:
    def make(step: int, default: int = 0) -> Any:
        def add(x: int, by: int = default) -> int:
            return x + step + by

        return add

    def make_other(step: int) -> Any:
        def add(x: int, by: int = 0) -> int:
            return x - step + by

        return add

    hashes = {stable_hash(f) for f in (make(1), make(2), make(1, 5), make_other(1))}
    assert len(hashes) == 4
    assert stable_hash(make(1)) == stable_hash(make(1))
    assert stable_hash(functools.lru_cache(make(1))) == stable_hash(functools.lru_cache(make(1)))


def test_a_class_counts_by_its_code_and_its_constants() -> None:
    def make(rate: float) -> type:
        class Settings:
            lr = rate
            guard = object()

            def __init__(self) -> None:
                super().__init__()

            @property
            def double(self) -> float:
                return self.lr * 2

        return Settings

    assert stable_hash(make(0.1)) == stable_hash(make(0.1)) != stable_hash(make(0.2))


def test_arrays_count_by_dtype_shape_and_content_whatever_their_layout() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)

    assert stable_hash(base.T) == stable_hash(np.ascontiguousarray(base.T)) == stable_hash(np.asfortranarray(base.T))
    assert stable_hash(base[::2, ::-1]) == stable_hash(base[::2, ::-1].copy())
    assert len({stable_hash(a) for a in (base, base.T, base.reshape(6, 4), base.astype("f8"), base + 1)}) == 5


def test_a_large_scattered_array_hashes_as_its_copy() -> None:
    base = np.arange(6 << 20, dtype=np.float32).reshape(-1, 1024)

    assert stable_hash(base[:, ::2]) == stable_hash(base[:, ::2].copy())
    assert stable_hash(base.T) == stable_hash(base.T.copy())


def test_padding_in_arrays_is_not_content() -> None:
    kind = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    clean, dirty = np.zeros(3, kind), np.frombuffer(b"\xff" * kind.itemsize * 3, kind).copy()
    dirty["a"] = 0
    dirty["b"] = 0
    wide, dirty_wide = np.ones(2, np.longdouble), np.frombuffer(b"\xff" * 32, np.longdouble).copy()
    dirty_wide[:] = 1

    assert stable_hash(clean) == stable_hash(dirty)
    assert stable_hash(wide) == stable_hash(dirty_wide)


def test_object_and_masked_and_mapped_arrays_have_hashes(tmp_path: pathlib.Path) -> None:
    objects = np.array(["a", None, 1], dtype=object)
    np.save(tmp_path / "a.npy", np.arange(5))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    one, two = (np.ma.array([1, hidden, 3], mask=[0, 1, 0]) for hidden in (2, 9))

    assert stable_hash(objects) == stable_hash(np.array(["a", None, 1], dtype=object))
    assert stable_hash(mapped) == stable_hash(np.arange(5))
    assert stable_hash(one) == stable_hash(two) != stable_hash(np.array([1, 2, 3]))
    with pytest.raises(Unstable, match="object"):
        stable_hash(np.array([object()]))


def test_tensors_count_by_dtype_shape_and_content_whatever_their_layout_and_gradient() -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24.0).reshape(4, 6)

    same = [base, base.clone().requires_grad_(), base.T.contiguous().T, torch.nn.Parameter(base)]
    assert len({stable_hash(tensor) for tensor in same}) == 1
    kinds = [torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int8, torch.bool, torch.float8_e4m3fn]
    others = [base.to(kind) for kind in kinds] + [base.to_sparse(), base.to_sparse().to_sparse(), base.T, base[0, 0]]
    assert len({stable_hash(tensor) for tensor in [base, *others]}) == len(others)
    assert stable_hash(torch.zeros(0)) != stable_hash(torch.zeros(0, 2))
    pair = torch.tensor([1 + 2j])
    assert stable_hash(pair.conj()) == stable_hash(torch.tensor([1 - 2j]))


def test_sparse_tensors_of_one_content_have_one_hash() -> None:
    torch = pytest.importorskip("torch")
    twice = torch.sparse_coo_tensor([[0, 0, 1]], [1.0, 2.0, 3.0], (3,), check_invariants=True)
    once = torch.sparse_coo_tensor([[1, 0]], [3.0, 3.0], (3,), check_invariants=True)

    assert stable_hash(twice) == stable_hash(once)
    with pytest.raises(Unstable, match="not in this process"):
        stable_hash(torch.zeros(2, device="meta"))


def test_modules_count_by_class_settings_and_state() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def net(seed: int, rate: float) -> Any:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Dropout(rate), nn.ReLU())

    assert stable_hash(net(0, 0.1)) == stable_hash(net(0, 0.1))
    assert len({stable_hash(one) for one in (net(0, 0.1), net(1, 0.1), net(0, 0.2), net(0, 0.1)[:1])}) == 4


def test_frames_count_by_names_types_index_and_content() -> None:
    pd = pytest.importorskip("pandas")

    def frame(**changes: Any) -> Any:
        columns = {
            "n": [1, 2, 3], "x": [0.5, None, 2.0], "s": ["a", None, "c"], "c": pd.Categorical(["u", "v", "u"]),
            "i": pd.array([1, None, 3], dtype="Int64"), "t": pd.date_range("2026-01-01", periods=3, tz="Europe/Paris"),
            "o": [1, "a", (2,)], "b": pd.array([True, None, False], dtype="boolean"),
        }  # fmt: skip
        return pd.DataFrame(columns | changes)

    different = [
        frame(), frame(n=[1, 2, 4]), frame(s=["a", "b", "c"]), frame(c=pd.Categorical(["u", "v", "v"])), frame(z=0),
        frame(i=pd.array([1, 2, 3], dtype="Int64")), frame().set_index("n"), frame().rename(columns={"n": "m"}),
        frame(t=pd.date_range("2026-01-01", periods=3)), frame()[::-1], frame().astype({"n": "int32"}), frame()["n"],
        frame()["x"], frame().index, frame().columns, frame().set_index(["n", "s"]).index, pd.DataFrame(),
        pd.Timestamp("2026-01-01"), pd.NaT, pd.NA, pd.Timedelta(1), pd.Period("2026-01"), pd.Interval(0, 1),
    ]  # fmt: skip
    assert len({stable_hash(one) for one in different}) == len(different)
    assert stable_hash(frame()) == stable_hash(frame().copy(deep=True)) == stable_hash(frame()[::-1][::-1])


def test_polars_frames_count_by_names_types_and_content() -> None:
    pl = pytest.importorskip("polars")

    def frame(**changes: Any) -> Any:
        day = datetime.date(2026, 1, 1)
        columns = {"n": [1, 2], "x": [0.5, None], "s": ["a", None], "l": [[1], [2, 3]], "d": [day, day]}
        return pl.DataFrame(columns | changes)

    different = [frame(), frame(n=[1, 3]), frame(s=["a", "b"]), frame(l=[[1, 2], [3]]), frame()["n"], frame()["x"]]
    assert len({stable_hash(one) for one in different}) == len(different)
    assert stable_hash(frame()) == stable_hash(pl.concat([frame()[:1], frame()[1:]]))


def test_images_count_by_mode_size_and_pixels() -> None:
    image = pytest.importorskip("PIL.Image")

    different = [image.new("RGB", (2, 3)), image.new("RGB", (3, 2)), image.new("L", (2, 3)), image.new("P", (2, 3))]
    assert len({stable_hash(one) for one in different}) == 4
    assert stable_hash(image.new("L", (2, 2), 7)) == stable_hash(image.new("L", (2, 2), 7))


ELSEWHERE = """
import sys
sys.path.insert(0, {folder!r})
import test_preimage, hashlib
from relive.hashing import stable_hash
words = [stable_hash(value) for value in test_preimage.different_kinds()]
words.append(stable_hash({{str(n): {{n, str(n)}} for n in range(50)}}))
words.append(stable_hash(test_preimage.Net(3), by_state=True))
print(hashlib.sha256(" ".join(words).encode()).hexdigest())
"""


def test_hashes_are_the_same_in_every_process() -> None:
    program = ELSEWHERE.format(folder=os.path.dirname(__file__))
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=-1, env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("0", "1")
    ]

    said = {process.communicate()[0].strip() for process in started}
    assert [len(one) for one in said] == [64]


SPAWNED = """
import dataclasses, enum, multiprocessing, sys
from relive.hashing import stable_hash

class Color(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Config:
    lr: float

def own(_=None):
    return stable_hash([Color.RED, Config(0.1), Config, own])

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        sys.exit(pool.map(own, [0]) != [own()])
"""


def test_spawned_workers_agree_with_their_parent(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SPAWNED)

    assert subprocess.run([sys.executable, str(script)], timeout=60, check=False).returncode == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_worker_hashes_after_its_parent_has() -> None:
    big = np.zeros(32 << 20, np.uint8)
    expected = stable_hash(big)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(10)
        os._exit(0 if stable_hash(big) == expected else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_the_digest_is_that_of_the_joined_bytes() -> None:
    from blake3 import blake3

    parts = b"abc", bytearray(b"def"), memoryview(b"g-h-i")[::2], np.arange(3.0), b""
    assert digest(*parts) == blake3(b"abcdef" + b"ghi" + np.arange(3.0).tobytes()).hexdigest()
    assert digest(np.zeros(9 << 20, np.uint8)) == blake3(bytes(9 << 20)).hexdigest()


@settings(max_examples=20)
@given(st.integers(0, 5), st.integers(0, 5))
def test_shape_is_part_of_an_empty_array(rows: int, columns: int) -> None:
    assert (stable_hash(np.zeros((rows, columns))) == stable_hash(np.zeros((columns, rows)))) == (rows == columns)


@given(st.dictionaries(st.sampled_from("abc"), st.none() | st.integers() | st.text() | st.lists(st.integers())))
def test_the_fast_hash_of_plain_arguments_equals_the_stable_hash(value: dict[str, Any]) -> None:
    quick = plain_dict_hasher(["a", "b"])(value)

    is_plain = value.keys() == {"a", "b"} and not any(isinstance(item, list) for item in value.values())
    assert quick == (stable_hash(value) if is_plain else None)
