"""Which edits of code make a call a new one, and which don't."""

from __future__ import annotations

import importlib.util
import itertools
import json
import linecache
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from relive.errors import Unstable
from relive.memo import Keys
from relive.memo.code import trace
from relive.memo.code.code_hash import code_hash

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Write the module `steps` and load it, as a new process would."""
    times = itertools.count(1)
    monkeypatch.syspath_prepend(tmp_path)

    def load(text: str) -> ModuleType:
        path = tmp_path / "steps.py"
        path.write_text(textwrap.dedent(text))
        os.utime(path, (1, next(times)))  # linecache goes by the time of a file
        spec = importlib.util.spec_from_file_location("steps", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["steps"] = module
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        spec.loader.exec_module(module)
        sys.dont_write_bytecode = before
        return module

    yield load
    sys.modules.pop("steps", None)


def code(module: ModuleType, name: str = "f") -> str:
    return Keys(getattr(module, name)).code()


BASE = """
    import math
    SIZE = 3
    LIMITS = {"low": 1}

    def deepest(x):
        return x + 1

    def helper(x):
        return deepest(x) * SIZE

    class Scaler:
        factor = 2
        def scale(self, x):
            return x * self.factor

    def f(x, y=1):
        if x > 0 and y > 0:
            return helper(x) + Scaler().scale(y) + LIMITS["low"] + math.sin(x)
        return [deepest(i) for i in range(x)]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + 1", "x + 2"),
        ("SIZE = 3", "SIZE = 4"),
        ("SIZE = 3", "SIZE = 3.0"),
        ('"low": 1', '"low": 2'),
        ("factor = 2", "factor = 3"),
        ("x * self.factor", "x + self.factor"),
        ("math.sin", "math.cos"),
        ("y > 0", "y >= 0"),
        ("def deepest(x):", "def deepest(x, z=1):"),
        ("import math", "import cmath as math"),
        ("range(x)", "range(x, 9)"),
    ],
)
def test_an_edit_anywhere_below_is_new_code(load: Load, old: str, new: str):
    assert old in BASE
    before = code(load(BASE))

    assert code(load(BASE.replace(old, new))) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return deepest(x) * SIZE", "return (deepest(x)   # a comment\n                * SIZE)"),
        ("if x > 0 and y > 0:", "if (\n            x > 0\n            and y > 0\n        ):"),
        ("def f(x, y=1):", 'def f(x, y=1):\n        """What it does."""'),
        ("def helper(x):", "\n\n\n    def helper(x):  # moved"),
        ("class Scaler:", 'class Scaler:\n        """Scales."""'),
        ("def f(x, y=1):", "UNUSED = 5\n\n    def f(x, y=1):"),
        ("y=1", "y=2"),  # a default of the function itself is among its arguments
    ],
)
def test_layout_comments_and_docstrings_are_no_new_code(load: Load, old: str, new: str):
    assert old in BASE
    before = code(load(BASE))

    assert code(load(BASE.replace(old, new))) == before


def test_a_docstring_that_is_used_counts(load: Load):
    first = load('def f():\n    "a"\n    return f.__doc__, "a"\n')
    before = code(first)

    assert code(load('def f():\n    "b"\n    return f.__doc__, "b"\n')) != before


