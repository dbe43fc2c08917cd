"""Arrays, generators and data frames."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.checkpoint.graph.kinds import Box, Kind, Things, kind, pandas, seen, torch


@kind
def masked_arrays() -> Kind:
    def build() -> Things:
        return {"box": Box(masked=np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False], fill_value=-1.0))}

    def change(things: Things) -> None:
        masked = things["box"].masked
        masked[0] = np.ma.masked
        masked[1] = 9.0
        masked.fill_value = -5.0
        masked.harden_mask()

    def view(things: Things) -> Any:
        masked = things["box"].masked
        return seen(masked), masked.hardmask, seen(masked.filled()), float(masked.sum())

    return build, change, view


@kind
def object_arrays() -> Kind:
    def build() -> Things:
        shared: list[int] = []
        return {"box": Box(array=np.array([shared, None, {"a": 1}], dtype=object), shared=shared)}

    def change(things: Things) -> None:
        box = things["box"]
        box.shared.append(4)
        box.array[1] = "text"
        box.array[2]["a"] = 2

    def view(things: Things) -> Any:
        box = things["box"]
        return seen(list(box.array)), box.array[0] is box.shared, box.array.dtype.kind, box.array.shape

    return build, change, view


@kind
def structured_arrays() -> Kind:
    def build() -> Things:
        return {"rows": [np.zeros(2, dtype=[("id", "i4"), ("place", "f8", (2,)), ("name", "U4")])]}

    def change(things: Things) -> None:
        things["rows"][0][1] = (3, (1.0, 2.0), "abc")
        things["rows"].append(np.rec.array([(1, 2.5)], dtype=[("a", "i2"), ("b", "f4")]))

    return build, change, lambda things: [(type(one).__name__, str(one.dtype), repr(one)) for one in things["rows"]]


@kind
def arrays_of_other_order_type_and_permissions() -> Kind:
    def build() -> Things:
        return {"box": Box(turned=np.zeros((2, 3)), fixed=np.zeros(2), when=np.zeros(1), big=None)}

    def change(things: Things) -> None:
        box = things["box"]
        box.turned = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        box.fixed = np.ones(2)
        box.fixed.flags.writeable = False
        box.when = np.array(["2024-01-02"], dtype="M8[D]")
        box.big = np.arange(3, dtype=">i4")

    def view(things: Things) -> Any:
        box = things["box"]
        facts = [seen(one) for one in (box.turned, box.fixed, box.when, box.big)]
        return facts, box.turned.flags.f_contiguous, box.fixed.flags.writeable

    return build, change, view


@kind
def arrays_that_take_less_memory() -> Kind:
    def change(things: Things) -> None:
        things["box"].array = np.arange(1, 5, dtype=np.int16)

    return lambda: {"box": Box(array=np.zeros(2))}, change, lambda things: seen(things["box"].array)


@kind
def arrays_that_take_more_memory() -> Kind:
    def change(things: Things) -> None:
        things["box"].array = np.arange(500, dtype=np.int16)

    return lambda: {"box": Box(array=np.zeros(2))}, change, lambda things: seen(things["box"].array)


@kind
def tensors_that_take_less_memory() -> Kind:
    def change(things: Things) -> None:
        things["box"].tensor = torch.ones(2)

    return lambda: {"box": Box(tensor=torch.zeros(4))}, change, lambda things: seen(things["box"].tensor)


@kind
def scalars_of_numpy() -> Kind:
    def change(things: Things) -> None:
        things["box"].values = [np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1 + 2j), np.str_("é"),
                                np.datetime64("2024-05-06"), np.bytes_(b"x"), np.float64("nan")]  # fmt: skip

    return (
        lambda: {"box": Box(values=[])},
        change,
        lambda things: [(type(one).__name__, repr(one)) for one in things["box"].values],
    )


@kind
def generators_of_numpy_with_children() -> Kind:
    def build() -> Things:
        root = np.random.default_rng(1)
        return {"root": root, "children": root.spawn(1), "sequence": [np.random.SeedSequence(3)]}

    def change(things: Things) -> None:
        things["root"].random(3)
        things["children"][0].integers(9, size=3)
        things["children"] += things["root"].spawn(2)
        things["sequence"][0].spawn(2)

    def view(things: Things) -> Any:
        children = [*things["children"], *things["root"].spawn(2)]
        drawn = [seen(one.random(2)) for one in (things["root"], *children)]
        return (
            drawn,
            things["sequence"][0].spawn(1)[0].spawn_key,
            things["children"][-1].bit_generator.seed_seq.spawn_key,
        )

    return build, change, view


@kind
def older_and_other_generators() -> Kind:
    def build() -> Things:
        return {
            "legacy": np.random.RandomState(1), "torch": torch.Generator().manual_seed(1), "python": random.Random(1),
            "mersenne": np.random.Generator(np.random.MT19937(1)), "philox": [np.random.Philox(1)],
        }  # fmt: skip

    def change(things: Things) -> None:
        things["legacy"].randn(3)
        torch.rand(3, generator=things["torch"])
        things["python"].gauss(0, 1)
        things["mersenne"].normal(size=3)
        things["philox"][0].random_raw(3)

    def view(things: Things) -> Any:
        return [
            seen(things["legacy"].randn(3)), seen(torch.rand(3, generator=things["torch"])),
            [things["python"].gauss(0, 1) for _ in range(3)], seen(things["mersenne"].normal(size=3)),
            seen(things["philox"][0].random_raw(3)),
        ]  # fmt: skip

    return build, change, view


@kind
def generators_that_are_seeded_again() -> Kind:
    def build() -> Things:
        return {"box": Box(rng=np.random.default_rng(1), torch=torch.Generator().manual_seed(1))}

    def change(things: Things) -> None:
        things["box"].rng = np.random.default_rng(77)
        things["box"].same = things["box"].rng
        things["box"].torch.manual_seed(77)

    def view(things: Things) -> Any:
        box = things["box"]
        drawn = seen(box.rng.random(2)), seen(torch.rand(2, generator=box.torch))
        return drawn, getattr(box, "same", None) is box.rng, box.torch.initial_seed()

    return build, change, view


@kind
def data_frames() -> Kind:
    def build() -> Things:
        frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
        return {"frame": frame, "box": Box(frame=frame, series=pandas.Series([1.0, 2.0], name="s"))}

    def change(things: Things) -> None:
        things["frame"].loc[7, "a"] = 5
        things["frame"]["c"] = pandas.Categorical(["u", *["v"] * (len(things["frame"]) - 1)])
        things["box"].series.iloc[0] = 9.0
        things["box"].series.index = pandas.date_range("2024-01-01", periods=2)
        things["frame"].attrs["unit"] = "m"

    def view(things: Things) -> Any:
        return seen(things["frame"]), seen(things["box"].series), things["box"].frame is things["frame"]

    return build, change, view
