"""Tokens: how the content of one object refers to plain values, to other objects of the graph, and to code by name.

A token is a plain value itself, or a tuple whose first item says what it is. Tokens hold no addresses and no live
objects, so that they can be hashed, compared between processes, and written by another thread.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

Token = Any
PLAIN_TYPES = frozenset({type(None), bool, int, float, complex, bytes, type(...)})

NODE = 1  # the length of a token that refers to a node: (way,)
FOLDER = "~"  # a text that begins with the working folder: ("~", rest)
TUPLE = "t"  # ("t", *tokens)
NAMED_TUPLE = "nt"  # ("nt", class, *tokens): a subclass of tuple without attributes
FROZEN_SET = "fs"  # ("fs", *tokens)
BY_NAME = "g"  # ("g", module, qualified name): a function, class or module that another process has too
METHOD = "m"  # ("m", function, object): a bound method
BUILTIN_METHOD = "b"  # ("b", object, name): a method of a builtin type
TYPED = "d"  # ("d", form): an immutable value of a known type, such as a date, see `typed_values`
VALUE = "v"  # ("v", pickle): an immutable value of any other type, which needs trust to be read
SCALAR = "n"  # ("n", dtype, bytes): a numpy scalar
WEAK = "w"  # ("w", object or None): a weak reference
PROXY = "proxy"  # ("v", "proxy", dict): a read-only view of a dict
LOCK, REENTRANT_LOCK = "lock", "RLock"  # names of types that are left out, and can be made again
UNSEEN = "?"  # ("?", type name): an object that is left out on purpose
IDENTITY = "id"  # ("id", object): the number that `id` gives, as a key
TEXT_TYPE = "s"  # ("s", class, text): a subclass of str


def is_node(token: Token) -> bool:
    return type(token) is tuple and len(token) == NODE and type(token[0]) is int


def nodes_in(token: Token) -> list[int]:
    """Returns the ways of all nodes that a token, or a tuple of tokens, refers to."""
    if type(token) is not tuple:
        return []
    if len(token) == NODE and type(token[0]) is int:
        return [token[0]]
    return [way for inner in token for way in nodes_in(inner)]


def value_token(value: Any) -> Token:
    """Returns the token of a value without identity: its typed form, or a pickle for types that have none."""
    from relive.checkpoint.plain import NotTyped, typed_form

    try:
        return (TYPED, typed_form(value))
    except NotTyped:
        return (VALUE, pickle.dumps(value, 4))


def find_by_name(module: str, name: str) -> Any:
    """Returns a function, class or module by its name; raises LookupError if this process has none."""
    found: Any = sys.modules.get(module)
    if found is None:
        raise LookupError(f"the module {module} is not loaded")
    for part in name.split(".") if name else ():
        found = vars(found).get(part, LookupError) if isinstance(found, type) else getattr(found, part, LookupError)
        if isinstance(found, staticmethod | classmethod):
            found = found.__func__
        if found is LookupError:
            raise LookupError(f"{module} has no {name}")
    return found
