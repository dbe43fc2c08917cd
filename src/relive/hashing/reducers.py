"""Reducers: how objects of Python and common libraries are broken down into simpler values to be hashed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relive.hashing import torch_reducers
from relive.hashing.reduced_parts import Lenient, RawBytes, ReducedParts, blocks_of, qualified_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

Reducer = Callable[[Any], object]

_HEAP_TYPE_FLAG = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_POINTER_BYTES = 8


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


@functools.lru_cache(maxsize=4096)
def is_plain_class(kind: type) -> bool:
    """Whether all that an object of this class holds is in its `__dict__` and its slots: no base is written in C."""
    for base in kind.__mro__:
        new = base.__new__
        if not base.__flags__ & _HEAP_TYPE_FLAG or getattr(new, "__self__", None) is base:
            return base is object
        slots = sum(isinstance(part, types.MemberDescriptorType) for part in vars(base).values())
        below = base.__base__.__basicsize__ if base.__base__ is not None else 0
        if base.__basicsize__ - below > _POINTER_BYTES * (slots + 2):  # more than slots, a dict and weak references
            return False
    return False


def reduce_object(value: object) -> object:
    """Reduces an object of a plain class to its attributes and slots; its own methods are not asked."""
    try:
        own = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        own = {}
    for base in type(value).__mro__:
        for name, part in vars(base).items():
            if isinstance(part, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # a slot that is not set
                    own[name] = part.__get__(value)
    return ReducedParts(own)


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
        blocks = blocks_of(value, value.nbytes, whole=value.flags.c_contiguous)
        content = RawBytes(value.nbytes, map(_array_bytes, blocks))
    return dtype.name, dtype.str, tuple(value.shape), content


def _array_bytes(block: Any) -> Buffer:
    import numpy

    flat: Any = numpy.ascontiguousarray(numpy.asarray(block)).reshape(-1)
    view: Buffer = flat.view(numpy.uint8) if flat.nbytes else b""
    return view


def _partial(value: Any) -> object:
    parts = ReducedParts(func=value.func, args=value.args, keywords=value.keywords)
    return ReducedParts(parts, more=vars(value)) if vars(value) else parts


def _enum(value: Any) -> object:
    more = {name: part for name, part in vars(value).items() if not name.startswith(("_", "__")) and name != "name"}
    return ReducedParts({"name": value.name, "value": value.value} | ({"more": more} if more else {}))


def _masked(value: Any) -> object:
    import numpy

    return ReducedParts(mask=numpy.ma.getmaskarray(value), data=value.filled())


def _scalar(value: Any) -> object:
    is_nan = value.dtype.kind == "f" and value != value
    return _array(type(value)("nan") if is_nan else value)


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
    parts = ReducedParts(index=value.index, columns=value.columns, dtypes=dtypes, values=columns)
    return ReducedParts(parts, attrs=value.attrs) if value.attrs else parts


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
    "enum:Enum": _enum,
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
    "collections:UserDict": lambda value: value.data if len(vars(value)) == 1 else vars(value),
    "collections:UserList": lambda value: value.data if len(vars(value)) == 1 else vars(value),
    "array:array": lambda value: (value.typecode, value.tobytes()),
    "functools:partial": _partial,
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
    "torch:Tensor": torch_reducers.reduce_tensor,
    "torch:DataLoader": lambda value: value.dataset,
    "torch:Module": torch_reducers.reduce_module,
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
