"""Encodes any value a user may log as JSON, and decodes it: small values inline, large ones as chunk references."""

from __future__ import annotations

import base64
import datetime
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

Json = Any  # None | bool | int | float | str | list | dict, as msgspec reads and writes them
PutChunk = Callable[[bytes], str]
GetChunk = Callable[[str], bytes]

INLINE_TEXT_CHARS = 4_096
INLINE_ARRAY_BYTES = 512
MAX_DEPTH = 32
MAX_CONTAINERS = 200_000
_SMALL_INT = 1 << 63


class Redaction(NamedTuple):
    """What is left of a value when its secrets are removed; `hides` tells by the name of an item whether it is one."""

    text: Callable[[str], str]
    description: Callable[[str], str]  # of the `repr` of an object
    hides: Callable[[str, Any], bool]


NOT_REDACTED = Redaction(lambda text: text, lambda text: text, lambda _name, _value: False)


def encode_value(value: Any, put_chunk: PutChunk, redaction: Redaction = NOT_REDACTED) -> Json:
    """Returns the JSON form of a value; large parts go to `put_chunk`. Never raises because of the value."""
    return _ValueEncoder(put_chunk, redaction).encode(value, 0)


def decode_value(form: Json, get_chunk: GetChunk) -> Any:
    """Returns the value that was encoded: arrays as numpy arrays, values that could not be encoded as their repr."""
    if isinstance(form, list):
        return [decode_value(item, get_chunk) for item in form]
    if isinstance(form, dict):
        tag = next(iter(form), "")
        if len(form) == 1 and tag.startswith("$"):
            try:
                return _DECODERS[tag](form[tag], get_chunk)
            except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
                from relive.errors import MalformedValue

                raise MalformedValue(
                    f"a stored value is no {tag} ({error}); `relive doctor` checks the run, `relive rm` removes it"
                ) from error
        return {key: decode_value(item, get_chunk) for key, item in form.items()}
    return form


def inline_chunks(form: Json, get_chunk: GetChunk) -> Json:
    """Replaces the chunk references in a form by their data, so that it can be decoded without the chunks."""
    if isinstance(form, list):
        return [inline_chunks(item, get_chunk) for item in form]
    if not isinstance(form, dict):
        return form
    tag = next(iter(form), "")
    inner = form.get(tag) if len(form) == 1 else None
    if not isinstance(inner, dict) or "chunk" not in inner or not tag.startswith("$"):
        return {key: inline_chunks(item, get_chunk) for key, item in form.items()}
    raw = get_chunk(inner["chunk"])
    data = base64.b64encode(raw).decode()
    if tag == "$text":
        return raw.decode() if _is_utf8(raw) else {"$surrogates": data}
    return (
        {"$bytes": data}
        if tag == "$blob"
        else {tag: {key: item for key, item in inner.items() if key != "chunk"} | {"data": data}}
    )


def to_json(form: Json) -> str:
    """Serialises a form as JSON text."""
    return msgspec.json.encode(form).decode()


def from_json(text: str | bytes) -> Json:
    """Parses JSON text."""
    return msgspec.json.decode(text)


