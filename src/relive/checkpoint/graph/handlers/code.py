"""Handlers of code that holds state: functions with cells and defaults, methods, caches, modules."""

from __future__ import annotations

import functools
import gc
import hashlib
import marshal
import sys
import types
from typing import Any

from relive.checkpoint.analysis import is_project_module
from relive.checkpoint.graph.handlers.classes import (
    COMPILERS,
    CONTAINERS,
    DESCRIPTORS,
    AnyClassHandler,
    NamedClassHandler,
)
from relive.checkpoint.graph.object_tokens import (
    BUILTIN_METHOD,
    BY_NAME,
    METHOD,
    PROXY,
    UNSEEN,
    VALUE,
    Token,
    find_by_name,
)
from relive.checkpoint.graph.registry import CannotRestore, Handler, Restorer, Walker
from relive.installation import PACKAGE_FOLDER

_EMPTY_CELL = "(empty)"
_CODE = "__code__"


class ModuleStateHandler(Handler):
    """A module that only this process has, made at run time or loaded from a path: its variables."""

    def content(self, obj: Any, walk: Walker) -> Any:
        return walk.attributes({name: value for name, value in list(vars(obj).items()) if name[:2] != "__"})

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        raise CannotRestore("a module that was made at run time")

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        values = {name: restore.value(token) for name, token in zip(content[::2], content[1::2], strict=True)}
        own = vars(obj)
        for name in [name for name in own if name[:2] != "__" and name not in values]:
            del own[name]
        own.update(values)


class ModuleObjectHandler(Handler):
    """A module of Python: the project's are roots of their own, libraries are known by their name."""

    is_inline = True
    of_nodes = ModuleStateHandler()

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        name = vars(obj).get("__name__")
        if sys.modules.get(name) is obj and not is_made_at_run_time(obj):
            return (BY_NAME, name, "")
        return walk.node_token(obj, form, key, self.of_nodes)


def is_made_at_run_time(module: Any) -> bool:
    return type(module) is types.ModuleType and vars(module).get("__spec__") is None and "__file__" not in vars(module)


class FunctionHandler(Handler):
    """A function: its cells, defaults and attributes. Its code is state only if it was replaced by that of another."""

    is_hashed_whole = False

    def fingerprint(self, content: Any) -> Any:
        return content[:-1]  # without its code, which has the name of a file in it

    def content(self, obj: Any, walk: Walker) -> Any:
        code = obj.__code__
        is_own = is_project_module(obj.__globals__.get("__name__") or "")
        cells = []
        for name, cell in zip(code.co_freevars, obj.__closure__ or (), strict=True):
            try:
                cells += [name, walk.ref(cell.cell_contents, ".", f"<{name}>")]
            except ValueError:
                cells += [name, (UNSEEN, _EMPTY_CELL)]
        is_open = is_own or _keeps_values(obj)
        defaults = walk.ref(obj.__defaults__, ".", "__defaults__") if is_open else None
        options = walk.attributes(obj.__kwdefaults__ or {}) if is_open else ()
        replaced = {_CODE: replaced_code(obj)} if is_own and replaced_code(obj) else {}
        attributes = walk.attributes({k: v for k, v in obj.__dict__.items() if k != "__wrapped__"} | replaced)
        is_named = _is_found_by_name(obj)
        made_by = marshal.dumps(code) if is_own and not is_named else None  # made at run time: no name leads to it
        names = obj.__module__ or "", obj.__qualname__, is_named
        hidden = walk.ref(obj.__globals__, ".", "__globals__") if is_hidden_namespace(obj.__globals__) else None
        return *names, tuple(cells), defaults, options, attributes, hidden, made_by

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        module, name, is_named, cells, _, _, _, _, made_by = content
        if made_by is None:
            try:
                if is_named:
                    return find_by_name(module, name)
            except LookupError as error:
                raise CannotRestore(str(error)) from error
            raise CannotRestore(f"a function {name} of a library, made at run time")
        namespace = vars(sys.modules[module]) if module in sys.modules else {}
        closure = tuple(types.CellType() for _ in cells[::2])
        return types.FunctionType(marshal.loads(made_by), namespace, name.rpartition(".")[2], None, closure or None)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        _, _, _, cells, defaults, options, attributes, _, _ = content
        own = {name: restore.value(token) for name, token in zip(attributes[::2], attributes[1::2], strict=True)}
        _restore_code(obj, own.pop(_CODE, ""))
        for name, token in zip(cells[::2], cells[1::2], strict=True):
            if token != (UNSEEN, _EMPTY_CELL):
                cell = (obj.__closure__ or ())[obj.__code__.co_freevars.index(name)]
                cell.cell_contents = restore.value(token)
        if is_project_module(obj.__globals__.get("__name__") or ""):
            obj.__defaults__ = restore.value(defaults)
            pairs = zip(options[::2], options[1::2], strict=True)
            obj.__kwdefaults__ = {name: restore.value(token) for name, token in pairs} or None
        obj.__dict__.update(own)


