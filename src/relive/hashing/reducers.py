"""Reducers: how objects of Python and common libraries are broken down into simpler values to be hashed."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from typing_extensions import Buffer

Reducer = Callable[[Any], object]

_BLOCK_BYTES = 16 << 20
_HEAP_TYPE_FLAG = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_SETTING_TYPES = (bool, int, float, str, type(None), tuple)


class NoHash(Exception):
    """A value without a stable hash; collects its path while it propagates out of the enclosing values."""

    def __init__(self, kind: type, reason: str = "") -> None:
        super().__init__(kind)
        self.kind, self.reason, self.path = kind, reason, ""

    def nested_in(self, step: str) -> Self:
        self.path = step + self.path
        return self


class ReducedParts(dict[str, object]):
    """The named parts of an object; in an error path they appear as `.part` rather than `['part']`."""


@dataclasses.dataclass(frozen=True, slots=True)
class RawBytes:
    """Bytes that are hashed separately, so that the hash does not depend on block boundaries."""

    size_bytes: int
    blocks: Iterable[Buffer]


@dataclasses.dataclass(frozen=True, slots=True)
class Lenient:
    """A value that is replaced by the name of its type if it has no stable hash."""

    value: object


def qualified_name(thing: Any) -> str:
    # A spawned worker imports the user's script as __mp_main__.
    module = str(getattr(thing, "__module__", None)).replace("__mp_main__", "__main__")
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__name__
    return f"{module}.{name}"


# Any class


def reduce_dataclass(value: Any) -> object:
    return ReducedParts(
        {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.compare}
    )


def reduce_subclass(plain: Reducer, value: Any) -> object:
    """Reduces an instance of a subclass of list, dict, str, …; also a named tuple."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ReducedParts(zip(value._fields, value, strict=True))
    return ReducedParts(content=plain(value), attributes=ReducedParts(getattr(value, "__dict__", {})))


def reduce_state(value: object) -> object:
    """Reduces an object to what pickle would store; raises if part of it is not accessible from Python."""
    reduced = value.__reduce_ex__(2)
    if isinstance(reduced, str):
        return reduced
    make, args, stored, items, pairs = (*reduced, None, None, None)[:5]
    parts = ReducedParts(stored) if type(stored) is dict else ReducedParts(state=stored)
    return ReducedParts(
        parts, __make__=(qualified_name(make), args), __items__=list(items or ()), __pairs__=list(pairs or ())
    )


def _attributes(*names: str) -> Reducer:
    return lambda value: ReducedParts({name: getattr(value, name) for name in names})


# Code


def _function(value: types.FunctionType) -> object:
    return ReducedParts(
        name=qualified_name(value),
        code=value.__code__,
        defaults=value.__defaults__,
        kwdefaults=value.__kwdefaults__,
        closure=[_cell(cell) for cell in value.__closure__ or ()],
    )


def _cell(cell: types.CellType) -> object:
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty: the name is bound later
        return ()


def _class(value: type) -> object:
    """Reduces a class to its name, bases and body; a class defined in C to name and bases."""
    own = vars(value).items() if value.__flags__ & _HEAP_TYPE_FLAG else ()
    body = {name: Lenient(_member(part)) for name, part in own if _is_significant_member(name, part)}
    return ReducedParts(name=qualified_name(value), bases=[qualified_name(base) for base in value.__bases__], body=body)


def _is_significant_member(name: str, part: object) -> bool:
    if name.startswith("__") and name.endswith("__"):
        return isinstance(part, types.FunctionType) and not name.startswith("__annotate")
    return name != "_abc_impl"


def _member(part: Any) -> object:
    if isinstance(part, property):
        return [part.fget, part.fset, part.fdel]
    return getattr(part, "__func__", part)


def _builtin(value: Any) -> object:
    owner = value.__self__
    return qualified_name(value), None if isinstance(owner, types.ModuleType | type) else owner


# numpy


