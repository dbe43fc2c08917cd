"""Handlers of any other object: by its attributes; by pickling if a library hides its state in C; or unknown."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import gc
import io
import pathlib
import pickle
import re
import sys
import threading
import types
import uuid
import weakref
from typing import Any

from relive.checkpoint.analysis import is_project_module
from relive.checkpoint.graph.handlers.attributes import (
    Attributes,
    attribute_tokens,
    module_name,
    own_dict,
    restore_attributes,
)
from relive.checkpoint.graph.object_tokens import (
    LOCK,
    REENTRANT_LOCK,
    TEXT_TYPE,
    UNSEEN,
    VALUE,
    WEAK,
    Token,
    value_token,
)
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Unreadable, Walker

# Objects of these packages only display or report progress; the training does not depend on them.
DISPLAY_PACKAGES = frozenset(
    "tqdm rich relive wandb matplotlib IPython ipykernel tensorboard tensorboardX mlflow logging comet_ml neptune aim "
    "clearml swanlab loguru structlog colorama termcolor alive_progress progressbar faulthandler warnings".split()
)
_DISPLAY_MODULES = ("torch.utils.tensorboard", "concurrent.futures.thread")  # a pool of threads has none of its own
# Boosters pickle their trees, rounded or not, and leave out what the next round needs: data, margins, generators.
_COMPARED_PACKAGES = frozenset({"lightgbm", "xgboost", "catboost"})
_UNKNOWN_PACKAGES = frozenset(
    "multiprocessing concurrent asyncio subprocess socket ssl sqlite3 h5py lmdb diskcache".split()
)
_VALUE_TYPES = (
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction, uuid.UUID,
    pathlib.PurePath, re.Pattern, range, slice, type(NotImplemented),
)  # fmt: skip
_MEMBER_ATTRIBUTES = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"})
_PRIMITIVES = (int, float, complex, bytes)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


class ObjectHandler(Handler):
    """An object whose state is its attributes."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return attribute_tokens(obj, walk)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        restore_attributes(obj, content, restore)


class ValueHandler(Handler):
    """An immutable value, such as a date: it is pickled where it stands."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        if isinstance(obj, pathlib.PurePath):
            return (VALUE, type(obj).__name__, walk.ref(str(obj), form, key))
        return value_token(obj)


class EnumHandler(Handler):
    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return (VALUE, "enum", walk.ref(type(obj), form, f"{key}.__class__"), obj._name_)


class EnumMemberHandler(Handler):
    """A member of an enumeration of the project, which may have attributes of its own."""

    is_singleton = True

    def content(self, obj: Any, walk: Walker) -> Any:
        own = {name: value for name, value in (own_dict(obj) or {}).items() if name not in _MEMBER_ATTRIBUTES}
        return (*_member_name(obj), walk.ref(type(obj), ".", "__class__"), walk.attributes(own))

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        name, value, of_class, _ = content
        cls = restore.value(of_class)
        return cls[name] if name is not None else cls(value)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if _member_name(obj) != content[:2]:
            raise CannotRestore("it is another member")
        own: Any = own_dict(obj)
        values = {n: restore.value(token) for n, token in zip(content[3][::2], content[3][1::2], strict=True)}
        for name in [name for name in own if name not in values and name not in _MEMBER_ATTRIBUTES]:
            del own[name]
        own.update(values)


def _member_name(member: Any) -> tuple[str | None, int | None]:
    """The name of a member; of a combination of flags, which may have none that can be looked up, its value."""
    is_named = member._name_ in type(member).__members__
    return (member._name_, None) if is_named else (None, member._value_)


class TextHandler(Handler):
    """A subclass of str, int, float or bytes without attributes."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return (TEXT_TYPE, walk.ref(type(obj), form, f"{key}.__class__"), _plain_value(obj))


class NumberHandler(Handler):
    """A subclass of str, int, float or bytes with attributes."""

    def content(self, obj: Any, walk: Walker) -> Any:
        return _plain_value(obj), attribute_tokens(obj, walk)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        base: Any = next(base for base in (str, *_PRIMITIVES) if issubclass(cls, base))
        return base.__new__(cls, content[0])

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if _plain_value(obj) != content[0]:
            raise CannotRestore("its value can't be changed in place")
        restore_attributes(obj, content[1], restore)


