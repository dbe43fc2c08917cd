"""One piece of the training's memory as bytes: on the host, or on a device that copies them itself."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


class Leaf:
    """The bytes of a buffer: an array of numpy, or a tensor on a device."""

    __slots__ = ("is_on_device", "size_bytes", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.size_bytes = int(source.nbytes)
        self.is_on_device = not isinstance(source, np.ndarray)

    def flat(self) -> Any:
        """Returns its memory; None if only the device can copy it, or there is nothing to copy."""
        return None if self.is_on_device or not self.size_bytes else self.source

    def copy_to(self, target: Any) -> None:
        """Copies a leaf that is on a device."""
        if self.size_bytes:
            sys.modules["torch"].from_numpy(target).copy_(self.source, non_blocking=True)
