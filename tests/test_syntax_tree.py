"""Parsing gives a tree whatever else is parsed meanwhile."""

from __future__ import annotations

import ast
import gc

import pytest

from relive import syntax_tree

SOURCE = "x = [" + ",".join(f"(a + {number}) * f(b)" for number in range(2_000)) + "]\n"


def test_what_is_parsed_meanwhile_at_another_depth_is_no_error() -> None:
    """Another thread may do so while Python collects garbage; here it is what collects it."""
    parsed = []

    def parse_deeper(phase: str, info: object, depth: int = 30) -> None:
        if depth:
            parse_deeper(phase, info, depth - 1)
        elif not parsed:
            parsed.append(ast.parse("1"))

    before = gc.get_threshold()
    gc.set_threshold(100)
    gc.callbacks.append(parse_deeper)
    try:
        tree = syntax_tree.parse(SOURCE)
    finally:
        gc.callbacks.remove(parse_deeper)
        gc.set_threshold(*before)

    assert parsed
    assert ast.dump(tree) == ast.dump(ast.parse(SOURCE))


def test_other_errors_of_the_parser_are_raised() -> None:
    with pytest.raises(SyntaxError, match=r"train\.py"):
        syntax_tree.parse("x = = 1", "train.py")
