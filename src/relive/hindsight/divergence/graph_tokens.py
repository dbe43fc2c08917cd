"""Takes the contents of a recorded graph apart: the parts of an object with their labels, values as one shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from relive.checkpoint.graph import TYPED, GraphState
from relive.checkpoint.plain import NotTyped, load_plain_pickle, read_marshalled, value_of_form

AtPath = tuple[str, Any]  # the label of a part, and its token
_PART = " (part "
_KEY, _OF_KEY = "[key ", "[of key "
_MAX_SHOWN = 60
_MAX_BULK = 100_000  # items of a large container that are compared one by one
_CODE_KINDS = frozenset({"builtins.function", "builtins.type"})
_DERIVED_DICTS = frozenset({"collections.defaultdict", "collections.OrderedDict", "collections.Counter"})
_MODULE_DICTS = frozenset({"_parameters", "_buffers", "_modules"})
_TENSOR_PARTS = (1, 2, 3, 4, 5, 7, 8)  # type, shape, …: all but the memory, the gradient and attributes
_ARRAY_PARTS = (1, 2, 3, 4)
_NAMED, _MODULE, _FRAME, _PROCESS = "=", "m", "f", "p"
_MAIN_MODULE = "__main__"


def is_code(kind: str) -> bool:
    return kind in _CODE_KINDS


# --- roots ------------------------------------------------------------------------------------------------------------


def root_names(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[list[tuple[str, str, str]], list[str], list[str]]:
    """Returns the pairs of variables to compare, with their names, and the names that only one side has.

    A variable that has moved from a module to a function, or to another one, is found by its name alone.
    """
    pairs = [(key, key, _root_name(key)) for key in one if key in other]
    left, right = ([key for key in side if key not in against] for side, against in ((one, other), (other, one)))
    by_name = {_variable(key): key for key in right if key[0] in (_MODULE, _FRAME)}
    counts = Counter(_variable(key) for key in (*left, *right))
    moved = [
        (key, by_name[_variable(key)], _variable(key))
        for key in left
        if key[0] in (_MODULE, _FRAME) and _variable(key) in by_name and counts[_variable(key)] == 2
    ]
    found = {key for key, _, _ in moved}, {key for _, key, _ in moved}
    pairs += moved
    pairs.sort(key=lambda pair: pair[0][0] != _NAMED)
    return (
        pairs,
        [_root_name(key) for key in left if key not in found[0]],
        [_root_name(key) for key in right if key not in found[1]],
    )


def _variable(key: str) -> str:
    return key.rpartition("|")[2]


def _root_name(key: str) -> str:
    kind, *parts = key.split("|")
    if kind == _PROCESS:
        return f"({parts[-1]})"
    if kind == _MODULE and parts[0] != _MAIN_MODULE:
        return ".".join(parts)
    if kind == _FRAME and parts[0] != "0":
        return f"{parts[1].replace('<locals>.', '')}.{parts[-1]}"
    return parts[-1]


# --- contents ---------------------------------------------------------------------------------------------------------


def content_parts(state: GraphState, kind: str, content: Any) -> list[AtPath]:
    """Returns the parts of an object's content; "" is the label of the memory of a tensor or an array."""
    if type(content) is not tuple:
        return [("", content)]
    if content and content[0] == "strided":
        facts = tuple(content[at] for at in _TENSOR_PARTS)
        parts: list[AtPath] = [(" (layout)", ("v", facts)), ("", content[6]), (".grad", content[9])]
        return parts + _named_parts(content[10])
    if content and content[0] == "array":
        facts = tuple(content[at] for at in _ARRAY_PARTS)
        return [(" (layout)", ("v", facts)), ("", content[5]), *_named_parts(content[7])]
    if len(content) == 2 and content[0] == "bulk" and type(content[1]) is bytes:
        return _bulk_parts(content[1])
    if kind == "builtins.list":
        return [(f"[{at}]", token) for at, token in enumerate(content)]
    if kind == "builtins.dict":
        return _pairs(content)
    if kind in _DERIVED_DICTS and len(content) == 3 and type(content[0]) is tuple:
        return [*content_parts(state, "builtins.dict", content[0]), *_named_parts(content[2])]
    if len(content) == 2 and (content[0] == TYPED or (content[0] == "v" and type(content[1]) is bytes)):
        return [("", content)]
    if is_code(kind) and len(content) == 7:  # its code, and the line it is in, are no state
        content = content[:6]
    return [_by_own_name(state, part) for part in _named_parts(content)]


def _by_own_name(state: GraphState, part: AtPath) -> AtPath:
    """Gives a part that has a number only the name that the object has in the graph: `.bit_generator`."""
    label, token = part
    node = state.nodes.get(token[0]) if label.startswith(_PART) and _is_node(token) else None
    return (node.label, token) if node is not None and node.label.startswith(".") else part


