"""What goes from one process to another: arrays as they are, through memory that both share, and the rest pickled."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
import tempfile
from collections import deque
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from relive.record.background.copies import Form, aligned, copy_into, form_of, view_of

HEAD_BYTES = 64  # of the shared memory: how many parcels were taken out so far


@dataclass(frozen=True, slots=True)
class Parcel:
    """Values on their way: the arrays still where they are, the rest in bytes."""

    arrays: list[tuple[int, Any, Form]]  # where each goes
    arrays_bytes: int
    rest: bytes

    @property
    def size_bytes(self) -> int:
        return self.arrays_bytes + max(aligned(len(self.rest)), aligned(1))  # no two parcels at the same place

    def write(self, memory: Any) -> None:
        """Copy everything into shared memory; from here on the arrays may change."""
        for start, array, form in self.arrays:
            copy_into(memory[start : start + form.size_bytes], array, form)
        memory[self.arrays_bytes : self.arrays_bytes + len(self.rest)] = np.frombuffer(self.rest, np.uint8)


def packed(*values: Any) -> Parcel:
    """Values as a parcel; they are read one by one, so that the first can say whose the others are."""
    file = io.BytesIO()
    arrays: list[tuple[int, Any, Form]] = []
    for value in values:
        packer = _Packer(file, arrays)
        packer.dump(value)
    size = sum(aligned(form.size_bytes) for _, _, form in arrays)
    return Parcel(arrays, size, file.getvalue())


class _Packer(pickle.Pickler):
    """Leaves plain arrays out, and says where they will be."""

    def __init__(self, file: io.BytesIO, arrays: list[tuple[int, Any, Form]]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._arrays = arrays

    def reducer_override(self, value: Any) -> Any:
        form = form_of(value)
        if form is not None:
            start = sum(aligned(form.size_bytes) for _, _, form in self._arrays)
            self._arrays.append((start, value, form))
            dtype = form.dtype.str if form.library == "numpy" and form.dtype.names is None else form.dtype
            return array_at, (start, form.library, dtype, form.shape, form.size_bytes)
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            told = f"{value.__qualname__} belongs to the script itself; move it to a module that can be imported"
            raise pickle.PicklingError(told)
        return NotImplemented


class Unpacker(pickle.Unpickler):
    """Reads the values of a parcel, one `load()` for each; its arrays are views of the memory given."""

    def __init__(self, rest: bytes, memory: Any) -> None:
        super().__init__(io.BytesIO(rest))
        self._memory = memory

    def find_class(self, module: str, name: str) -> Any:
        return self._array_at if (module, name) == (__name__, array_at.__name__) else super().find_class(module, name)

    def _array_at(self, start: int, library: str, dtype: Any, shape: tuple[int, ...], size_bytes: int) -> Any:
        form = Form(library, np.dtype(dtype) if library == "numpy" else dtype, shape, size_bytes)
        return view_of(self._memory[start : start + size_bytes], form)


def array_at(start: int, library: str, dtype: Any, shape: tuple[int, ...], size_bytes: int) -> Any:
    """Stands for an array in a parcel; only an `Unpacker` knows the memory that it lies in."""
    raise pickle.UnpicklingError("a parcel was read without its memory; read it with an Unpacker")


class Shared:
    """Memory of two processes. It is named by a file descriptor only, so nothing is left behind when both have died."""

    def __init__(self, file: int | None = None) -> None:
        self.file = _memory_file() if file is None else file
        self._bytes = np.empty(0, np.uint8)

    def reserve(self, size_bytes: int) -> None:
        """Let there be room for so many bytes behind the head; only what is touched takes memory."""
        if HEAD_BYTES + size_bytes > os.fstat(self.file).st_size:
            os.ftruncate(self.file, HEAD_BYTES + size_bytes)

    def bytes_at(self, start: int, size_bytes: int) -> Any:
        begin = HEAD_BYTES + start
        if begin + size_bytes > len(self._bytes):  # it has grown; views of the old mapping stay good
            self._bytes = np.frombuffer(mmap.mmap(self.file, 0), np.uint8)
        return self._bytes[begin : begin + size_bytes]

    @property
    def taken(self) -> Any:
        """How many parcels were taken out so far: one number that one side writes and the other reads."""
        return self.bytes_at(-HEAD_BYTES, 8).view(np.uint64)

    def close(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        with contextlib.suppress(OSError):
            os.close(self.file)


def _memory_file() -> int:
    """A file that is memory, whatever the size of /dev/shm is; elsewhere a temporary file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("relive-background")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Ring:
    """Where in a piece of memory parcels lie that wait: first in, first out, on pages touched before if possible."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.waiting: deque[tuple[int, int]] = deque()  # begin and end of each
        self._touched = 0
        self._taken = 0

    def take_out(self, taken: int) -> None:
        """So many parcels were taken out since the beginning."""
        for _ in range(taken - self._taken):
            self.waiting.popleft()
        self._taken = taken

    def put(self, size_bytes: int) -> int | None:
        """Where a parcel goes; None when there is no room yet. Alone it may be larger than the ring."""
        begin = self._begin(size_bytes)
        if begin is not None:
            self.waiting.append((begin, begin + size_bytes))
            self._touched = max(self._touched, begin + size_bytes)
        return begin

    def _begin(self, size_bytes: int) -> int | None:
        if not self.waiting:
            return 0
        first, last = self.waiting[0][0], self.waiting[-1][1]
        if self.waiting[-1][0] < first:  # it has gone round
            return last if last + size_bytes <= first else None
        if last + size_bytes > min(self._touched, self.size_bytes) and size_bytes <= first:
            return 0
        return last if last + size_bytes <= self.size_bytes else None
