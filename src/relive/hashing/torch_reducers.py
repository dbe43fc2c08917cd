"""How tensors and modules of torch are broken down into simpler values to be hashed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.hashing.reduced_parts import Lenient, NoHash, RawBytes, ReducedParts, blocks_of, qualified_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PARTS_IN_ORDER = ("_parameters", "_buffers", "_modules")
_BOOKKEEPING = frozenset({"_non_persistent_buffers_set", "_is_full_backward_hook", "_compiled_call_impl"})


def reduce_tensor(value: Any) -> object:
    import torch

    if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or value.is_meta:
        raise NoHash(type(value), "its content is not in this process")
    value = value.detach().resolve_conj().resolve_neg()
    return str(value.dtype), str(value.layout), tuple(value.shape), _tensor_content(value)


def _tensor_content(value: Any) -> object:
    layout = str(value.layout)
    if value.is_quantized or value.is_nested:
        raise NoHash(type(value), "quantized or nested; hash its parts")
    if layout == "torch.strided":
        size_bytes = value.numel() * value.element_size()
        whole = value.is_contiguous() and value.device.type == "cpu"
        return RawBytes(size_bytes, map(_tensor_bytes, blocks_of(value, size_bytes, whole=whole)))
    if layout == "torch.sparse_coo":
        value = value.coalesce()
        return [value.indices(), value.values()]
    if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        return [value.crow_indices(), value.col_indices(), value.values()]
    if layout in ("torch.sparse_csc", "torch.sparse_bsc"):
        return [value.ccol_indices(), value.row_indices(), value.values()]
    return value.to_dense()


def _tensor_bytes(block: Any) -> Buffer:
    import torch

    flat = block.cpu().contiguous().reshape(-1)
    if not flat.numel():
        return b""
    view: Buffer = (torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).view(torch.uint8).numpy()
    return view


def reduce_module(value: Any) -> object:
    """Reduces a module to its class and all that it holds: parameters, buffers, hooks, settings and submodules."""
    if any(base.__module__.startswith("torch.distributed.fsdp") for base in _classes_of(value)):
        raise NoHash(type(value), "sharded; gathering its state would wait for the other ranks")
    return _module_parts(value, {})


def _classes_of(value: Any) -> set[type]:
    return {base for part in value.modules() for base in type(part).__mro__}


def _module_parts(value: Any, met: dict[int, int]) -> object:
    """Reduces one module; one that was met before, as by tied layers, is replaced by its number."""
    if id(value) in met:
        return ["met before", met[id(value)]]
    met[id(value)] = len(met)
    own = dict(vars(value))
    held = {name: own.pop(name, {}) for name in _PARTS_IN_ORDER}
    children = [(name, _module_parts(part, met)) for name, part in held["_modules"].items() if part is not None]
    tensors = [(name, part) for kind in _PARTS_IN_ORDER[:2] for name, part in held[kind].items()]
    others = {name: _setting(part) for name, part in own.items() if name not in _BOOKKEEPING and _is_set(part)}
    return ReducedParts(kind=qualified_name(type(value)), tensors=tensors, children=children, others=others)


def _is_set(part: object) -> bool:
    """Whether an attribute holds something: an empty table of hooks is bookkeeping."""
    return not (isinstance(part, dict | list | set) and not part)


def _setting(part: Any) -> object:
    """Returns a table of hooks without their numbers, which are counted over the whole process."""
    if isinstance(part, dict) and all(type(key) is int for key in part):
        return list(part.values())
    return Lenient(part)
