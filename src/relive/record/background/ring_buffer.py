"""Messages between two processes through shared memory: arrays as raw bytes, everything else pickled."""

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
HEAD_BYTES = 64  # the header of the shared memory: how many messages were received so far


class Message:
    """Pickled values with their out-of-band buffers, which are not copied until `write`."""

    def __init__(self, *values: Any) -> None:
        file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        for value in values:  # one pickle each, so that the first can be loaded even if another can't
            _MessagePickler(file, buffers).dump(value)
        blocks = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
        sizes = np.array([len(blocks), *map(len, blocks)], np.uint64)
        self._blocks: list[Any] = [
            sizes,
            *(np.frombuffer(block, np.uint8) if len(block) else _EMPTY for block in blocks),
        ]
        self.size_bytes = sum(_align(block.nbytes) for block in self._blocks)

    def write(self, memory: Any) -> None:
        """Copies everything into shared memory; after that the arrays may change."""
        at = 0
        for block in self._blocks:
            memory[at : at + block.nbytes] = block.view(np.uint8)
            at += _align(block.nbytes)


class _MessagePickler(pickle.Pickler):
    """Pickles with out-of-band buffers, also for tensors. Refuses classes and functions of the script."""

    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, 5, buffer_callback=buffers.append)

    def reducer_override(self, value: Any) -> Any:
        if is_tensor(value) and _is_plain_tensor(value):
            plain = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
            name = str(plain.dtype).removeprefix("torch.")
            return rebuild_tensor, (_tensor_bytes(plain), name, tuple(plain.shape))
        if isinstance(value, type | FunctionType) and value.__module__ == "__main__":
            text = f"{value.__qualname__} is defined in the script itself; move it to a module that can be imported"
            raise pickle.PicklingError(text)
        return NotImplemented


def _is_plain_tensor(tensor: Any) -> bool:
    """Whether dtype, shape and bytes describe the tensor completely."""
    import torch

    known = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return known and not (tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta")


def _tensor_bytes(tensor: Any) -> Any:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy()


def rebuild_tensor(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """Rebuilds a pickled tensor."""
    import torch

    return torch.from_numpy(data).view(getattr(torch, dtype)).view(shape)


class MessageUnpickler(pickle.Unpickler):
    """Loads the values of a message, one per `load()`. Arrays are copied out of the shared memory."""

    def __init__(self, memory: Any) -> None:
        count = int(memory[:8].view(np.uint64)[0])
        blocks, at = [], _align(8 * (count + 1))
        for size in memory[8 : 8 * (count + 1)].view(np.uint64).tolist():
            blocks.append(memory[at : at + size].copy())  # a writer may keep them, and the shared memory is reused
            at += _align(size)
        super().__init__(io.BytesIO(blocks[0].tobytes()), buffers=blocks[1:])


class SharedBuffer:
    """Memory shared by two processes. It has a file descriptor but no name, so it vanishes when both have exited."""

    def __init__(self, file: int | None = None) -> None:
        self.file = _create_memory_file() if file is None else file
        self._bytes = np.empty(0, np.uint8)

    def reserve(self, size_bytes: int) -> None:
        """Grows the file to this size plus the header; pages take memory only once they are touched."""
        if HEAD_BYTES + size_bytes > os.fstat(self.file).st_size:
            os.ftruncate(self.file, HEAD_BYTES + size_bytes)

    def bytes_at(self, start: int, size_bytes: int) -> Any:
        begin = HEAD_BYTES + start
        if begin + size_bytes > len(self._bytes):
            self._bytes = np.frombuffer(mmap.mmap(self.file, 0), np.uint8)
        return self._bytes[begin : begin + size_bytes]

    @property
    def received(self) -> Any:
        """The number of messages received so far, as an array of one: one process writes it, the other reads it."""
        return self.bytes_at(-HEAD_BYTES, 8).view(np.uint64)

    def close(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        with contextlib.suppress(OSError):
            os.close(self.file)


def _create_memory_file() -> int:
    """Returns a memfd, which the size of /dev/shm does not limit; without memfd an unnamed temporary file."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("relive-background")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class RingAllocator:
    """Allocates ranges of a buffer for waiting messages: first in, first out, preferably on pages touched before."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self.waiting: deque[tuple[int, int]] = deque()  # begin and end of each message
        self._extents: deque[list[int]] = deque()  # begin and end of adjacent messages, merged; oldest first
        self._touched = 0
        self._freed = 0

    def free(self, received: int) -> None:
        """Frees the oldest messages; `received` counts all messages received since the start."""
        for _ in range(received - self._freed):
            _, end = self.waiting.popleft()
            oldest = self._extents[0]
            oldest[0] = end
            if end == oldest[1]:
                self._extents.popleft()
        self._freed = received

    def allocate(self, size_bytes: int) -> int | None:
        """Returns the offset of a new message; None if there is no space yet. A single one may exceed the ring."""
        begin = self._find_begin(size_bytes)
        if begin is not None:
            end = begin + size_bytes
            self.waiting.append((begin, end))
            self._touched = max(self._touched, end)
            if self._extents and self._extents[-1][1] == begin:
                self._extents[-1][1] = end
            else:
                self._extents.append([begin, end])
        return begin

    def _find_begin(self, size_bytes: int) -> int | None:
        if not self._extents:
            return 0
        ends = [end for _, end in reversed(self._extents)]
        free = [begin for begin in (ends[0], 0, *ends[1:], self._touched) if self._is_free(begin, begin + size_bytes)]
        return next((begin for begin in free if begin + size_bytes <= self._touched), free[0] if free else None)

    def _is_free(self, begin: int, end: int) -> bool:
        return end <= self._size_bytes and all(end <= low or begin >= high for low, high in self._extents)


def _align(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
