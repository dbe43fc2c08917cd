"""An insertion leaves every other character unchanged, in any file."""

from __future__ import annotations

import pytest

from relive.transplant import transplant

NEW = "import lib\n\n\ndef f(a):\n    b = lib.g(a)\n    log('b', b)\n    return b\n"
DEEP = "".join(" " * depth + "if x:\n" for depth in range(1500))


def carry(old: str, new: str, line: int) -> str:
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", line)])
    assert result.refusals == ()
    return result.files["a.py"]


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ("import lib\ndef f(a):\n    b = lib.g(a)\n    return b\n", "{before}    log('b', b)\n{after}"),
        ("import lib\r\ndef f(a):\r\n    b = lib.g(a)\r\n    return b\r\n", "{before}    log('b', b)\r\n{after}"),
        ("import lib\rdef f(a):\r    b = lib.g(a)\r    return b\r", "{before}    log('b', b)\r{after}"),
        ("import lib\ndef f(a):\n\tb = lib.g(a)\n\treturn b\n", "{before}\tlog('b', b)\n{after}"),
        ("\ufeffimport lib\ndef f(a):\n  b = lib.g(a)\n  return b", "{before}  log('b', b)\n{after}"),
        ("import lib\n\x0cdef f(a):\n    b = lib.g(a)  # note\n    return b\n", "{before}    log('b', b)\n{after}"),
        ("import lib\ndef f(a): b = lib.g(a); return b\n", None),
        ("import lib\ndef f(a):\n    b = lib.g(a); return b\n", None),
    ],
)
def test_line_ends_tabs_byte_order_marks_and_suites_stay(old: str, expected: str | None):
    patched = carry(old, NEW, 6)

    if expected is None:
        assert patched == old.replace("; return b", "; log('b', b); return b")
    else:
        cut = old.index("return b") - (
            len(old[: old.index("return b")]) - len(old[: old.index("return b")].rstrip(" \t"))
        )
        assert patched == expected.format(before=old[:cut], after=old[cut:])


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_missing_newline_at_the_end_stays_missing(ending: str):
    old = f"def f(a):{ending or chr(10)}    b = g(a){ending}"
    patched = carry(old, "def f(a):\n    b = g(a)\n    log('b', b)\n", 3)

    newline = ending or "\n"
    assert patched == (f"{old}    log('b', b){newline}" if ending else f"{old}{newline}    log('b', b)")


def test_a_block_is_not_inserted_into_a_one_line_suite():
    old = "import lib\ndef f(a): b = lib.g(a); return b\n"
    new = NEW.replace("    log('b', b)\n", "    if b:\n        log('b', b)\n        log('c', b)\n")
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 6)])

    for text in result.files.values():
        compile(text, "a.py", "exec")


def test_the_first_lines_of_a_file_stay_first():
    first = '#!/usr/bin/env python\n# -*- coding: latin-1 -*-\n"""What it does."""\n'
    old = f"{first}from __future__ import annotations\nx = 1\n"
    patched = carry(old, "import os\nlog('os', os)\nx = 1\n", 2)

    assert patched.splitlines()[:4] == old.splitlines()[:4]
    assert patched.splitlines()[4:] == ["import os", "log('os', os)", "x = 1"]


def test_lines_that_a_comment_describes_stay_together():
    old = "a = 1\n\n# the second\nb = 2\nc = 3\n"
    new = "a = 1\nlog('a', a)\n\n# the second\nb = 2\nc = 3\n"

    assert carry(old, new, 2) == new


def test_python_2_is_patched_as_text_with_low_confidence():
    old = 'import os\nfor i in range(3):\n\tprint "x", i\n\tif i > 1: print i; continue\n'
    new = 'import os\nfor i in range(3):\n\tprint "x", i\n\tlog("i", i)\n\tif i > 1: print i; continue\n'
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 4)])

    assert result.files == {"a.py": new}
    assert result.landings[0].confidence == "low"


@pytest.mark.parametrize(
    "garbage", ["", "\n", "((((", '"""', "'", "\\", "if", "  x\n y\n", "\x00", "else:\n  x", "@", "@x", "case 1:", DEEP]
)
def test_any_text_can_be_patched(garbage: str):
    for old, new in ((garbage, NEW), (NEW, garbage), (garbage, garbage)):
        transplant({"a.py": old}, {"a.py": new}, [("a.py", 1), ("a.py", 6), ("b.py", 1)])
