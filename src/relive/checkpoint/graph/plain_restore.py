"""Restores a recorded graph that is not trusted: as data only, whatever its author has written into it.

Nothing is unpickled, imported or called by a name in the checkpoint. Live objects get numbers, texts, tensors, arrays
and containers of these; functions and classes stay what they are here, and must be what the checkpoint names.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from relive.checkpoint.graph import object_tokens as tokens
from relive.checkpoint.graph.graph_state import StoredNode
from relive.checkpoint.graph.object_tokens import Token, find_by_name
from relive.checkpoint.graph.registry import MISSING, Handler, NeedsTrust
from relive.checkpoint.graph.restore import GraphRestore
from relive.checkpoint.plain import NotTyped, load_plain_pickle, read_marshalled

_DATA_TOKENS = frozenset({
    tokens.FOLDER, tokens.TUPLE, tokens.SCALAR, tokens.TYPED, tokens.FROZEN_SET, tokens.WEAK, tokens.IDENTITY,
    tokens.UNSEEN,
})  # fmt: skip
_CODE_TOKENS = frozenset({tokens.BY_NAME, tokens.METHOD, tokens.BUILTIN_METHOD})
_DATA_CLASSES = frozenset("bool bytearray bytes complex dict float frozenset int list set str tuple".split())
# Objects of these kinds are made anew. Others exist here already, or need trust: even an object that is only deleted
# again runs code of its class.
_MADE_KINDS = frozenset({
    "builtins.list", "builtins.dict", "builtins.set", "builtins.bytearray", "collections.OrderedDict",
    "collections.deque", "collections.defaultdict", "array.array", "numpy.ndarray", "torch.Tensor",
    "torch.nn.parameter.Parameter", "torch.storage.UntypedStorage", "random.Random", "torch._C.Generator",
    "numpy.random._generator.Generator", "numpy.random.mtrand.RandomState", "numpy.random.bit_generator.SeedSequence",
    "numpy.random._pcg64.PCG64", "numpy.random._pcg64.PCG64DXSM", "numpy.random._mt19937.MT19937",
    "numpy.random._philox.Philox", "numpy.random._sfc64.SFC64",
})  # fmt: skip


class PlainRestore(GraphRestore):
    """A restore that runs no code of the checkpoint's author; `refused` names what it has left out."""

    def __init__(self, *args: Any) -> None:
        self.refused: list[str] = []
        super().__init__(*args)

    def value(self, token: Token) -> Any:
        if type(token) is not tuple or (len(token) == tokens.NODE and type(token[0]) is int):
            return super().value(token)
        tag = token[0]
        if tag in _DATA_TOKENS or (tag == tokens.VALUE and len(token) == 3):
            return super().value(token)
        if tag == tokens.VALUE and len(token) == 2:
            try:
                return load_plain_pickle(token[1])
            except NotTyped as error:
                raise self._refusal(f"a pickle with {error}") from error
        if tag == tokens.BY_NAME and token[1] == "builtins" and token[2] in _DATA_CLASSES:
            return super().value(token)
        raise self._refusal(_words(token))

    def value_or(self, token: Token, current: Any) -> Any:
        return current if _is_code(token, current) else super().value_or(token, current)

    def find_class(self, name: str) -> Any:
        if name not in _MADE_KINDS and all(node.kind != name for node in self._live.nodes.values()):
            raise self._refusal(f"the class {name}")
        return super().find_class(name)

    def unmarshal(self, data: bytes) -> Any:
        return read_marshalled(data)

    def _make(self, node: StoredNode, handler: Handler) -> Any:
        if not handler.is_data or node.kind not in _MADE_KINDS or _is_unchecked(node):
            raise self._refusal(f"{self._state.name(node.way)}, a {node.kind}")
        return super()._make(node, handler)

    def _refill(self, obj: Any, node: StoredNode, handler: Handler) -> None:
        if not handler.is_data or _is_unchecked(node):
            raise self._refusal(f"{self._state.name(node.way)}, a {node.kind}")
        super()._refill(obj, node, handler)

    def _refusal(self, what: str) -> NeedsTrust:
        self.refused.append(what)
        return NeedsTrust(what)


def _is_unchecked(node: StoredNode) -> bool:
    """Torch does not check the indices of sparse tensors, and reads whatever they lead to."""
    return type(node.content) is tuple and node.content[:1] == ("sparse",)


def _is_code(token: Token, current: Any) -> bool:
    """Whether a token names the function, class, module or method that stands there already."""
    if type(token) is not tuple or len(token) != 3 or token[0] not in _CODE_TOKENS or current is MISSING:
        return False
    if token[0] == tokens.BY_NAME:
        try:
            return find_by_name(token[1], token[2]) is current
        except (LookupError, AttributeError, TypeError):
            return False
    return isinstance(current, MethodType) if token[0] == tokens.METHOD else callable(current)


def _words(token: Token) -> str:
    named = ".".join(part for part in token[1:] if type(part) is str and part)
    return f"code: {named}" if named else "code"
