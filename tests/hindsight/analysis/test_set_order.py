"""The order of a set counts only where an expression shows it."""

from __future__ import annotations

import ast

import pytest

from relive.hindsight.analysis.depth import AddedStatement
from relive.hindsight.analysis.reads import CodeFacts
from relive.hindsight.analysis.reads.set_order import depends_on_set_order, names_of_sets

SOURCE = """
words = {"a", "b"}
tokens: set[str] = read()
both = words | tokens
class Vocabulary:
    def __init__(self, seen: frozenset[str]):
        self.kept = set()
        self.size = len(seen)
numbers = [1, 2]
known = set(range(8))
"""
SETS = names_of_sets(ast.walk(ast.parse(SOURCE)))


def test_the_names_of_sets_are_found():
    assert {"words", "tokens", "both", "seen", "kept"} == SETS


@pytest.mark.parametrize(
    "text",
    [
        "words", "list(words)", "next(iter(words))", "tokens.pop()", "','.join(both)", "[w for w in words]",
        "vocabulary.kept", "str(words)", "f'{words}'", "list(set(numbers))", "{n for n in numbers}",
        "tuple(words - both)", "list(words.union(numbers))[0]", "sorted(enumerate(words))", "dict.fromkeys(words)",
        "len(str(words))",
    ],
)  # fmt: skip
def test_it_depends_on_the_order(text):
    assert depends_on_set_order(ast.parse(text, mode="eval").body, SETS)


@pytest.mark.parametrize(
    "text",
    [
        "len(words)", "sorted(words)", "sorted(w for w in words)", "'a' in words", "words == tokens",
        "max(words | both)", "any(w > 'a' for w in words)", "numbers", "[n for n in numbers if n in words]",
        "len(words.union(tokens))",
        "words.issubset(both)", "list({3, 1, 2})", "list(set(range(9)))", "known.pop()",
        "sorted(set(numbers))[0]", "vocabulary.size", "len({n % 2 for n in numbers})",
    ],
)  # fmt: skip
def test_it_does_not(text):
    assert not depends_on_set_order(ast.parse(text, mode="eval").body, SETS)


def facts(statement: str, *, has_hash_seed: bool) -> CodeFacts:
    text = f"words = {{'a', 'b'}}\n{statement}\n"
    added = [AddedStatement("train.py", 2, "x")]
    return CodeFacts({"train.py": text}.get, "train.py", added=added, has_hash_seed=has_hash_seed)


@pytest.mark.parametrize("statement", ['relive.log("x", list(words))', "relive.log(NAME, list(words))"])
def test_values_that_show_the_order_are_doubtful_unless_the_hash_seed_is_known(statement):
    assert "order of a set" in (facts(statement, has_hash_seed=False).volatile_source("x") or "")
    assert facts(statement, has_hash_seed=True).volatile_source("x") is None


def test_recorded_values_that_show_the_order_prove_nothing():
    assert facts('relive.log("x", list(words))', has_hash_seed=False).is_volatile("x")
    assert not facts('relive.log("x", len(words))', has_hash_seed=False).is_volatile("x")
