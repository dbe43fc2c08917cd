"""Calls whose arguments tell that they depend on the moment or the machine: `np.datetime64("now")`, `open("/proc/…")`.

Generators inside of libraries in C are here, too: their state can't be kept, so a draw without a seed is not repeated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

NOW, MACHINE_FILE, DEVICE, UNSEEDED = "(now)", "(machine file)", "(device)", "(unseeded)"
_MOMENTS = frozenset({"now", "today"})
_TIMES = frozenset({"datetime64", "Timestamp", "to_datetime", "DatetimeIndex"})
_MACHINE = re.compile(r"/(proc|sys)(/|$)")
_DEVICE = re.compile(r"/dev/(u?random|hwrng)$")
_SEEDS = frozenset({"seed", "random_state", "rng", "generator"})
# Methods that draw from a generator of the library, and the libraries: only in files that import one of them.
_DRAWING = {
    "sample": ("polars",), "shuffle": ("polars",), "randn": ("cv2",), "randu": ("cv2",), "randShuffle": ("cv2",),
    "kmeans": ("cv2",),
}  # fmt: skip


def telling_calls(node: ast.Call, name: str) -> Iterator[str]:
    """Yields what stands for a call with such arguments, after the function's own name: `(now)datetime64`."""
    first = node.args[0] if node.args else None
    text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    last = name.rpartition(".")[2]
    if last in _TIMES and text in _MOMENTS:
        yield f"{NOW}{last}"
    if _MACHINE.match(text):
        yield f"{MACHINE_FILE}{text}"
    if _DEVICE.match(text):
        yield f"{DEVICE}{text}"
    if last in _DRAWING and "." in name and _SEEDS.isdisjoint(one.arg for one in node.keywords):
        yield f"{UNSEEDED}{last}"


def drawing_library(method: str, imported: Collection[str]) -> str | None:
    """Returns the library among the imported ones that a method without a seed draws from; None if there is none."""
    roots = {name.partition(".")[0] for name in imported}
    return next((one for one in _DRAWING.get(method, ()) if one in roots), None)