def _plain_value(obj: Any) -> Any:
    base = next(base for base in (str, *_PRIMITIVES) if isinstance(obj, base))
    return str.__str__(obj) if base is str else base(obj)


class DisplayHandler(Handler):
    """An object that only displays or reports progress: it is left out, and a statement that reads it is told so."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        walk.note_displayed(obj, form, key)
        return (UNSEEN, type(obj).__qualname__)


class UnknownHandler(Handler):
    """An object that can't be looked into. What it refers to is still looked at, unless it is bound to the process."""

    is_restorable = False

    def content(self, obj: Any, walk: Walker) -> Any:
        if type(obj).__module__.partition(".")[0] not in _UNKNOWN_PACKAGES:
            for at, inner in enumerate(gc.get_referents(obj)):
                if not isinstance(inner, type | types.ModuleType | types.FrameType) and inner is not own_dict(obj):
                    walk.ref(inner, ".", f"(inside {at})")
            attribute_tokens(obj, walk)
        raise Unreadable(f"{type(obj).__module__}.{type(obj).__qualname__} is opaque")


class PickledHandler(Handler):
    """An object of a library that hides its state in C and knows how to pickle it."""

    creates_complete = True

    def content(self, obj: Any, walk: Walker) -> Any:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
        return data, tuple(bytes(buffer.raw()) for buffer in buffers)

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        data, buffers = content[:2]
        return pickle.loads(data, buffers=[bytearray(buffer) for buffer in buffers])

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        fresh = self.create("", content, restore)
        if fresh is obj:
            return
        where = Attributes.of(type(obj))
        state = getattr(type(obj), "__setstate__", None)
        own, new = own_dict(obj), own_dict(fresh)
        if not where.has_hidden_memory and own is not None and new is not None:
            # Exchanged, not copied: each frees the memory behind its own pointers when it is deleted.
            before = dict(own)
            own.clear()
            own.update(new)
            new.clear()
            new.update(before)
        elif state is not None:
            reduced = fresh.__reduce_ex__(4)
            if type(reduced) is not tuple or len(reduced) < 3 or reduced[2] is None:
                raise CannotRestore("its state can't be set")
            obj.__setstate__(reduced[2])
        else:
            raise CannotRestore("its state can't be set in place")


class ComparedHandler(PickledHandler):
    """An object whose pickle tells whether it has changed, but does not hold all of its state."""

    is_restorable = False


class LockHandler(Handler):
    """A lock: whether it is held belongs to the moment, not to the state."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return (UNSEEN, LOCK if type(obj) is _LOCKS[0] else REENTRANT_LOCK)


class WeakReferenceHandler(Handler):
    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        target = obj()
        return (WEAK, walk.ref(target, form, f"{key}()") if target is not None else None)


class WeakContainerHandler(Handler):
    """A WeakKeyDictionary, WeakValueDictionary or WeakSet: restored through its own methods."""

    is_hashed = True

    def content(self, obj: Any, walk: Walker) -> Any:
        if isinstance(obj, weakref.WeakSet):
            return () if walk.is_deferred() else walk.refs(sorted(obj, key=walk.order_key))
        return walk.refs([part for pair in list(obj.items()) for part in pair])

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        return restore.find_class(kind)()

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        values = [restore.value(token) for token in content]
        obj.clear()
        if isinstance(obj, weakref.WeakSet):
            obj.update(values)
        else:
            obj.update(dict(zip(values[::2], values[1::2], strict=True)))


class ExceptionHandler(Handler):
    """An error: its arguments, its attributes, what caused it, and the fields of errors of the system."""

    def content(self, obj: Any, walk: Walker) -> Any:
        fields = {name: getattr(obj, name) for name in _error_fields(obj)}
        return walk.ref(obj.args, ".", "args"), attribute_tokens(obj, walk), walk.attributes(fields)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        obj.args = restore.value(content[0])
        restore_attributes(obj, content[1], restore)
        for name, token in zip(content[2][::2], content[2][1::2], strict=True):
            setattr(obj, name, restore.value(token))


def _error_fields(error: Any) -> tuple[str, ...]:
    # A field that is set to None is shown, one that was never set is not.
    system = ("errno", "strerror", "filename", "filename2") if isinstance(error, OSError) else ()
    own = [name for name in system if getattr(error, name) is not None]
    return (*own, "__cause__", "__context__", "__suppress_context__")


class StateDictHandler(Handler):
    """An object that can't be looked into, but has `state_dict` and `load_state_dict`."""

    is_data = True

    def content(self, obj: Any, walk: Walker) -> Any:
        return walk.ref(walk.made(obj.state_dict()), ".", "state_dict()")

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        obj.load_state_dict(restore.complete_value(content))


