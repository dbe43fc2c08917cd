"""Source to syntax tree, in threads too: what `ast.parse` gives, without an error of some versions of Python."""

from __future__ import annotations

import ast


def parse(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """As `ast.parse`. That of Python 3.11 counts the depth of all threads together, and may say so when it is done.

    Nothing is wrong with the source then (https://github.com/python/cpython/issues/106905), so it is parsed once more.
    """
    while True:
        try:
            return ast.parse(source, filename)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