def test_bytecode_alone_gives_the_same_answers(load: Load, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(linecache, "getlines", lambda *_: [])
    before = code(load(BASE))
    laid_out = BASE.replace("return deepest(x) * SIZE", "return (deepest(x)\n                * SIZE)")

    assert code(load(laid_out)) == before
    assert code(load(BASE.replace("x + 1", "x + 2"))) != before
    assert code_hash(load('def f():\n    "a"\n    return "a"').f.__code__) != code_hash(
        load('def f():\n    "b"\n    return "b"').f.__code__
    )


def test_the_running_code_counts_and_not_the_edited_file(load: Load, tmp_path: Path):
    module = load(BASE)
    (tmp_path / "steps.py").write_text(textwrap.dedent(BASE.replace("x + 1", "x + 2")))
    edited_after_loading = code(module)

    assert code(load(BASE.replace("x + 1", "x + 2"))) != edited_after_loading


def test_a_helper_that_is_redefined_is_seen_at_once(load: Load):
    module = load(BASE)
    keys = Keys(module.f)
    before = keys.code()
    assert keys.code() == before
    exec("def deepest(x):\n    return x - 1\n", vars(module))
    redefined = keys.code()
    vars(module)["LIMITS"]["low"] = 7
    changed_in_place = keys.code()
    module.Scaler.scale = lambda self, x: 0

    assert len({before, redefined, changed_in_place, keys.code()}) == 4


def test_code_that_is_patched_in_place_is_seen(load: Load):
    module = load(BASE)
    keys = Keys(module.f)
    before = keys.code()
    module.deepest.__code__ = (lambda x: x - 5).__code__  # what reloaders of notebooks do

    assert keys.code() != before


def test_a_name_that_is_defined_later_is_seen(load: Load):
    module = load("def f(x):\n    return len(later(x))\n")
    keys = Keys(module.f)
    before = keys.code()
    module.later = str.upper
    with_later = keys.code()
    module.len = lambda x: 0

    assert len({before, with_later, keys.code()}) == 3


def test_functions_that_call_each_other_have_a_hash(load: Load):
    text = "def f(x):\n    return g(x)\ndef g(x):\n    return f(x) + {}\n"

    assert code(load(text.format(1))) == code(load(text.format(1)))
    assert code(load(text.format(1))) != code(load(text.format(2)))


def test_two_lambdas_that_change_places_are_new_code(load: Load):
    text = "a = lambda x: x + {}\nb = lambda x: x + {}\ndef f(x):\n    return a(x) - b(x)\n"

    assert code(load(text.format(1, 2))) != code(load(text.format(2, 1)))


def test_a_registry_counts_by_the_code_in_it(load: Load):
    text = "def one(x):\n    return {}\nSTEPS = {{'one': one}}\ndef f(name, x):\n    return STEPS[name](x)\n"
    module = load(text.format("x"))
    keys = Keys(module.f)
    before = keys.code()

    assert keys.code() == before
    assert code(load(text.format("x + 1"))) != before


def test_what_a_decorator_wraps_counts(load: Load):
    text = """
        import functools, contextlib
        def twice(g):
            @functools.wraps(g)
            def run(x):
                return 2 * g(x)
            return run
        @functools.lru_cache
        def cached(x):
            return x + {0}
        @contextlib.contextmanager
        def around(x):
            yield x + {1}
        @twice
        def inner(x):
            return x + {2}
        def f(x):
            with around(x):
                return cached(x) + inner(x)
    """
    seen = {code(load(text.format(*numbers))) for numbers in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]}

    assert len(seen) == 4


def test_closures_and_defaults_of_helpers_count(load: Load):
    text = """
        def make(n):
            def add(x, y=[{0}]):
                return x + n + y[0]
            return add
        add = make({1})
        def f(x):
            return add(x)
    """

    assert len({code(load(text.format(*numbers))) for numbers in [(0, 0), (1, 0), (0, 1)]}) == 3


def test_a_base_class_and_a_dataclass_field_count(load: Load):
    text = """
        import dataclasses
        class Base:
            def size(self):
                return {0}
        @dataclasses.dataclass
        class Config(Base):
            lr: float = {1}
        def f():
            return Config().size()
    """

    assert len({code(load(text.format(*numbers))) for numbers in [(0, 0.1), (1, 0.1), (0, 0.2)]}) == 3


def test_modules_of_the_project_count_by_what_is_used_of_them(load: Load, tmp_path: Path):
    def used(text: str) -> str:
        sys.modules.pop("parts", None)
        importlib.invalidate_caches()
        (tmp_path / "parts.py").write_text(text)
        return code(load("import parts\ndef f(x):\n    return parts.clean(x)\n"))

    before = used("def clean(x):\n    return x\n")

    assert used("def clean(x):\n    return x\ndef other(): pass\n") == before
    assert used("def clean(x):\n    return -x\n") != before


