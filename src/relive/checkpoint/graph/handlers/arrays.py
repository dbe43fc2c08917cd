"""Handlers of tensors and arrays: type, shape and place in their memory, which is a node of its own."""

from __future__ import annotations

import array
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from relive.checkpoint.graph.handlers.attributes import attribute_tokens, restore_attributes
from relive.checkpoint.graph.object_tokens import SCALAR, Token, pickled_value
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Walker
from relive.errors import GraphNotKept

_PLAIN_CLASSES = frozenset({"Tensor", "Parameter"})
_LOST = "LostGraphBackward"  # the name that autograd gives to the class in `without_graph`
GRAPH = "graph"  # a tensor that was computed from others for which gradients are computed
_STRIDED, _SPARSE, _META, _OTHER = "strided", "sparse", "meta", "other"


class TensorHandler(Handler):
    """A tensor of torch, also a Parameter or of a subclass."""

    def content(self, obj: Any, walk: Walker) -> Any:
        """Nearly all tensors are where they were at the last walk, and a model has hundreds."""
        place = (obj.data_ptr(), obj.shape, obj.stride(), obj.requires_grad) if _is_plain(obj) else None
        before = walk.memo.get(id(obj))
        storage = obj.untyped_storage() if place is not None else None
        if before is not None and before[0] == place and before[1]() is obj and before[6]() is storage:
            content = before[2]
            if content[6] is not None:
                walk.buffers.add_known(before[3], before[4], storage, content[6][0], before[5])
        else:
            content = self._whole_content(obj, walk)
            if place is not None and content[0] == _STRIDED and content[6] is not None and content[7] == "cpu":
                buffer = walk.buffers.of_way(content[6][0])
                if buffer.is_known:  # the ways of other memory depend on where it is met
                    used = _used_bytes(obj, obj.storage_offset())
                    where = buffer.address, buffer.size_bytes, used, weakref.ref(storage)
                    walk.memo[id(obj)] = place, weakref.ref(obj), content, *where
        if walk.with_gradients and content[0] == _STRIDED and obj.requires_grad and obj.is_leaf:
            return (*content[:9], walk.ref(obj.grad, ".", "grad"), content[10])
        return content

    def _whole_content(self, obj: Any, walk: Walker) -> Any:
        torch = sys.modules["torch"]
        requires_grad = _gradient_kind(obj)
        if obj.layout is not torch.strided:
            return self._sparse_content(obj, walk, torch)
        device = obj.device
        common = (obj.dtype.__reduce__(), tuple(obj.shape), requires_grad)
        if device.type == "meta":
            return (_META, *common)
        offset = obj.storage_offset()
        address = obj.data_ptr() - offset * obj.element_size() if obj.numel() else 0
        memory = None
        if address:
            storage = obj.untyped_storage()
            memory = walk.buffers.add(address, storage.nbytes(), storage, str(device), _used_bytes(obj, offset))
        extra: Any = None
        if obj.is_quantized:
            extra = ("q", obj.q_scale(), obj.q_zero_point())
        elif obj.is_conj() or obj.is_neg():
            extra = ("view", obj.is_conj(), obj.is_neg())
        return (
            _STRIDED,
            *common,
            obj.stride(),
            offset,
            memory,
            str(device),
            extra,
            None,  # the gradient
            _own_attributes(obj, walk),
        )

    def _sparse_content(self, obj: Any, walk: Walker, torch: Any) -> Any:
        data = obj.detach()
        if obj.layout is torch.sparse_coo:
            parts = [data._indices(), data._values()]
        elif obj.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = [data.crow_indices(), data.col_indices(), data.values()]
        elif obj.layout in (torch.sparse_csc, torch.sparse_bsc):
            parts = [data.ccol_indices(), data.row_indices(), data.values()]
        else:
            raise ValueError(f"tensors of layout {obj.layout} can't be looked into")
        raw = tuple((part.dtype.__reduce__(), tuple(part.shape), _raw_bytes(part)) for part in parts)
        layout = str(obj.layout).rpartition(".")[2]
        is_coalesced = layout == "sparse_coo" and obj.is_coalesced()
        return (_SPARSE, obj.dtype.__reduce__(), tuple(obj.shape), _gradient_kind(obj), raw, layout, is_coalesced)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        torch = sys.modules["torch"]
        cls = restore.find_class(kind)
        if content[3] == GRAPH:
            made = without_graph(lambda: self._plain(content, restore), restore)
            return made if cls is torch.Tensor else made.as_subclass(cls)
        made = self._plain(content, restore)
        if cls is torch.nn.Parameter:
            return torch.nn.Parameter(made, requires_grad=content[3])
        if cls is not torch.Tensor:
            made = made.as_subclass(cls)
        if content[3] and made.dtype.is_floating_point | made.dtype.is_complex:
            made.requires_grad_(True)
        return made

    def _plain(self, content: Any, restore: Restorer) -> Any:
        torch = sys.modules["torch"]
        dtype = getattr(torch, content[1])
        if content[0] == _META:
            return torch.empty(content[2], dtype=dtype, device="meta")
        if content[0] == _SPARSE:
            parts = [_from_bytes(torch, *part) for part in content[4]]
            if content[5] != "sparse_coo":
                return torch.sparse_compressed_tensor(*parts, content[2], layout=getattr(torch, content[5]))
            return torch.sparse_coo_tensor(*parts, content[2], check_invariants=False)._coalesced_(content[6])
        _, _, shape, _, stride, offset, memory, device, extra, _, _ = content
        if memory is None:
            return torch.empty(shape, dtype=dtype, device=device)
        if extra is not None and extra[0] == "q":
            made = torch._empty_affine_quantized(shape, scale=extra[1], zero_point=extra[2], dtype=dtype)
            made.set_(restore.storage(memory[0], device), offset, shape, stride)
            return made
        made = torch.empty(0, dtype=dtype, device=device).set_(
            restore.storage(memory[0], device), offset, shape, stride
        )
        if extra is not None and extra[1]:
            made = made.conj()
        if extra is not None and extra[2]:
            made = torch._neg_view(made)
        return made

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        torch = sys.modules["torch"]
        if GRAPH in (content[3], _gradient_kind(obj)):
            if content[3] == GRAPH and type(obj.grad_fn).__name__ == _LOST and _has_place(obj, content, restore):
                return  # it was made by `create`
            raise CannotRestore("its graph of autograd can't be restored in place")
        if content[0] != _STRIDED or not _has_place(obj, content, restore):
            made = self._plain(content, restore)
            if content[0] == _SPARSE and obj.layout is torch.strided:
                raise CannotRestore("it was sparse")
            obj.data = made
        if obj.is_leaf and obj.requires_grad is not content[3]:
            obj.requires_grad_(content[3])
        if content[0] == _STRIDED:
            if content[9] is not None or (obj.is_leaf and restore.has_gradients):
                obj.grad = restore.value(content[9])
            if content[10] is not None:
                restore_attributes(obj, content[10], restore)


