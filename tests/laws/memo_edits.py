"""Edits of source between two processes: each module has a function `f`, whose result the edit changes."""

# ruff: noqa: E501 - a module on one line is easier to compare with its neighbours
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# name: (source before, text replaced, replacement); the module is `steps_<number>`, its companion `parts_<number>`
EDITS: dict[str, tuple[str, str, str]] = {
    "body": ("def f(x):\n    return x + 1\n", "x + 1", "x + 2"),
    "helper": ("def h(x):\n    return x + 1\ndef f(x):\n    return h(x)\n", "x + 1", "x + 2"),
    "constant": ("K = 1\ndef f(x):\n    return x + K\n", "K = 1", "K = 2"),
    "default of a helper": ("def h(x, y=1):\n    return x + y\ndef f(x):\n    return h(x)\n", "y=1", "y=2"),
    "default": ("def f(x, y=1):\n    return x + y\n", "y=1", "y=2"),
    "metaclass method": (
        "class M(type):\n    def go(cls):\n        return 1\nclass C(metaclass=M):\n    pass\ndef f(x):\n    return C.go()\n",
        "return 1", "return 2",
    ),
    "metaclass that adds": (
        "class M(type):\n    def __new__(m, n, b, d):\n        d['v'] = 1\n        return super().__new__(m, n, b, d)\n"
        "class C(metaclass=M):\n    pass\ndef f(x):\n    return C.v\n", "= 1", "= 2",
    ),
    "class decorator": (
        "def deco(c):\n    c.v = 1\n    return c\n@deco\nclass C:\n    pass\ndef f(x):\n    return C.v\n", "= 1", "= 2",
    ),
    "decorator": (
        "import functools\ndef deco(g):\n    @functools.wraps(g)\n    def run(x):\n        return g(x) + 1\n    return run\n"
        "@deco\ndef h(x):\n    return x\ndef f(x):\n    return h(x)\n", "+ 1", "+ 2",
    ),
    "decorator without wraps": (
        "def deco(g):\n    def run(x):\n        return g(x) + 1\n    return run\n@deco\ndef h(x):\n    return x\n"
        "def f(x):\n    return h(x)\n", "+ 1", "+ 2",
    ),
    "decorator class": (
        "class deco:\n    def __init__(self, g):\n        self.g = g\n    def __call__(self, x):\n        return self.g(x) + 1\n"
        "@deco\ndef h(x):\n    return x\ndef f(x):\n    return h(x)\n", "+ 1", "+ 2",
    ),
    "decorator with arguments": (
        "def deco(n):\n    def make(g):\n        return lambda x: g(x) + n\n    return make\n@deco(1)\ndef h(x):\n    return x\n"
        "def f(x):\n    return h(x)\n", "deco(1)", "deco(2)",
    ),
    "property": (
        "class C:\n    @property\n    def v(self):\n        return 1\ndef f(x):\n    return C().v\n", "return 1", "return 2",
    ),
    "descriptor": (
        "class D:\n    def __get__(self, o, k):\n        return 1\nclass C:\n    v = D()\ndef f(x):\n    return C.v\n",
        "return 1", "return 2",
    ),
    "descriptor argument": (
        "class D:\n    def __init__(self, n):\n        self.n = n\n    def __get__(self, o, k):\n        return self.n\n"
        "class C:\n    v = D(1)\ndef f(x):\n    return C.v\n", "D(1)", "D(2)",
    ),
    "function attribute": ("def h(x):\n    return h.v\nh.v = 1\ndef f(x):\n    return h(x)\n", "h.v = 1", "h.v = 2"),
    "subclass registry": (
        "class B:\n    known = []\n    def __init_subclass__(c):\n        B.known.append(c)\nclass C(B):\n    v = 1\n"
        "def f(x):\n    return [c.v for c in B.known]\n", "v = 1", "v = 2",
    ),
    "new subclass": (
        "class B:\n    known = []\n    def __init_subclass__(c):\n        B.known.append(c)\nclass C(B):\n    v = 1\n#\n"
        "def f(x):\n    return [c.v for c in B.known]\n", "#\n", "class D(B):\n    v = 5\n",
    ),
    "registry decorator": (
        "R = {}\ndef reg(g):\n    R[g.__name__] = g\n    return g\n@reg\ndef one(x):\n    return x + 1\n"
        "def f(x):\n    return [g(x) for g in R.values()]\n", "x + 1", "x + 2",
    ),
    "new registered function": (
        "R = {}\ndef reg(g):\n    R[g.__name__] = g\n    return g\n@reg\ndef one(x):\n    return x + 1\n#\n"
        "def f(x):\n    return [g(x) for g in R.values()]\n", "#\n", "@reg\ndef two(x):\n    return 2\n",
    ),
    "singledispatch": (
        "import functools\n@functools.singledispatch\ndef h(x):\n    return 0\n@h.register\ndef _(x: int):\n    return 1\n"
        "def f(x):\n    return h(x)\n", "return 1", "return 2",
    ),
    "new singledispatch case": (
        "import functools\n@functools.singledispatch\ndef h(x):\n    return 0\n#\ndef f(x):\n    return h(x)\n", "#\n",
        "@h.register\ndef _(x: int):\n    return 1\n",
    ),
    "dataclass default": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    v: int = 1\ndef f(x):\n    return C().v\n", "= 1", "= 2",
    ),
    "dataclass factory": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    v: list = dataclasses.field(default_factory=lambda: [1])\n"
        "def f(x):\n    return C().v\n", "[1]", "[2]",
    ),
    "dataclass type": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    v: int = 1\ndef f(x):\n"
        "    return [str(one.type) for one in dataclasses.fields(C)]\n", "v: int", "v: float",
    ),
    "enum member": ("import enum\nclass E(enum.Enum):\n    A = 1\ndef f(x):\n    return E.A.value\n", "A = 1", "A = 2"),
    "new enum member": ("import enum\nclass E(enum.Enum):\n    A = 1\n    #\ndef f(x):\n    return len(E)\n", "#\n", "B = 2\n"),
    "named tuple default": (
        "import typing\nclass T(typing.NamedTuple):\n    v: int = 1\ndef f(x):\n    return T().v\n", "= 1", "= 2",
    ),
    "annotations that are used": (
        "import typing\nclass C:\n    v: int\ndef f(x):\n    return str(typing.get_type_hints(C))\n", "v: int", "v: float",
    ),
    "annotations of a helper": ("def h(x: int):\n    return x\ndef f(x):\n    return str(h.__annotations__)\n", "x: int", "x: float"),
    "docstring that is used": ('def h():\n    "one"\ndef f(x):\n    return h.__doc__\n', '"one"', '"two"'),
    "docstring of a class": ('class C:\n    "one"\ndef f(x):\n    return C.__doc__\n', '"one"', '"two"'),
    "partial": ("import functools\ndef g(a, b):\n    return a + b\nh = functools.partial(g, 1)\ndef f(x):\n    return h(x)\n", "(g, 1)", "(g, 2)"),
    "closure": ("def make(n):\n    return lambda x: x + n\nh = make(1)\ndef f(x):\n    return h(x)\n", "make(1)", "make(2)"),
    "nested closure": (
        "def make(n):\n    def mid():\n        def inner(x):\n            return x + n\n        return inner\n    return mid()\n"
        "h = make([1][0])\ndef f(x):\n    return h(x)\n", "[1]", "[2]",
    ),
    "nested class": ("class A:\n    class B:\n        v = 1\ndef f(x):\n    return A.B.v\n", "v = 1", "v = 2"),
    "base class": ("class A:\n    def v(self):\n        return 1\nclass B(A):\n    pass\ndef f(x):\n    return B().v()\n", "return 1", "return 2"),
    "order of bases": (
        "class A:\n    v = 1\nclass B:\n    v = 2\nclass C(A, B):\n    pass\ndef f(x):\n    return C.v\n", "C(A, B)", "C(B, A)",
    ),
    "class keyword": (
        "class B:\n    def __init_subclass__(c, n=0):\n        c.n = n\nclass C(B, n=1):\n    pass\ndef f(x):\n    return C.n\n", "n=1", "n=2",
    ),
    "operator method": ("class C:\n    def __add__(self, o):\n        return 1\ndef f(x):\n    return C() + x\n", "return 1", "return 2"),
    "slots": ("class C:\n    __slots__ = ('a',)\ndef f(x):\n    return C.__slots__\n", "('a',)", "('a', 'b')"),
    "method by name": ("class C:\n    def go(self):\n        return 1\ndef f(x):\n    return getattr(C(), 'g' + 'o')()\n", "return 1", "return 2"),
    "global by name": ("V = 1\ndef f(x):\n    return globals()['V']\n", "V = 1", "V = 2"),
    "eval": ("V = 1\ndef f(x):\n    return eval('V')\n", "V = 1", "V = 2"),
    "function in a list": ("H = [lambda x: x + 1]\ndef f(x):\n    return H[0](x)\n", "x + 1", "x + 2"),
    "function in an object": (
        "class C:\n    def __init__(self, g):\n        self.g = g\nV = C(lambda x: x + 1)\ndef f(x):\n    return V.g(x)\n", "x + 1", "x + 2",
    ),
    "method of an object in a list": (
        "class C:\n    def go(self):\n        return 1\nL = [C()]\ndef f(x):\n    return L[0].go()\n", "return 1", "return 2",
    ),
    "comprehension": ("def f(x):\n    return [i + 1 for i in range(x)]\n", "i + 1", "i + 2"),
    "format string": ("def f(x):\n    return f'{x:>4}'\n", ":>4", ":>5"),
    "float constant": ("def f(x):\n    return 0.0\n", "0.0", "-0.0"),
    "type of a constant": ("K = 1\ndef f(x):\n    return K\n", "K = 1", "K = True"),
    "module helper": ("import parts\ndef f(x):\n    return parts.h(x)\n", "parts: return x + 1", "return x + 2"),
    "module constant": ("from parts import K\ndef f(x):\n    return K\n", "parts: K = 1", "K = 2"),
    "star import": ("from parts import *\ndef f(x):\n    return h(x)\n", "parts: return x + 1", "return x + 2"),
    "module imported late": ("def f(x):\n    import parts\n    return parts.h(x)\n", "parts: return x + 1", "return x + 2"),
    "module imported by name": (
        "import importlib\ndef f(x):\n    return importlib.import_module('parts').h(x)\n", "parts: return x + 1", "return x + 2",
    ),
    "module attribute by name": ("import parts\ndef f(x):\n    return getattr(parts, 'h')(x)\n", "parts: return x + 1", "return x + 2"),
    "module-level getattr": ("import parts\ndef f(x):\n    return parts.anything\n", "parts: return 'one'", "return 'two'"),
    "computed constant": ("import parts\nK = parts.h(1)\ndef f(x):\n    return K\n", "parts: return x + 1", "return x + 2"),
    "conditional definition": (
        "import sys\nif sys.version_info > (3,):\n    def h(x):\n        return 1\nelse:\n    def h(x):\n        return 0\ndef f(x):\n    return h(x)\n",
        "return 1", "return 2",
    ),
    "generator": ("def g(x):\n    yield x + 1\ndef f(x):\n    return list(g(x))\n", "x + 1", "x + 2"),
    "context manager": (
        "import contextlib\n@contextlib.contextmanager\ndef c():\n    yield 1\ndef f(x):\n    with c() as v:\n        return v\n", "yield 1", "yield 2",
    ),
    "lru_cache": ("import functools\n@functools.cache\ndef h(x):\n    return x + 1\ndef f(x):\n    return h(x)\n", "x + 1", "x + 2"),
    "cached property": (
        "import functools\nclass C:\n    @functools.cached_property\n    def v(self):\n        return 1\ndef f(x):\n    return C().v\n",
        "return 1", "return 2",
    ),
    "total ordering": (
        "import functools\n@functools.total_ordering\nclass C:\n    def __eq__(self, o):\n        return False\n    def __lt__(self, o):\n        return True\n"
        "def f(x):\n    return C() >= C()\n", "return True", "return False",
    ),
    "class method": ("class C:\n    @classmethod\n    def go(c):\n        return 1\ndef f(x):\n    return C.go()\n", "return 1", "return 2"),
    "network forward": (
        "import torch\nclass N(torch.nn.Module):\n    def forward(self, v):\n        return v + 1\nN0 = N()\ndef f(x):\n    return float(N0(torch.ones(1)))\n",
        "v + 1", "v + 2",
    ),
    "library subclass": (
        "import json\nclass E(json.JSONEncoder):\n    def default(self, o):\n        return 1\ndef f(x):\n    return json.dumps({'a': {1}}, cls=E)\n",
        "return 1", "return 2",
    ),
    "callback of a library": ("def key(v):\n    return -v\ndef f(x):\n    return sorted([1, 2, 3], key=key)\n", "-v", "v"),
    "exception class": (
        "class E(Exception):\n    def __str__(self):\n        return 'one'\ndef f(x):\n    try:\n        raise E\n    except E as e:\n        return str(e)\n",
        "'one'", "'two'",
    ),
    "type alias": ("T = list[int]\ndef f(x):\n    return str(T)\n", "list[int]", "list[float]"),
    "regular expression": ("import re\nP = re.compile('a')\ndef f(x):\n    return P.pattern\n", "'a'", "'b'"),
}  # fmt: skip

