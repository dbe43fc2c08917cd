"""Handlers of torch: tensors and storages by their place in memory, which is a node of its own; modules."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from relive.checkpoint.graph.handlers.arrays import NameHandler
from relive.checkpoint.graph.handlers.attributes import Attributes, attribute_tokens, restore_attributes
from relive.checkpoint.graph.object_tokens import PLAIN_TYPES
from relive.checkpoint.graph.registry import MISSING, CannotRestore, Handler, Restorer, Walker
from relive.errors import GraphNotKept

_TENSORS = frozenset({"_parameters", "_buffers", "_modules"})
_EMPTY_AT_FIRST = frozenset(
    "_non_persistent_buffers_set _backward_pre_hooks _backward_hooks _forward_hooks _forward_hooks_with_kwargs "
    "_forward_hooks_always_called _forward_pre_hooks _forward_pre_hooks_with_kwargs _state_dict_hooks "
    "_state_dict_pre_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks".split()
)
_PLAIN_CLASSES = frozenset({"Tensor", "Parameter"})
_LOST = "LostGraphBackward"  # the name that autograd gives to the class in `without_graph`
GRAPH = "graph"  # a tensor that was computed from others for which gradients are computed
_GRADIENT = 9  # the place of the gradient in the content of a tensor
_STRIDED, _SPARSE, _META, _OTHER = "strided", "sparse", "meta", "other"


def differ_in_gradient(one: Any, other: Any) -> bool:
    """Whether two contents of a tensor differ only in that one of them has a gradient."""
    if not (type(one) is type(other) is tuple and len(one) == len(other) > _GRADIENT and one[0] == _STRIDED):
        return False
    without = [(*content[:_GRADIENT], None, *content[_GRADIENT + 1 :]) for content in (one, other)]
    return without[0] == without[1] and (one[_GRADIENT] is None) != (other[_GRADIENT] is None)


class TensorHandler(Handler):
    """A tensor of torch, also a Parameter or of a subclass."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        """Nearly all tensors are where they were at the last walk, and a training has hundreds."""
        content = _remembered(obj, walk) or self._remember(obj, walk)
        if walk.with_gradients and content[0] == _STRIDED and obj.requires_grad and obj.is_leaf:
            return (*content[:9], walk.ref(obj.grad, ".", "grad"), content[10])
        return content

    def _remember(self, obj: Any, walk: Walker) -> Any:
        content = self._whole_content(obj, walk)
        if content[0] == _STRIDED and content[6] is not None and _is_plain(obj):
            buffer = walk.buffers.of_way(content[6][0])
            if buffer.is_known or buffer.parent == walk.parent:  # other ways of memory depend on where it is met first
                storage = obj.untyped_storage()
                walk.memo[id(obj)] = _RememberedTensor(
                    weakref.ref(storage), _place_of(obj), walk.parent, content,
                    buffer.address, buffer.size_bytes, _used_bytes(obj, obj.storage_offset()),
                )  # fmt: skip
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


class _RememberedTensor(NamedTuple):
    """What the last walk found out about a tensor, and what must be so still for that to be true."""

    storage: Callable[[], Any]  # a weak reference; the tensor itself must not have one
    place: tuple[Any, ...]
    way: int
    content: Any
    address: int
    size_bytes: int
    used_bytes: int


def _remembered(obj: Any, walk: Walker) -> Any:
    """Returns the content that a tensor had at the last walk if it has it still; None otherwise."""
    before = walk.memo.get(id(obj))
    if (
        type(before) is not _RememberedTensor
        or before.way != walk.parent
        or not _is_plain(obj)
        or before.place != _place_of(obj)
    ):
        return None
    storage = obj.untyped_storage()
    memory = before.content[6][0]
    if before.storage() is not storage or storage.nbytes() != before.size_bytes:
        return None
    has_same_way = walk.buffers.add_remembered(before.address, before.size_bytes, storage, memory, before.used_bytes)
    return before.content if has_same_way else None


def _place_of(obj: Any) -> tuple[Any, ...]:
    return obj.data_ptr(), obj.dtype, obj.shape, obj.stride(), obj.requires_grad


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


class StorageHandler(Handler):
    """A storage of torch that the script holds itself."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        inner = obj if hasattr(obj, "data_ptr") and not hasattr(obj, "_untyped_storage") else obj._untyped_storage
        if not inner.nbytes():
            return (0, None)
        return inner.nbytes(), walk.buffers.add(inner.data_ptr(), inner.nbytes(), inner, str(inner.device))

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        """Does nothing: its memory is restored by itself."""


class ModuleHandler(Handler):
    """A module: parameters, buffers and modules inside it, hooks, and any other attribute.

    The dicts that hold them are part of its content, since nobody else refers to them: a model has ten for each layer.
    """

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        own, ref = obj.__dict__, walk.ref
        found: list[Any] = []
        skipped = Attributes.of(type(obj)).skipped
        for name, value in own.items():
            kind = type(value)
            if kind in PLAIN_TYPES:
                found += (name, value)
            elif name in _TENSORS and isinstance(value, dict):
                inner: list[Any] = []
                for key, one in value.items():
                    inner += (key, one if one is None else ref(one, ".", key))
                found += (name, tuple(inner))
            elif name in _EMPTY_AT_FIRST and not value:
                found += (name, ())
            elif name not in skipped:
                found += (name, ref(value, ".", name))
        return tuple(found)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        own = obj.__dict__
        tokens = dict(zip(content[::2], content[1::2], strict=True))
        for name, token in tokens.items():
            if name in _TENSORS and type(token) is tuple and not (len(token) == 1 and type(token[0]) is int):
                values = {key: restore.value(one) for key, one in zip(token[::2], token[1::2], strict=True)}
                holder = own.setdefault(name, {})
                holder.clear()
                holder.update(values)
            elif token == () and name in _EMPTY_AT_FIRST:
                if own.get(name):
                    own[name].clear()
                elif name not in own:  # it was made by the restore
                    own[name] = type(vars(sys.modules["torch"].nn.Module())[name])()
            else:
                own[name] = restore.value_or(token, own.get(name, MISSING))
        skipped = Attributes.of(type(obj)).skipped
        for name in [name for name in own if name not in tokens and name not in skipped]:
            del own[name]


_tensor, _name, _storage, _module = TensorHandler(), NameHandler(), StorageHandler(), ModuleHandler()


def choose_torch_object(kind: type) -> Handler | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return None
    if issubclass(kind, torch.Tensor):
        return _tensor
    if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size):
        return _name
    if issubclass(kind, torch.UntypedStorage | torch.storage.TypedStorage):
        return _storage
    if issubclass(kind, torch.nn.Module):
        jit = getattr(torch, "jit", None)
        if jit is not None and issubclass(kind, getattr(jit, "ScriptModule", ())):
            from relive.checkpoint.graph.handlers.objects import StateDictHandler

            return StateDictHandler()
        return _module
    return None