def _array(value: Any) -> object:
    dtype = value.dtype
    if dtype.names:
        # Hashing the fields skips the padding between them, which is undefined.
        content: object = ReducedParts({name: value[name] for name in dtype.names})
    elif dtype.hasobject or dtype.kind == "T":
        content = value.ravel().tolist()
    elif dtype.char in "gG":
        content = [repr(item) for item in value.ravel()]  # the padding of an 80-bit float is undefined
    else:
        blocks = _blocks(value, value.nbytes, whole=value.flags.c_contiguous)
        content = RawBytes(value.nbytes, map(_array_bytes, blocks))
    return dtype.name, dtype.str, tuple(value.shape), content


def _array_bytes(block: Any) -> Buffer:
    import numpy

    flat: Any = numpy.ascontiguousarray(numpy.asarray(block)).reshape(-1)
    view: Buffer = flat.view(numpy.uint8) if flat.nbytes else b""
    return view


def _blocks(array: Any, size_bytes: int, *, whole: bool) -> Iterator[Any]:
    """Yields the array, or slices along its first axis, so that contiguous copies never double the memory."""
    if whole or size_bytes <= _BLOCK_BYTES:
        yield array
        return
    rows = max(1, len(array) * _BLOCK_BYTES // size_bytes)
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def _masked(value: Any) -> object:
    import numpy

    return ReducedParts(mask=numpy.ma.getmaskarray(value), data=value.filled())


def _scalar(value: Any) -> object:
    is_nan = value.dtype.kind == "f" and value != value
    return _array(type(value)("nan") if is_nan else value)


# torch


def _tensor(value: Any) -> object:
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
        return RawBytes(size_bytes, map(_tensor_bytes, _blocks(value, size_bytes, whole=whole)))
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


def _module(value: Any) -> object:
    """Reduces a module to classes, settings and state; dropouts with different rates have the same empty state."""
    parts = dict(value.named_modules())
    bases = {base for part in parts.values() for base in type(part).__mro__}
    if any(base.__module__.startswith("torch.distributed.fsdp") for base in bases):
        raise NoHash(type(value), "sharded; gathering its state would wait for the other ranks")
    settings = {name: [qualified_name(type(part)), _settings(part)] for name, part in parts.items()}
    return ReducedParts(settings=settings, state=dict(value.state_dict()))


def _settings(part: Any) -> dict[str, object]:
    own = vars(part).items()
    return {name: Lenient(value) for name, value in own if type(value) in _SETTING_TYPES and not name.startswith("_")}


# Frames and images


def _series(value: Any) -> object:
    return ReducedParts(
        name=value.name, index=getattr(value, "index", None), dtype=str(value.dtype), values=_column(value)
    )


def _column(value: Any) -> object:
    """Reduces a column: numbers and times to one array, categories to codes, others to a list."""
    import pandas

    dtype: Any = value.dtype
    if isinstance(dtype, pandas.CategoricalDtype):
        codes = value.codes if isinstance(value, pandas.Index) else value.cat.codes.to_numpy()
        return [codes, dtype.categories, bool(dtype.ordered)]
    if isinstance(dtype, pandas.DatetimeTZDtype):
        return (value if isinstance(value, pandas.Index) else value.dt).tz_convert(None).to_numpy()
    if getattr(dtype, "kind", "O") in "biufcmM" and not value.hasnans:
        return value.to_numpy(dtype=getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype)))
    return value.tolist()


def _index(value: Any) -> object:
    return ReducedParts(names=list(value.names), dtype=str(value.dtype), values=_column(value))


def _frame(value: Any) -> object:
    columns = [_column(value.iloc[:, step]) for step in range(value.shape[1])]
    dtypes = [str(dtype) for dtype in value.dtypes]
    return ReducedParts(index=value.index, columns=value.columns, dtypes=dtypes, values=columns)


def _polars_series(value: Any) -> object:
    is_flat = value.dtype.is_numeric() or value.dtype.is_temporal()
    content = value.to_physical().to_numpy() if is_flat and not value.null_count() else value.to_list()
    return ReducedParts(name=value.name, dtype=str(value.dtype), values=content)


