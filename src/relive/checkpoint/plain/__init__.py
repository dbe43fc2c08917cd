"""Values as plain data: typed forms in place of pickles, and readers of stored bytes that run no code."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.checkpoint.plain.marshal_reader import read_marshalled
    from relive.checkpoint.plain.plain_pickles import load_plain_pickle
    from relive.checkpoint.plain.typed_values import NotTyped, typed_form, value_of_form

__getattr__ = lazy_names(__name__)