class FrameHandler(PickledHandler):
    """A DataFrame, Series or Index of pandas: pickled like other objects, and compared by value."""

    is_hashed_whole = False

    def content(self, obj: Any, walk: Walker) -> Any:
        from xxhash import xxh3_64_intdigest

        data, buffers = super().content(obj, walk)
        return data, buffers, xxh3_64_intdigest(_pickled_by_value(obj) or data)

    def fingerprint(self, content: Any) -> Any:
        return content[1:]

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        fresh = self.create("", content, restore)
        own, new = own_dict(obj), own_dict(fresh)
        if own is None or new is None:
            raise CannotRestore("it can't be changed in place")
        own.clear()
        own.update(new)


def _pickled_by_value(obj: Any) -> bytes | None:
    """Returns a pickle that does not show which equal texts are one object; None if the object holds itself."""
    file, aside = io.BytesIO(), list[pickle.PickleBuffer]()
    pickler = pickle.Pickler(file, 5, buffer_callback=aside.append)
    pickler.fast = True
    try:
        pickler.dump(obj)
    except (RecursionError, ValueError):
        return None
    return file.getvalue()


def choose_frame(kind: type) -> Handler | None:
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "Index"):
        return None
    return FrameHandler() if issubclass(kind, pandas.DataFrame | pandas.Series | pandas.Index) else None


def choose_object(kind: type) -> Handler | None:
    """The last chooser: every class has a handler."""
    module = module_name(kind)
    package = module.partition(".")[0]
    where = Attributes.of(kind)
    if issubclass(kind, enum.Enum):
        return EnumMemberHandler() if is_project_module(module) else EnumHandler()
    if issubclass(kind, _VALUE_TYPES):
        return ValueHandler()
    if issubclass(kind, (str, *_PRIMITIVES)):
        return NumberHandler() if where.has_dict else TextHandler()
    if kind in _LOCKS:
        return LockHandler()
    if issubclass(kind, weakref.WeakKeyDictionary | weakref.WeakValueDictionary | weakref.WeakSet):
        return WeakContainerHandler()
    if issubclass(kind, weakref.ref):
        return WeakReferenceHandler()
    if any(_is_for_display(base) for base in kind.__mro__) and not is_project_module(module):
        return DisplayHandler()
    if package in _COMPARED_PACKAGES and _pickles_itself(kind):
        return ComparedHandler()
    if package in _UNKNOWN_PACKAGES or (package == "ctypes" and hasattr(kind, "_func_restype_")):  # a library of C
        return UnknownHandler()
    if issubclass(kind, BaseException):
        return ExceptionHandler()
    return _choose_by_memory(kind, where)


def _choose_by_memory(kind: type, where: Attributes) -> Handler:
    if not where.has_hidden_memory:
        return ObjectHandler()
    if _is_reduced_by_library(kind):
        return PickledHandler()
    if _has_state_dict(kind):
        return StateDictHandler()
    return UnknownHandler()


def _is_for_display(kind: type) -> bool:
    module = module_name(kind)
    return module.partition(".")[0] in DISPLAY_PACKAGES or module.startswith(_DISPLAY_MODULES)


def _pickles_itself(kind: Any) -> bool:
    return any(
        name in vars(base) for base in kind.__mro__[:-1] for name in ("__getstate__", "__reduce__", "__reduce_ex__")
    )


def _is_reduced_by_library(kind: type) -> bool:
    """Whether a library, rather than the project, defines how instances are pickled."""
    ways = [
        vars(base)[name]
        for base in kind.__mro__[:-1]
        for name in ("__reduce_ex__", "__reduce__", "__getstate__")
        if name in vars(base)
    ]
    return bool(ways) and not any(
        isinstance(way, types.FunctionType) and is_project_module(way.__module__ or "") for way in ways
    )


def _has_state_dict(kind: type) -> bool:
    return callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None))