def test_a_module_that_is_imported_when_it_runs_counts_before_it_is_loaded(load: Load, tmp_path: Path):
    (tmp_path / "inner.py").write_text("WEIGHT = 2\n")
    (tmp_path / "late.py").write_text("from inner import WEIGHT\ndef weigh(x):\n    return WEIGHT * x\n")
    text = "def f(x):\n    from late import weigh\n    return weigh(x)\n"
    module = load(text)
    keys = Keys(module.f)
    before = keys.code()
    module.f(1)
    after_the_call = keys.code()
    (tmp_path / "inner.py").write_text("WEIGHT = 30\n")

    assert after_the_call == before
    assert keys.code() != before
    for name in ("late", "inner"):
        sys.modules.pop(name, None)


def test_a_global_without_a_stable_hash_is_named_in_the_error(load: Load):
    module = load("def make():\n    yield\nSTREAM = make()\ndef f():\n    return next(STREAM)\n")

    with pytest.raises(Unstable, match=r"the global steps\.STREAM"):
        code(module)


def test_a_method_at_the_address_of_the_one_it_replaces_is_another(load: Load):
    """Of a method that is replaced nothing may be left but its address, which the new one may get."""
    module = load("import json\ndef f():\n    return json.JSONEncoder().encode(1)\n")
    before, keys = json.JSONEncoder.encode, Keys(module.f)
    try:
        json.JSONEncoder.encode = FunctionType(before.__code__, before.__globals__)  # a library's, as far as one sees
        address, first = id(json.JSONEncoder.encode), keys.code()
        json.JSONEncoder.encode = None
        made = []
        while not made or (id(made[-1]) != address and len(made) < 1000):
            made.append(lambda self, o: "second")
        json.JSONEncoder.encode = made[-1]

        assert keys.code() != first
    finally:
        json.JSONEncoder.encode = before


def test_locks_and_loggers_do_not_count(load: Load):
    text = """
        import logging, threading, sys
        LOG = logging.getLogger({0!r})
        LOCK = threading.Lock()
        def f(x):
            with LOCK:
                LOG.info(x)
                print(x, file=sys.stderr)
    """

    assert code(load(text.format("a"))) == code(load(text.format("b")))


def test_the_hash_is_the_same_in_every_process(load: Load, script: Any):
    module = load(BASE)
    done = script(
        f"""
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("steps", {module.__file__!r})
        module = importlib.util.module_from_spec(spec)
        sys.modules["steps"] = module
        spec.loader.exec_module(module)
        from relive.memo import Keys
        print(Keys(module.f).code())
        """
    )

    assert done.stdout.strip() == code(module)


CHANGES = {
    "calls.append(x)": "calls = []",
    "seen[x] = 1": "seen = {}",
    "seen[(x, len(str(x)))] += 1": "import collections\nseen = collections.Counter()",
    "stats['n']['deep'] += 1": "stats = {'n': {'deep': 0}}",
    "stats['all'].append(x)": "stats = {'all': []}",
    "global count\n    count += 1": "count = 0",
    "Totals.n += 1": "class Totals:\n    n = 0",
    "space.n += 1": "import types\nspace = types.SimpleNamespace(n=0)",
}


@pytest.mark.parametrize("statement", CHANGES)
def test_what_the_function_changes_is_no_input(load: Load, statement: str):
    text = f"SIZE = 0\n{CHANGES[statement]}\ndef f(x):\n    {statement}\n    return x + SIZE\n"
    module = load(text)
    keys = Keys(module.f)
    before = keys.code()
    for _ in range(3):
        module.f(1)

    assert keys.code() == before
    assert code(module) == before
    assert code(load(text.replace("SIZE = 0", "SIZE = 1"))) != before


def test_what_the_function_reads_and_changes_is_state(load: Load):
    module = load("state = [0]\ndef f(x):\n    state[0] += 1\n    return sum(state)\n")
    snapshot = trace(module.f)

    assert [root.label for root in snapshot.states] == ["steps.f.state"]
    assert snapshot.states[0].read() is module.state


def test_what_a_closure_counts_is_no_input():
    calls: list[int] = []
    count = 0

    def f(x: int) -> int:
        nonlocal count
        calls.append(x)
        count += 1
        return x

    keys = Keys(f)
    before = keys.code()
    f(1)

    assert keys.code() == before
