"""Log statements are found by the names that they log."""

from __future__ import annotations

import pytest

from relive.transplant import LogStatement, find_log_statements


@pytest.mark.parametrize(
    "text",
    [
        "import relive\nrelive.log('loss', 1)\n",
        "import relive as r\nx = r.log('loss', 1)\n",
        "from relive import log\nlog(\n    'loss',\n    1,\n)\n",
        "from relive import log as note\nif note('loss', 1) > 2: pass\n",
        "import relive\nrelive.log(name='loss', value=1)\n",
    ],
)
def test_a_log_call_is_found_under_any_alias(text: str):
    assert find_log_statements({}, {"a.py": text}, ["loss"]) == [LogStatement("a.py", 2, "loss", in_old=False)]


@pytest.mark.parametrize(
    "text",
    [
        "import relive\nrelive.log('loss2', 1)\n",
        "import other as relive_\nrelive_.log('loss', 1)\n# relive\n",
        "log('loss', 1)  # not of relive\n",
        "import relive\nrelive.arg('loss', 1)\n",
    ],
)
def test_other_calls_are_ignored(text: str):
    assert find_log_statements({}, {"a.py": text}, ["loss"]) == []


def test_an_f_string_counts_if_it_can_become_the_name():
    text = "import relive\nrelive.log(f'acc/{k}', 1)\nrelive.log(f'{k}', 2)\n"
    found = find_log_statements({}, {"a.py": text}, ["acc/3"])

    assert [(each.line, each.name) for each in found] == [(2, "acc/3"), (3, "acc/3")]


def test_each_statement_says_whether_the_old_version_has_it():
    old = "import relive\ndef train(x):\n    y = x\n    relive.log('loss', y)\ndef test(x):\n    z = x\n"
    new = old + "    relive.log('loss', z)\n"
    found = find_log_statements({"a.py": old}, {"a.py": new}, ["loss"])

    assert [(each.line, each.in_old) for each in found] == [(4, True), (7, False)]