class _ValueEncoder:
    def __init__(self, put_chunk: PutChunk, redaction: Redaction) -> None:
        self._put = put_chunk
        self._redaction = redaction
        self._ancestors: set[int] = set()  # ids of the containers being encoded, to detect cycles
        self._containers = 0

    def encode(self, value: Any, depth: int) -> Json:
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        encode = _ENCODERS.get(kind)
        if encode is not None:
            return encode(self, value)
        if isinstance(value, Mapping) or kind in (list, tuple, set, frozenset):
            return self._encode_container(value, depth)
        return self._encode_library_value(value, depth)

    def _encode_container(self, value: Any, depth: int) -> Json:
        """Encodes a container; beyond a cycle, the depth limit or the size limit only the type is stored."""
        self._containers += 1
        if depth >= MAX_DEPTH or id(value) in self._ancestors or self._containers > MAX_CONTAINERS:
            return {"$repr": {"type": _type_name(value), "text": f"<{_type_name(value)} cut off>"}}
        self._ancestors.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._mapping(value, depth)
            items = [self.encode(item, depth + 1) for item in value]
            return items if type(value) is list else {f"${type(value).__name__}": items}
        finally:
            self._ancestors.discard(id(value))

    def _int(self, value: int) -> Json:
        return value if -_SMALL_INT <= value < _SMALL_INT else {"$int": _int_to_hex(value)}

    def _float(self, value: float) -> Json:
        return value if math.isfinite(value) else {"$float": repr(value)}

    def _str(self, value: str) -> Json:
        value = self._redaction.text(value)
        raw = value.encode("utf-8", "surrogatepass")
        if len(value) <= INLINE_TEXT_CHARS:
            return value if _is_utf8(raw) else {"$surrogates": base64.b64encode(raw).decode()}
        head = value[:80].encode("utf-8", "replace").decode()
        return {"$text": {"chunk": self._put(raw), "chars": len(value), "head": head}}

    def _bytes(self, value: bytes) -> Json:
        if len(value) <= INLINE_TEXT_CHARS:
            return {"$bytes": base64.b64encode(value).decode()}
        return {"$blob": {"chunk": self._put(bytes(value)), "bytes": len(value)}}

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Json:
        items = [(self._key(key), self._item(key, item, depth + 1)) for key, item in value.items()]
        is_plain = all(type(key) is str and key.isprintable() for key, _ in items) and not _looks_like_a_tag(value)
        if is_plain and len(items) == len({key for key, _ in items}):
            return dict(items)
        return {"$map": [[self.encode(key, depth + 1), item] for key, item in items]}

    def _key(self, key: Any) -> Any:
        return self._redaction.text(key) if type(key) is str else key

    def _item(self, key: Any, value: Any, depth: int) -> Json:
        return {"$secret": ""} if type(key) is str and self._redaction.hides(key, value) else self.encode(value, depth)

    def _encode_library_value(self, value: Any, depth: int) -> Json:
        """Encodes values of libraries without importing any: a library whose value is given is already loaded."""
        try:
            return self._encode_known_type(value, depth)
        except OSError:  # the disk failed, not the value: the caller has to know
            raise
        except Exception:  # noqa: BLE001 - a value that can't be encoded must not stop the training that logged it
            return self._repr(value)

    def _encode_known_type(self, value: Any, depth: int) -> Json:
        if isinstance(value, PurePath):
            return {"$path": self._redaction.text(str(value))}
        if type(value) is datetime.datetime:
            return {"$datetime": value.isoformat()}
        if isinstance(value, datetime.datetime):  # a pandas subclass: with nanoseconds, or NaT
            return {"$timestamp": str(value)}
        root = type(value).__module__.partition(".")[0]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(value, torch)
        np = sys.modules.get("numpy")
        if np is not None and isinstance(value, np.generic):
            return self._numpy_scalar(value, np)
        if np is not None and isinstance(value, np.ndarray):
            return {"$array": self._array(value, np)}
        if root == "PIL":
            import numpy

            if value.mode in ("P", "PA"):  # the pixels are positions in a palette, which an array does not have
                value = value.convert("RGBA" if value.mode == "PA" or "transparency" in value.info else "RGB")
            return {"$image": {**self._array(numpy.asarray(value), numpy), "mode": value.mode}}
        if root == "pandas":
            return self._frame(value, depth)
        return self._repr(value)

    def _repr(self, value: Any) -> Json:
        text = safe_repr(value, describe=lambda value: self._redaction.description(repr(value)))
        return {"$repr": {"type": _type_name(value), "text": text}}

    def _numpy_scalar(self, value: Any, np: Any) -> Json:
        if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            return {"$np": [value.dtype.name, self.encode(value.item(), 0)]}
        return {"$scalar": self._array(np.asarray(value), np)}

    def _tensor(self, value: Any, torch: Any) -> Json:
        tensor = value.detach()
        if tensor.layout != torch.strided or tensor.is_quantized:
            tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
        tensor = tensor.cpu().resolve_conj().resolve_neg().contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        import numpy

        if tensor.dtype != torch.bfloat16:
            return {"$array": {**self._array(tensor.numpy(), numpy), "torch": dtype}}
        form = self._array(tensor.view(torch.uint16).numpy(), numpy)
        if "summary" in form:
            form["summary"] = _array_summary(tensor.float().numpy(), numpy)  # of the numbers, not of their bits
        return {"$array": {**form, "torch": dtype}}

    def _array(self, array: Any, np: Any) -> dict[str, Json]:
        if array.dtype.hasobject:
            raise TypeError("arrays of Python objects are stored as text")
        array = np.ascontiguousarray(array) if array.ndim else array
        raw = array.tobytes()
        form: dict[str, Json] = {"dtype": np.lib.format.dtype_to_descr(array.dtype), "shape": list(array.shape)}
        if len(raw) <= INLINE_ARRAY_BYTES:
            form["data"] = base64.b64encode(raw).decode()
        else:
            form["chunk"] = self._put(raw)
            form["summary"] = _array_summary(array, np)
        return form

    def _frame(self, value: Any, depth: int) -> Json:
        import pandas

        frame = value.to_frame() if isinstance(value, pandas.Series) else value
        if not isinstance(frame, pandas.DataFrame):
            raise TypeError("only frames and series are stored as tables")
        columns = [[str(name), self._column(frame.iloc[:, at], depth)] for at, name in enumerate(frame.columns)]
        return {"$frame": {"columns": columns, "index": self._column(frame.index.to_series(), depth)}}

    def _column(self, column: Any, depth: int) -> Json:
        array = column.to_numpy()
        return self.encode(array.tolist() if array.dtype.hasobject else array, depth + 1)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


