"""What goes from one process to another: arrays as they are, through memory that both share, and the rest pickled."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
import tempfile
from collections import deque
from types import FunctionType
from typing import Any

import numpy as np

from relive.record.background.argument_copies import is_tensor

ALIGN_BYTES = 64
_EMPTY = np.empty(0, np.uint8)
HEAD_BYTES = 64  # of the shared memory: how many parcels were taken out so far


class Parcel:
    """Values on their way: buffers that are still where they are, behind the pickle that says what they are."""

    def __init__(self, *values: Any) -> None:
        file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        for value in values:  # one by one, so that the first can be read when another can't
            _Packer(file, buffers).dump(value)
        blocks = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
        sizes = np.array([len(blocks), *map(len, blocks)], np.uint64)
        self._blocks: list[Any] = [
            sizes,
            *(np.frombuffer(block, np.uint8) if len(block) else _EMPTY for block in blocks),
        ]
        self.size_bytes = sum(_aligned(block.nbytes) for block in self._blocks)

    def write(self, memory: Any) -> None:
        """Copy everything into shared memory; from here on the arrays may change."""
        at = 0
        for block in self._blocks:
            memory[at : at + block.nbytes] = block.view(np.uint8)
            at += _aligned(block.nbytes)


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, 5, buffer_callback=buffers.append)

    def reducer_override(self, value: Any) -> Any:
        if is_tensor(value) and _is_plain(value):
            plain = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
            name = str(plain.dtype).removeprefix("torch.")
            return tensor_of, (_bytes_of(plain), name, tuple(plain.shape))
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            told = f"{value.__qualname__} belongs to the script itself; move it to a module that can be imported"
            raise pickle.PicklingError(told)
        return NotImplemented


def _is_plain(tensor: Any) -> bool:
    import torch

    known = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return known and not (tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta")


def _bytes_of(tensor: Any) -> Any:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy()


def tensor_of(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """The tensor that was packed."""
    import torch

    return torch.from_numpy(data).view(getattr(torch, dtype)).view(shape)


class Unpacker(pickle.Unpickler):
    """Reads the values of a parcel, one `load()` for each; their arrays are copies of one's own."""

    def __init__(self, memory: Any) -> None:
        count = int(memory[:8].view(np.uint64)[0])
        blocks, at = [], _aligned(8 * (count + 1))
        for size in memory[8 : 8 * (count + 1)].view(np.uint64).tolist():
            blocks.append(memory[at : at + size].copy())  # a writer may keep them, and the memory is needed again
            at += _aligned(size)
        super().__init__(io.BytesIO(blocks[0].tobytes()), buffers=blocks[1:])


class SharedBuffer:
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
        if begin + size_bytes > len(self._bytes):
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
        self._size_bytes = size_bytes
        self.waiting: deque[tuple[int, int]] = deque()  # begin and end of each
        self._stretches: deque[list[int]] = deque()  # where they lie side by side, the oldest first: begin and end
        self._touched = 0
        self._taken = 0

    def take_out(self, taken: int) -> None:
        """So many parcels were taken out since the beginning."""
        for _ in range(taken - self._taken):
            _, end = self.waiting.popleft()
            oldest = self._stretches[0]
            oldest[0] = end
            if end == oldest[1]:
                self._stretches.popleft()
        self._taken = taken

    def put(self, size_bytes: int) -> int | None:
        """Where a parcel goes; None when there is no room yet. Alone it may be larger than the ring."""
        begin = self._begin(size_bytes)
        if begin is not None:
            end = begin + size_bytes
            self.waiting.append((begin, end))
            self._touched = max(self._touched, end)
            if self._stretches and self._stretches[-1][1] == begin:
                self._stretches[-1][1] = end
            else:
                self._stretches.append([begin, end])
        return begin

    def _begin(self, size_bytes: int) -> int | None:
        if not self._stretches:
            return 0
        ends = [end for _, end in reversed(self._stretches)]
        free = [begin for begin in (ends[0], 0, *ends[1:], self._touched) if self._is_free(begin, begin + size_bytes)]
        return next((begin for begin in free if begin + size_bytes <= self._touched), free[0] if free else None)

    def _is_free(self, begin: int, end: int) -> bool:
        return end <= self._size_bytes and all(end <= low or begin >= high for low, high in self._stretches)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
