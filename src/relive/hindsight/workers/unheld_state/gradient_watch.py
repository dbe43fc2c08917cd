"""Notices that a script reads gradients that the restored checkpoint does not hold."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

# They pass over parameters without gradients, or compare states.
_INDIFFERENT = ("torch.optim", "torch.nn.parallel", "torch.distributed", "relive.")
MISSING = "it reads gradients of parameters, which the checkpoint that it continues from does not hold"


class GradientWatch:
    """Calls `on_missing` when a gradient is read that a backward pass before the checkpoint computed.

    Checkpoints hold gradients only where the script itself uses them later. After such a checkpoint is restored all
    gradients are None, and `Tensor.grad` is a property that tells whether one is read before it is computed or set
    again. Optimizers pass over parameters without gradients, and clearing gradients does not depend on them.
    """

    def __init__(self, on_missing: Callable[[str], None]) -> None:
        self._on_missing = on_missing
        self._is_missing = False
        self._known: dict[int, weakref.ref[Any]] = {}  # tensors whose gradient was set or cleared since
        self._base: Any = None  # the descriptor of torch

    def after_restore(self, *, has_gradients: bool) -> None:
        """To be called whenever a checkpoint was restored."""
        torch = sys.modules.get("torch")
        if torch is None:
            return
        self._is_missing = not has_gradients
        self._known.clear()
        if self._is_missing:
            if self._base is None:
                self._base = torch._C.TensorBase.grad
                torch.Tensor.grad = property(self._read, self._write, self._delete)
            self._clear(torch.Tensor)

    def _clear(self, kind: type) -> None:
        """Removes gradients of before: those of another iteration must not pass for the recorded ones."""
        for thing in gc.get_objects():
            # By its type: `isinstance` asks objects for their __class__, which runs code of lazy ones.
            if issubclass(type(thing), kind) and self._base.__get__(thing) is not None:
                self._base.__set__(thing, None)

    def _read(self, tensor: Any) -> Any:
        found = self._base.__get__(tensor)
        if found is None and self._is_missing and not self._is_known(tensor) and tensor.requires_grad:
            caller = sys._getframe(1)
            if caller.f_code.co_name == "zero_grad":
                self._note(tensor)
            elif not (caller.f_globals.get("__name__") or "").startswith(_INDIFFERENT) and tensor.is_leaf:
                self._is_missing = False  # once is enough
                self._on_missing(MISSING)
        return found

    def _write(self, tensor: Any, value: Any) -> None:
        self._base.__set__(tensor, value)
        if self._is_missing:
            self._note(tensor)

    def _delete(self, tensor: Any) -> None:
        self._base.__delete__(tensor)
        if self._is_missing:
            self._note(tensor)

    def _is_known(self, tensor: Any) -> bool:
        known = self._known.get(id(tensor))
        return known is not None and known() is tensor

    def _note(self, tensor: Any) -> None:
        self._known[id(tensor)] = weakref.ref(tensor)