def replaced_code(function: Any) -> str:
    """Returns what tells the code of another function that a function was given at run time; empty if it has its own.

    Lines are no part of it, since an added statement moves them.
    """
    code: types.CodeType = function.__code__
    if code.co_qualname == function.__qualname__ or "__wrapped__" in function.__dict__ or code.co_filename[:1] == "<":
        return ""
    text = code.co_qualname
    if code.co_name == "<lambda>":  # several may have this name
        text += " " + hashlib.sha256(repr(_parts_of(code)).encode()).hexdigest()[:16]
    return text


def _parts_of(code: types.CodeType) -> tuple[Any, ...]:
    """What a code does, without where it stands."""
    constants = [_parts_of(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _restore_code(function: Any, wanted: str) -> None:
    """Gives a function the code that it had, if another function of this process has it."""
    if wanted == replaced_code(function):
        return
    if not wanted:
        raise CannotRestore(f"the code of {function.__qualname__}, which was replaced since")
    for other in gc.get_objects():
        if type(other) is types.FunctionType and is_project_module(other.__globals__.get("__name__") or ""):
            given = types.FunctionType(other.__code__, {}, closure=other.__closure__)
            given.__qualname__ = ""
            if replaced_code(given) == wanted and len(other.__code__.co_freevars) == len(function.__code__.co_freevars):
                function.__code__ = other.__code__
                return
    raise CannotRestore(f"the code of {function.__qualname__}, which is that of {wanted.partition(' ')[0]}")


def is_hidden_namespace(namespace: dict[str, Any]) -> bool:
    """Whether the variables that a function calls global are those of no loaded module."""
    module = sys.modules.get(namespace.get("__name__") or "")
    return module is None or vars(module) is not namespace


def _is_found_by_name(function: Any) -> bool:
    """Whether its name leads to a function itself, rather than to one that wraps it and has taken its name."""
    try:
        return find_by_name(function.__module__ or "", function.__qualname__) is function
    except (LookupError, AttributeError):
        return False


def _keeps_values(function: Any) -> bool:
    """Whether a library's function can keep something from call to call: in a default, or as its attribute."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    own = function.__dict__.values() if function.__dict__ else ()
    return any(type(one) in CONTAINERS for one in [*defaults, *own]) or any(type(one) in (int, float) for one in own)


class AnyFunctionHandler(Handler):
    """Chooses by the function itself: a library's function that its name leads to is known by it, others are nodes."""

    is_inline = True
    of_nodes = FunctionHandler()

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        if "__wrapped__" in obj.__dict__ and obj.__code__.co_filename.startswith(PACKAGE_FOLDER):
            return walk.ref(obj.__wrapped__, form, key)  # relive's own, which stands for the function in this process
        if (obj.__globals__.get("__name__") or "").startswith(COMPILERS):
            compiled = obj.__dict__.get("_torchdynamo_orig_callable")
            return (UNSEEN, obj.__qualname__, walk.ref(compiled, form, f"{key}.(compiled)"))
        is_library = not obj.__closure__ and not is_project_module(obj.__globals__.get("__name__") or "")
        if is_library and _is_found_by_name(obj) and not _keeps_values(obj):
            return (BY_NAME, obj.__module__, obj.__qualname__)
        return walk.node_token(obj, form, key, self.of_nodes)


class LibraryFunctionHandler(Handler):
    """A builtin function, or a descriptor of a builtin class."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        owner = getattr(obj, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            return (BY_NAME, getattr(obj, "__module__", None) or "builtins", getattr(obj, "__qualname__", ""))
        return (BUILTIN_METHOD, walk.ref(owner, form, f"{key}.__self__"), obj.__name__)


class MethodHandler(Handler):
    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return (
            METHOD,
            walk.ref(obj.__func__, form, f"{key}.__func__"),
            walk.ref(obj.__self__, form, f"{key}.__self__"),
        )


class MappingProxyHandler(Handler):
    """A read-only view of a dict."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return (VALUE, PROXY, walk.ref(gc.get_referents(obj)[0], form, f"{key}.(mapping)"))


class PartialHandler(Handler):
    def content(self, obj: Any, walk: Walker) -> Any:
        parts = [walk.ref(obj.func, ".", "func"), walk.ref(obj.args, ".", "args")]
        return (*parts, walk.attributes(obj.keywords), walk.attributes(obj.__dict__))

    def create(self, kind: str, content: Any, restore: Restorer) -> Any:
        cls = restore.find_class(kind)
        return cls.__new__(cls, print)

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        func, args, keywords, attributes = content
        words = {name: restore.value(token) for name, token in zip(keywords[::2], keywords[1::2], strict=True)}
        own = {name: restore.value(token) for name, token in zip(attributes[::2], attributes[1::2], strict=True)}
        obj.__setstate__((restore.value(func), restore.value(args), words, own or None))


class CacheHandler(Handler):
    """A function with `lru_cache`: what it remembers. Only caches without a limit can be filled again."""

    def content(self, obj: Any, walk: Walker) -> Any:
        size = obj.cache_parameters()["maxsize"]
        remembered, others = _cache_parts(obj)
        if size is not None and remembered:
            # Entries are in a linked list of C, most recently used last.
            links = [tuple(part for part in link if not isinstance(part, type)) for link in _links(remembered)]
            entries = tuple(_entry_tokens(link, at, walk) for at, link in enumerate(links))
        else:
            entries = (walk.ref(remembered, ".", "(remembered)"),)
        return size, entries, tuple(walk.ref(one, ".", f"(part {at})") for at, one in enumerate(others))

    def can_restore(self, content: Any) -> bool:
        return content is not None and content[0] is None

    def restore(self, obj: Any, content: Any, restore: Restorer) -> None:
        if content[0] is not None:
            raise CannotRestore("a cache with a limit can't be filled again")
        remembered, _ = _cache_parts(obj)
        values = restore.complete_value(content[1][0])
        if values is not remembered:
            remembered.clear()
            remembered.update(values)


def _cache_parts(obj: Any) -> tuple[dict[Any, Any], list[Any]]:
    parts = [part for part in gc.get_referents(obj) if not isinstance(part, type)]
    dicts = [part for part in parts if type(part) is dict and part is not obj.__dict__]
    return (dicts[0] if dicts else {}), [part for part in parts if isinstance(part, types.FunctionType)]


def _entry_tokens(link: tuple[Any, ...], at: int, walk: Walker) -> tuple[Token, ...]:
    parts = [part for part in link if type(part).__name__ != "_lru_list_elem"]
    return tuple(walk.ref(part, ".", f"(entry {at}.{number})") for number, part in enumerate(parts))


def _links(remembered: dict[Any, Any]) -> list[list[Any]]:
    return [gc.get_referents(link) for link in remembered.values()]


_BY_BASE: list[tuple[Any, Handler]] = [
    (types.ModuleType, ModuleObjectHandler()),
    (type, AnyClassHandler()),
    (types.FunctionType, AnyFunctionHandler()),
    (types.MethodType, MethodHandler()),
    ((types.BuiltinFunctionType, types.MethodWrapperType, *DESCRIPTORS), LibraryFunctionHandler()),
    (types.MappingProxyType, MappingProxyHandler()),
    (functools.partial, PartialHandler()),
    (functools._lru_cache_wrapper, CacheHandler()),
    ((types.GenericAlias, types.UnionType), NamedClassHandler()),
]


class MadeUpHandler(Handler):
    """Code and other machinery that has no state."""

    is_inline = True

    def token(self, obj: Any, walk: Walker, form: str, key: Any) -> Token:
        return (UNSEEN, type(obj).__qualname__)


_MACHINERY = (
    types.CodeType,
    types.FrameType,
    types.TracebackType,
    types.CapsuleType if hasattr(types, "CapsuleType") else types.CodeType,
)


def _is_module_class(kind: type) -> bool:
    return any(base.__module__ == "torch.nn.modules.module" for base in kind.__mro__)


def choose_code(kind: type) -> Handler | None:
    if issubclass(kind, _MACHINERY):
        return MadeUpHandler()
    if kind.__module__ == "typing" or (kind.__module__.startswith(COMPILERS) and not _is_module_class(kind)):
        return MadeUpHandler()
    return next((handler for base, handler in _BY_BASE if issubclass(kind, base)), None)
