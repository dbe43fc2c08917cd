"""Graphs of format 2, which pickled values of known types: they get the typed forms that walks give them now."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relive.checkpoint.graph import TYPED, VALUE, GraphState, StoredNode, content_digest
from relive.checkpoint.plain import load_plain_pickle, typed_form

_FUNCTION = "builtins.function"  # of whose content the code, which comes last, is not hashed


def with_typed_values(state: GraphState, *, is_trusted: bool) -> GraphState:
    """Returns the graph with typed forms in place of pickles, and digests that can be compared with those of a walk."""
    load = pickle.loads if is_trusted else load_plain_pickle
    for way, node in list(state.nodes.items()):
        content = _typed(node.content, load)
        if content is not node.content:
            hashed = content[:-1] if node.kind == _FUNCTION else content
            state.nodes[way] = StoredNode(
                way, node.parent, node.label, node.kind, content, content_digest(node.kind, hashed)
            )
    return replace(state, roots={key: _typed(token, load) for key, token in state.roots.items()})


def _typed(token: Any, load: Callable[[bytes], Any]) -> Any:
    """Returns a token with typed forms; itself if there are none in it."""
    if type(token) is not tuple:
        return token
    if len(token) == 2 and token[0] == VALUE and type(token[1]) is bytes:
        try:
            return (TYPED, typed_form(load(token[1])))
        except Exception:  # noqa: BLE001 - of another type, or of a class that is not here: it stays a pickle
            return token
    parts = tuple(_typed(part, load) for part in token)
    return parts if any(new is not old for new, old in zip(parts, token, strict=True)) else token