_ENCODERS: dict[type, Callable[[_ValueEncoder, Any], Json]] = {
    int: _ValueEncoder._int,
    float: _ValueEncoder._float,
    str: _ValueEncoder._str,
    bytes: _ValueEncoder._bytes,
    bytearray: _ValueEncoder._bytes,
    complex: lambda self, v: {"$complex": [self._float(v.real), self._float(v.imag)]},
}


def _looks_like_a_tag(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")


def _int_to_hex(value: int) -> str:
    """Returns hexadecimal digits, because Python refuses to format very long integers in decimal."""
    return hex(value)


def _type_name(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def safe_repr(value: object, limit_chars: int = 1_000, *, describe: Callable[[object], str] = repr) -> str:
    """Returns the repr of a value, shortened, or a placeholder if it raises."""
    try:
        text = describe(value)
    except Exception:  # noqa: BLE001 - the user's __repr__ may do anything
        return f"<{_type_name(value)} whose repr failed>"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= limit_chars else text[:limit_chars] + "…"


def _array_summary(array: Any, np: Any) -> dict[str, Json]:
    if array.size == 0 or array.dtype.kind not in "fiu":
        return {}
    numbers = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if numbers.size == 0:
        return {"finite": 0}
    return {"min": float(numbers.min()), "max": float(numbers.max()), "mean": float(numbers.mean(dtype="float64"))}


def _read_array(form: dict[str, Json], get_chunk: GetChunk) -> Any:
    import numpy as np

    raw = base64.b64decode(form["data"]) if "data" in form else get_chunk(form["chunk"])
    array = np.frombuffer(raw, dtype=np.dtype(_dtype_fields(form["dtype"]))).reshape(form["shape"])
    if form.get("torch") == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.copy()


def _dtype_fields(descr: Any) -> Any:
    """Restores the tuples that numpy requires in the description of a structured dtype; JSON made lists of them."""
    if isinstance(descr, str):
        return descr
    return [(field[0], _dtype_fields(field[1]), *(tuple(shape) for shape in field[2:])) for field in descr]


def _read_timestamp(form: str, get_chunk: GetChunk) -> Any:
    import pandas

    return pandas.Timestamp(form)


def _read_scalar(form: list[Json], get_chunk: GetChunk) -> Any:
    import numpy as np

    return np.dtype(form[0]).type(decode_value(form[1], get_chunk))


def _read_frame(form: dict[str, Json], get_chunk: GetChunk) -> Any:
    import pandas

    columns = {at: decode_value(column, get_chunk) for at, (_, column) in enumerate(form["columns"])}
    frame = pandas.DataFrame(columns, index=decode_value(form["index"], get_chunk))
    frame.columns = pandas.Index([name for name, _ in form["columns"]])  # two columns may have the same name
    return frame


_DECODERS: dict[str, Callable[[Any, GetChunk], Any]] = {
    "$int": lambda form, _: int(form, 16),
    "$float": lambda form, _: float(form),
    "$complex": lambda form, get: complex(decode_value(form[0], get), decode_value(form[1], get)),
    "$surrogates": lambda form, _: base64.b64decode(form).decode("utf-8", "surrogatepass"),
    "$text": lambda form, get: get(form["chunk"]).decode("utf-8", "surrogatepass"),
    "$bytes": lambda form, _: base64.b64decode(form),
    "$blob": lambda form, get: get(form["chunk"]),
    "$tuple": lambda form, get: tuple(decode_value(item, get) for item in form),
    "$set": lambda form, get: {decode_value(item, get) for item in form},
    "$frozenset": lambda form, get: frozenset(decode_value(item, get) for item in form),
    "$map": lambda form, get: {decode_value(key, get): decode_value(item, get) for key, item in form},
    "$path": lambda form, _: PurePath(form),
    "$datetime": lambda form, _: datetime.datetime.fromisoformat(form),
    "$timestamp": _read_timestamp,
    "$np": _read_scalar,
    "$scalar": lambda form, get: _read_array(form, get)[()],
    "$array": _read_array,
    "$image": _read_array,
    "$frame": _read_frame,
    "$repr": lambda form, _: form["text"],
    "$secret": lambda _form, _get: "<redacted>",
}