def _image(value: Any) -> object:
    return ReducedParts(mode=value.mode, size=value.size, palette=value.getpalette(), pixels=value.tobytes())


def _text(value: object) -> str:
    return str(value)


# Keys are `root module:qualified name`, so that libraries may move classes between modules and need not be installed.
# They are looked up along the method resolution order of the value's type.
REDUCERS: dict[str, Reducer] = {
    "enum:Enum": _attributes("name", "value"),
    "pathlib:PurePosixPath": _text,
    "pathlib:PureWindowsPath": _text,
    "decimal:Decimal": _text,
    "fractions:Fraction": _text,
    "uuid:UUID": _text,
    "datetime:datetime": lambda value: (value.isoformat(), value.fold),
    "datetime:date": _text,
    "datetime:time": lambda value: (value.isoformat(), value.fold),
    "datetime:timedelta": _attributes("days", "seconds", "microseconds"),
    "datetime:timezone": _text,
    "zoneinfo:ZoneInfo": _text,
    "re:Pattern": _attributes("pattern", "flags"),
    "types:SimpleNamespace": lambda value: ReducedParts(vars(value)),
    "argparse:Namespace": lambda value: ReducedParts(vars(value)),
    "collections:deque": lambda value: [value.maxlen, list(value)],
    "collections:defaultdict": lambda value: [value.default_factory, dict(value)],
    "collections:UserDict": lambda value: value.data,
    "collections:UserList": lambda value: value.data,
    "array:array": lambda value: (value.typecode, value.tobytes()),
    "functools:partial": _attributes("func", "args", "keywords"),
    "functools:_lru_cache_wrapper": _attributes("__wrapped__"),
    "builtins:range": _attributes("start", "stop", "step"),
    "builtins:slice": _attributes("start", "stop", "step"),
    "builtins:mappingproxy": dict,
    "builtins:memoryview": lambda value: (value.format, value.shape, RawBytes(value.nbytes, [value])),
    "builtins:ellipsis": _text,
    "builtins:NotImplementedType": _text,
    "builtins:module": lambda value: value.__name__,
    "builtins:type": _class,
    "builtins:function": _function,
    "builtins:method": _attributes("__func__", "__self__"),
    "builtins:code": _attributes("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars",
                                 "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags",
                                 "co_exceptiontable"),
    "builtins:builtin_function_or_method": _builtin,
    "builtins:method_descriptor": qualified_name,
    "builtins:wrapper_descriptor": qualified_name,
    "numpy:ndarray": _array,
    "numpy:MaskedArray": _masked,
    "numpy:generic": _scalar,
    "numpy:dtype": lambda value: [value.str, value.name, value.descr if value.names else None],
    "numpy:ufunc": lambda value: value.__name__,
    "numpy:_ArrayFunctionDispatcher": qualified_name,
    "torch:Tensor": _tensor,
    "torch:DataLoader": lambda value: value.dataset,
    "torch:Module": _module,
    "torch:dtype": _text,
    "torch:device": _text,
    "torch:layout": _text,
    "pandas:DataFrame": _frame,
    "pandas:Series": _series,
    "pandas:Index": _index,
    "pandas:Timestamp": lambda value: (value.isoformat(), value.unit),
    "pandas:Timedelta": lambda value: (value.isoformat(), value.unit),
    "pandas:NaTType": _text,
    "pandas:NAType": _text,
    "pandas:Period": lambda value: (value.ordinal, value.freqstr),
    "pandas:Interval": _attributes("left", "right", "closed"),
    "polars:DataFrame": lambda value: value.get_columns(),
    "polars:Series": _polars_series,
    "datasets:Dataset": lambda value: value._fingerprint,
    "PIL:Image": _image,
}  # fmt: skip

# How to get the plain content out of an instance of a subclass, bypassing overridden methods.
PLAIN: dict[type, Reducer] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytearray.copy,
    list: list.copy,
    tuple: lambda value: tuple(tuple.__iter__(value)),
    dict: dict.copy,
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
