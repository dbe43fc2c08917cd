"""Reads pickles that hold nothing but values of known types; whatever else a pickle names is refused, not imported.

Earlier releases pickled random states, dtypes, devices and dates where typed forms stand now.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

from relive.checkpoint.plain.typed_values import NotTyped

# Each of these only makes a value of its arguments, whatever they are. Nothing of numpy is among them: its dtypes and
# arrays believe what a pickle says of their memory.
_NAMES: dict[str, frozenset[str]] = {
    "builtins": frozenset({"range", "slice", "complex", "bytearray", "set", "frozenset", "NotImplemented"}),
    "collections": frozenset({"OrderedDict", "deque"}),
    "datetime": frozenset({"date", "time", "datetime", "timedelta", "timezone"}),
    "decimal": frozenset({"Decimal"}),
    "_decimal": frozenset({"Decimal"}),
    "fractions": frozenset({"Fraction"}),
    "uuid": frozenset({"UUID"}),
    "re": frozenset({"_compile"}),
    "torch": frozenset({"device", "Size"}),
    "torch.serialization": frozenset({"_get_layout"}),
}
_TORCH_CONSTANTS = ("dtype", "layout", "memory_format")


def load_plain_pickle(data: bytes, find_live: Callable[[str], Any] | None = None) -> Any:
    """Returns the value of a pickle; raises `NotTyped` if it names anything that is not listed here.

    `find_live` resolves what the pickle refers to by name, outside of itself.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data), find_live).load()
    except NotTyped:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise NotTyped(f"a pickle that can't be read ({error})") from error


class _PlainUnpickler(pickle.Unpickler):
    """Finds names in a list only. Nothing is imported: whoever has such a value has its library loaded."""

    def __init__(self, stream: io.BytesIO, find_live: Callable[[str], Any] | None) -> None:
        super().__init__(stream)
        self._find_live = find_live

    def find_class(self, module: str, name: str) -> Any:
        loaded = sys.modules.get(module)
        if loaded is not None and name in _NAMES.get(module, ()):
            return getattr(loaded, name)
        if module == "torch" and loaded is not None:
            found = vars(loaded).get(name)
            if isinstance(found, tuple(getattr(loaded, kind) for kind in _TORCH_CONSTANTS)):
                return found
        raise NotTyped(f"{module}.{name}")

    def persistent_load(self, name: str) -> Any:
        if self._find_live is None:
            raise NotTyped("a reference to something else")
        return self._find_live(name)
