"""A statement given as text is put into a copy of the files, as its author would have."""

from __future__ import annotations

import pytest

from relive.errors import ReliveError
from relive.hindsight.analysis import InsertedStatement, insert_statement, logged_names

FILES = {"train.py": "import relive\nfor i in range(3):\n    x = i\n    y = x\n", "plain.py": "x = 1\r\ny = 2"}


def test_it_is_indented_like_the_line_that_follows():
    new = insert_statement(FILES, InsertedStatement('  relive.log("x",\n      x)', "train.py", 4))

    begin = "import relive\nfor i in range(3):\n    x = i\n"
    assert new["train.py"] == begin + '    relive.log("x",\n        x)\n    y = x\n'
    assert new["plain.py"] == FILES["plain.py"]


def test_at_the_end_and_with_the_line_ends_of_the_file():
    assert (
        insert_statement(FILES, InsertedStatement("print(y)", "plain.py", 3))["plain.py"]
        == "x = 1\r\ny = 2\nprint(y)\n"
    )
    assert (
        insert_statement(FILES, InsertedStatement("print(x)", "plain.py", 1))["plain.py"]
        == "print(x)\r\nx = 1\r\ny = 2"
    )


def test_a_missing_import_comes_along():
    new = insert_statement(FILES, InsertedStatement('relive.log("x", x)', "plain.py", 2))

    assert new["plain.py"] == 'x = 1\r\nimport relive\nrelive.log("x", x)\ny = 2'


@pytest.mark.parametrize(
    "wrong",
    [
        InsertedStatement("if x:", "train.py", 3),
        InsertedStatement(" ", "train.py", 3),
        InsertedStatement("x", "train.py", 9),
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(ReliveError, match=r"choose|give"):
        insert_statement(FILES, wrong)


def test_names_are_read_from_the_statement():
    assert logged_names('g = f()\nrelive.log("a", g); log("b", 1)\nother("c")') == ("a", "b")
    assert logged_names("x = 1") == ()
    with pytest.raises(ReliveError, match="no Python statement"):
        logged_names("relive.log(")