def token_parts(token: tuple[Any, ...]) -> list[AtPath] | None:
    """Returns the parts of a tuple inside a content; None for a leaf."""
    if token and type(token[0]) is str:
        tag, rest = token[0], token[1:]
        if tag in ("t", "fs"):
            return [(f"[{at}]", inner) for at, inner in enumerate(rest)]
        if tag == "nt":
            return [(f"[{at}]", inner) for at, inner in enumerate(rest[1:])]
        if tag in ("w", "m", "b", "id"):
            return [(f".({at})" if at else "", inner) for at, inner in enumerate(rest)]
        if tag in ("n", "v", TYPED, "g", "~", "?", "s"):
            return None
    if len(token) == 2 and token[0] == "bulk" and type(token[1]) is bytes:
        return _bulk_parts(token[1])
    return _named_parts(token)


def _named_parts(content: Any) -> list[AtPath]:
    """Attributes by name if names and tokens alternate, else parts by number."""
    if type(content) is not tuple:
        return [] if content is None else [(".(attributes)", content)]
    if len(content) % 2 == 0 and all(type(name) is str for name in content[::2]):
        found: list[AtPath] = []
        for name, token in zip(content[::2], content[1::2], strict=True):
            if name in _MODULE_DICTS and type(token) is tuple and not _is_node(token):
                found += _named_parts(token)
            else:
                found.append((f".{name}", token))
        return found
    return [(f"{_PART}{at})", token) for at, token in enumerate(content)]


def key_names(state: GraphState, parts: list[AtPath]) -> dict[str, str]:
    """Returns how to show labels of values whose key is an object, such as a parameter: by the path of that."""
    keys = {label: token for label, token in parts if label.startswith(_KEY) and _is_node(token)}
    return {
        label.replace(_KEY, _OF_KEY): f"[{state.name(token[0])}]"
        for label, token in keys.items()
        if token[0] in state.nodes
    }


def _pairs(content: tuple[Any, ...]) -> list[AtPath]:
    """Values by their keys; those of objects, which have other names in other processes, by their number."""
    found: list[AtPath] = []
    for at, (key, token) in enumerate(zip(content[::2], content[1::2], strict=False)):
        if type(key) in (str, int, float, bool, type(None), bytes):
            found.append((f"[{key!r}]", token))
        else:
            found += ((f"{_KEY}{at}]", key), (f"{_OF_KEY}{at}]", token))
    return found


def _bulk_parts(data: bytes) -> list[AtPath]:
    items = read_marshalled(data)
    if len(items) == 2 and type(items[0]) is list and type(items[1]) is list:
        items = {f"[{key!r}]": value for key, value in zip(*items, strict=True)}
    else:
        items = {f"[{at}]": value for at, value in enumerate(items)}
    if len(items) > _MAX_BULK:
        return [("", ("v", data))]
    return list(items.items())


def _is_node(token: Any) -> bool:
    return type(token) is tuple and len(token) == 1 and type(token[0]) is int


def plain_text(token: Any) -> Any:
    """Returns a value as one shows it: plain ones themselves, of others a short text or nothing."""
    if type(token) in (bool, int, float, type(None)):
        return token
    if type(token) is str:
        return token if len(token) <= _MAX_SHOWN else token[: _MAX_SHOWN - 1] + "…"
    if type(token) is tuple and token and token[0] == "n":
        import numpy as np

        return np.frombuffer(token[2], token[1])[0].item()
    if type(token) is tuple and len(token) == 2 and token[0] == TYPED:
        return _typed_text(token[1])
    if type(token) is tuple and token and token[0] == "v" and type(token[-1]) is tuple:
        return plain_text(" ".join(map(str, token[-1])))
    if type(token) is tuple and token and token[0] in ("~", "s"):
        return plain_text(str(token[-1]))
    return None


def _typed_text(form: Any) -> Any:
    try:
        return plain_text(str(value_of_form(form)))
    except NotTyped:
        return None


# --- random generators ------------------------------------------------------------------------------------------------


def generator_states(state: GraphState, token: Any) -> dict[str, Any]:
    """Returns the states of the global generators by name: `random`, `np.random`, `torch`."""
    node = state.nodes.get(token[0]) if _is_node(token) else None
    content = node.content if node is not None else None
    if type(content) is not tuple or len(content) != 2:
        return {}
    try:
        states = value_of_form(content[1]) if content[0] == TYPED else load_plain_pickle(content[1])
    except NotTyped:
        return {"the global random generators": content[1]}
    names = {"python": "random's generator", "numpy": "np.random's generator", "torch": "torch's generator"}
    return {names.get(name, f"{name}'s generator"): one for name, one in states.items()}
