"""Data loaders that keep their worker processes from one epoch to the next: no checkpoint holds what is in those."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

STALE = "a data loader keeps its worker processes between epochs, and no checkpoint holds their random states"


class PersistentLoaders:
    """Calls `on_stale_use` before the script iterates over a loader whose workers can't be as they were recorded.

    With `persistent_workers=True`, the random generators and the copies of the dataset in the workers go on where the
    epoch before left them. After a checkpoint is restored, the workers that a loader has, or starts now, are others.
    """

    def __init__(self, on_stale_use: Callable[[], None]) -> None:
        self._on_stale_use = on_stale_use
        self._known: dict[int, weakref.ref[Any]] = {}
        self._stale: set[int] = set()
        self._is_watching = False

    def mark_stale(self) -> None:
        """To be called whenever a checkpoint was restored; loaders that are made later are not affected."""
        loaders = sys.modules.get("torch.utils.data.dataloader")
        if loaders is None:
            return
        if not self._is_watching:
            self._is_watching = True
            self._watch(loaders.DataLoader)
        self._stale |= self._known.keys()

    def _watch(self, loader_class: Any) -> None:
        for thing in gc.get_objects():
            if issubclass(type(thing), loader_class):
                self._add(thing)
        initialise, iterate = loader_class.__init__, loader_class.__iter__

        @functools.wraps(initialise)
        def initialise_and_add(loader: Any, *args: Any, **kwargs: Any) -> None:
            initialise(loader, *args, **kwargs)
            self._add(loader)

        @functools.wraps(iterate)
        def check_and_iterate(loader: Any) -> Any:
            if id(loader) in self._stale:
                self._on_stale_use()
            return iterate(loader)

        loader_class.__init__, loader_class.__iter__ = initialise_and_add, check_and_iterate

    def _add(self, loader: Any) -> None:
        if getattr(loader, "persistent_workers", False) and getattr(loader, "num_workers", 0):
            key = id(loader)
            self._known[key] = weakref.ref(loader, lambda _: self._forget(key))

    def _forget(self, key: int) -> None:
        self._known.pop(key, None)
        self._stale.discard(key)