def _used_bytes(obj: Any, offset: int) -> int:
    """Where the numbers of a tensor end in its memory."""
    count = obj.numel()
    if count and not obj.is_contiguous():
        count = 1 + sum((size - 1) * stride for size, stride in zip(obj.shape, obj.stride(), strict=True))
    return int((offset + count) * obj.element_size())


def _gradient_kind(obj: Any) -> bool | str:
    """Whether gradients are computed for a tensor: also for what it was computed from, or only for itself."""
    return GRAPH if obj.requires_grad and not obj.is_leaf else bool(obj.requires_grad)


def without_graph(build: Callable[[], Any], restore: Restorer) -> Any:
    """Returns a tensor whose graph of autograd is lost: an error is raised if gradients are computed through it.

    It counts as computed from all parameters, so that gradients for some of them lead through it as well.
    """
    torch = sys.modules["torch"]

    class LostGraph(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(_ctx: Any, *_leaves: Any) -> Any:
            return build()

        @staticmethod
        def backward(_ctx: Any, *_gradients: Any) -> Any:
            raise GraphNotKept(
                "gradients are computed through a tensor of an earlier iteration, and no checkpoint holds the graph of"
                " autograd; replay it with --from-start"
            )

    leaves = restore.find_all(lambda obj: isinstance(obj, torch.Tensor) and obj.is_leaf and obj.requires_grad)
    with torch.enable_grad():
        return LostGraph.apply(torch.zeros((), requires_grad=True), *leaves)


def _is_plain(obj: Any) -> bool:
    """Whether a tensor is one of torch's own classes on the host, without attributes of its own."""
    return (
        type(obj).__name__ in _PLAIN_CLASSES
        and obj.device.type == "cpu"
        and obj.is_leaf
        and not obj.__dict__
        and (not obj.is_sparse and not obj.is_quantized)
    )


def _raw_bytes(part: Any) -> bytes:
    torch = sys.modules["torch"]
    data: bytes = part.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if part.numel() else b""
    return data


def _from_bytes(torch: Any, dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    kind = getattr(torch, dtype)
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(shape) if data else torch.empty(shape, dtype=kind)


def _has_place(obj: Any, content: Any, restore: Restorer) -> bool:
    """Whether a live tensor is already the right view of the right memory."""
    torch = sys.modules["torch"]
    _, dtype, shape, _, stride, offset, memory, device, _, _, _ = content
    if obj.layout is not torch.strided or obj.dtype is not getattr(torch, dtype) or str(obj.device) != device:
        return False
    if (tuple(obj.shape), obj.stride(), obj.storage_offset()) != (shape, stride, offset):
        return False
    if memory is None:
        return not obj.numel()
    return bool(restore.is_memory_of(memory[0], obj.data_ptr() - offset * obj.element_size()))


def _own_attributes(obj: Any, walk: Walker) -> Any:
    own = obj.__dict__ if type(obj).__dictoffset__ else None
    return attribute_tokens(obj, walk) if own else None


class ArrayHandler(Handler):
    """An array of numpy, also of a subclass: its place in the memory of the array that owns it."""

    def content(self, obj: Any, walk: Walker) -> Any:
        dtype = obj.dtype
        if dtype.hasobject:
            flat = [obj[at] for at in np.ndindex(obj.shape)] if obj.ndim else [obj[()]]
            return "object", _dtype_token(dtype), obj.shape, walk.refs(flat), attribute_tokens(obj, walk)
        owner = obj
        while type(owner.base) is np.ndarray or isinstance(owner.base, np.ndarray):
            owner = owner.base
        memory, offset = None, 0
        if obj.nbytes:
            address, size_bytes = _extent(owner)
            memory = walk.buffers.add(address, size_bytes, owner)
            offset = obj.__array_interface__["data"][0] - address
        flags = obj.flags.writeable
        extra = attribute_tokens(obj, walk) if type(obj) is not np.ndarray else None
        return "array", _dtype_token(dtype), obj.shape, obj.strides, offset, memory, flags, extra

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        dtype = _dtype(content[1])
        if content[0] == "object":
            made = np.empty(content[2], dtype)
            return made if cls is np.ndarray else made.view(cls)
        _, _, shape, strides, offset, memory, is_writeable, _ = content
        if memory is None:
            made = np.empty(shape, dtype)
        else:
            made = np.ndarray(shape, dtype, restore.memory(memory[0]), offset, strides)
        if not is_writeable:
            made.flags.writeable = False
        return made if cls is np.ndarray else made.view(cls)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content[0] == "object":
            values = [restore.value(token) for token in content[3]]
            for at, value in zip(np.ndindex(content[2]), values, strict=True):
                np.ndarray.__setitem__(obj, at, value)
            restore_attributes(obj, content[4], restore)
            return
        _, dtype, shape, strides, offset, memory, is_writeable, extra = content
        if obj.shape != shape or obj.strides != strides or obj.dtype != _dtype(dtype):
            raise CannotRestore("it has another shape or type now")
        if memory is not None and not restore.is_memory_of(memory[0], obj.__array_interface__["data"][0] - offset):
            raise CannotRestore("it is a view of other memory now")
        if obj.flags.writeable is not is_writeable:
            obj.flags.writeable = is_writeable
        if extra is not None:
            restore_attributes(obj, extra, restore)


def _extent(owner: Any) -> tuple[int, int]:
    """Returns the address and the size of the memory that an array covers."""
    address = owner.__array_interface__["data"][0]
    if owner.flags.forc:
        return address, owner.nbytes
    low, high = np.lib.array_utils.byte_bounds(owner)
    return low, high - low


def _dtype_token(dtype: Any) -> Any:
    return dtype.str if dtype.fields is None and dtype.subdtype is None else pickled_value(dtype)


def _dtype(token: Any) -> Any:
    import pickle

    return np.dtype(token) if type(token) is str else pickle.loads(token[1])


class FlatIteratorHandler(Handler):
    """The iterator `array.flat`."""

    creates_complete = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return obj.index, walk.ref(obj.base, ".", "base")

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        made = restore.complete_value(content[1]).flat
        for _ in range(content[0]):
            next(made)
        return made


class ScalarHandler(Handler):
    """A scalar of numpy."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        if obj.dtype.hasobject or obj.dtype.fields is not None:
            return pickled_value(obj)
        return (SCALAR, obj.dtype.str, obj.tobytes())


class NameHandler(Handler):
    """A dtype, device, layout or size: an immutable value of numpy or torch."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return pickled_value(obj)


class BytesHandler(Handler):
    """A bytearray, or an array of the standard library."""

    def content(self, obj: Any, walk: Walker) -> Any:
        return getattr(obj, "typecode", ""), bytes(obj), attribute_tokens(obj, walk)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        return cls(content[0]) if content[0] else cls()

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if isinstance(obj, array.array):
            del obj[:]
            obj.frombytes(content[1])
        else:
            obj[:] = content[1]
        restore_attributes(obj, content[2], restore)


class StorageHandler(Handler):
    """A storage of torch that the script holds itself."""

    def content(self, obj: Any, walk: Walker) -> Any:
        inner = obj if hasattr(obj, "data_ptr") and not hasattr(obj, "_untyped_storage") else obj._untyped_storage
        if not inner.nbytes():
            return (0, None)
        return inner.nbytes(), walk.buffers.add(inner.data_ptr(), inner.nbytes(), inner, str(inner.device))

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        """Does nothing: its memory is restored by itself."""


_tensor, _array, _scalar, _name, _bytes, _storage = (
    TensorHandler(), ArrayHandler(), ScalarHandler(), NameHandler(), BytesHandler(), StorageHandler(),
)  # fmt: skip


def choose_array(kind: type) -> Handler | None:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "nn"):
        if issubclass(kind, torch.Tensor):
            return _tensor
        if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size):
            return _name
        if issubclass(kind, torch.UntypedStorage | torch.storage.TypedStorage):
            return _storage
    if issubclass(kind, np.ndarray):
        return _array
    if kind is np.flatiter:
        return FlatIteratorHandler()
    if issubclass(kind, np.generic):
        return _scalar
    if issubclass(kind, np.dtype):
        return _name
    if issubclass(kind, bytearray | array.array):
        return _bytes
    return None