PARTS = "K = 1\ndef h(x):\n    return x + 1\ndef __getattr__(name):\n    if name[0] == '_':\n        raise AttributeError(name)\n    return 'one'\n"
MAIN = """
import importlib, json, sys, warnings
import relive
warnings.simplefilter("always")
results, computed = {}, []
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    wrapper = relive.memo(module.f)
    inner = wrapper.__relive_memo__.function
    wrapper.__relive_memo__.function = lambda x, inner=inner, name=name: (computed.append(name), inner(x))[1]
    results[name] = repr(wrapper(3))
print(json.dumps([results, computed]))
"""


def judge_edits(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """Runs all functions, edits all, runs them again; returns the stale, the needlessly computed and the inert edits."""
    names = {f"steps_{at}": name for at, name in enumerate(EDITS)}
    _write(folder, names, is_edited=False)
    first, _ = _run(folder, names)
    _, again = _run(folder, names)
    _write(folder, names, is_edited=True)
    edited, _ = _run(folder, names)
    truth, _ = _run(folder, names, off=True)
    stale = [name for module, name in names.items() if edited[module] != truth[module]]
    inert = [name for module, name in names.items() if first[module] == truth[module]]
    return stale, [names[module] for module in again], inert


def _write(folder: Path, names: dict[str, str], *, is_edited: bool) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(MAIN)
    for module, name in names.items():
        source, old, new = EDITS[name]
        parts = PARTS
        companion = module.replace("steps", "parts")
        if is_edited and old.startswith("parts: "):
            parts = parts.replace(old.removeprefix("parts: "), new)
        elif is_edited:
            assert old in source, name
            source = source.replace(old, new)
        (folder / f"{module}.py").write_text(source.replace("parts", companion))
        (folder / f"{companion}.py").write_text(parts)


def _run(folder: Path, names: dict[str, str], *, off: bool = False) -> tuple[dict[str, str], list[str]]:
    env = {
        **os.environ,
        "RELIVE_HOME": str(folder / ".relive"),
        "RELIVE_OFF": "1" if off else "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "main.py", *names], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: tuple[dict[str, str], list[str]] = json.loads(done.stdout)
    return found
