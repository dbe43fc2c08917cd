"""Ways to change what a remembered function would compute: state that code reads, the ways to it, and edits of source.

A state is module source, an expression that reads it, and statements that change it from outside (`m` is the module).
A reach is how the function comes to the expression. Each pair is one example.
"""

# ruff: noqa: E501 - a module on one line is easier to compare with its neighbours
from __future__ import annotations

import random
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A module with a function `f`, and statements that change what it would return."""

    name: str
    source: str
    change: str
    other: str = ""  # the source of a second module, `other`
    is_volatile: bool = False  # its results differ each time, and a warning says so
    may_warn: bool = False  # it changes what it reads, and a warning says so


REACHES = {
    "direct": "def f(x):\n    return x, {read}",
    "helper": "def h():\n    return {read}\ndef f(x):\n    return x, h()",
    "two helpers": "def g():\n    return {read}\ndef h():\n    return g()\ndef f(x):\n    return x, h()",
    "method": "class K:\n    def go(self):\n        return {read}\ndef f(x):\n    return x, K().go()",
    "static method": "class K:\n    @staticmethod\n    def go():\n        return {read}\ndef f(x):\n    return x, K.go()",
    "class method": "class K:\n    @classmethod\n    def go(cls):\n        return {read}\ndef f(x):\n    return x, K.go()",
    "property": "class K:\n    @property\n    def go(self):\n        return {read}\ndef f(x):\n    return x, K().go",
    "inherited": "class B:\n    def go(self):\n        return {read}\nclass K(B):\n    pass\ndef f(x):\n    return x, K().go()",
    "closure": "def make():\n    def inner():\n        return {read}\n    return inner\nh = make()\ndef f(x):\n    return x, h()",
    "partial": "import functools\ndef g(a):\n    return {read}\nh = functools.partial(g, 1)\ndef f(x):\n    return x, h()",
    "registry": "TABLE = {{'a': lambda: {read}}}\ndef f(x):\n    return x, TABLE['a']()",
    "decorated": (
        "import functools\ndef around(g):\n    @functools.wraps(g)\n    def run(*a):\n        return g(*a)\n    return run\n"
        "@around\ndef h():\n    return {read}\ndef f(x):\n    return x, h()"
    ),
    "instance": "class K:\n    def __call__(self):\n        return {read}\nh = K()\ndef f(x):\n    return x, h()",
    "comprehension": "def f(x):\n    return [(x, {read}) for _ in range(2)]",
    "bound method": "class K:\n    def go(self):\n        return {read}\nh = K().go\ndef f(x):\n    return x, h()",
    "descriptor": (
        "class D:\n    def __get__(self, obj, kind):\n        return {read}\nclass K:\n    go = D()\n"
        "def f(x):\n    return x, K().go"
    ),
    "metaclass": (
        "class M(type):\n    def go(cls):\n        return {read}\nclass K(metaclass=M):\n    pass\n"
        "def f(x):\n    return x, K.go()"
    ),
    "init": "class K:\n    def __init__(self):\n        self.v = {read}\ndef f(x):\n    return x, K().v",
    "generator": "def g():\n    yield {read}\ndef f(x):\n    return x, list(g())",
    "nested function": "def f(x):\n    def inner():\n        return {read}\n    return x, inner()",
    "dispatch": (
        "import functools\n@functools.singledispatch\ndef h(x):\n    return 0\n@h.register\ndef _(x: int):\n    return {read}\n"
        "def f(x):\n    return x, h(x)"
    ),
    "default argument": "def g():\n    return {read}\ndef h(run=g):\n    return run()\ndef f(x):\n    return x, h()",
    "method by name": (
        "class K:\n    def go(self):\n        return {read}\nNAME = 'go'\ndef f(x):\n    return x, getattr(K(), NAME)()"
    ),
    "lru_cache around": (
        "import functools\ndef g():\n    return {read}\n@functools.lru_cache\ndef pure(n):\n    return n + 1\n"
        "def f(x):\n    return pure(x), g()"
    ),
}

# name: (setup, expression, change)
STATES: dict[str, tuple[str, str, str]] = {
    "int": ("V = 1", "V", "m.V = {n}"),
    "list item": ("V = [1, 2]", "V[0]", "m.V[0] = {n}"),
    "list append": ("V = [1, 2]", "sum(V)", "m.V.append({n})"),
    "dict": ("V = {{'a': 1}}", "V['a']", "m.V['a'] = {n}"),
    "dict setdefault in a helper": (
        "V = {{}}\ndef look():\n    return V.setdefault('a', 1)",
        "look()",
        "m.V['a'] = {n}",
    ),
    "dict pop and put in a helper": (
        "V = {{'a': 1}}\ndef look():\n    v = V.pop('a')\n    V['a'] = v\n    return v",
        "look()",
        "m.V['a'] = {n}",
    ),
    "nested dict": ("V = {{'a': {{'b': [1]}}}}", "V['a']['b'][0]", "m.V['a']['b'][0] = {n}"),
    "set": ("V = {{1, 2}}", "sorted(V)", "m.V.add({n})"),
    "deque": ("import collections\nV = collections.deque([1])", "sum(V)", "m.V.append({n})"),
    "counter": ("import collections\nV = collections.Counter('ab')", "V['a']", "m.V['a'] = {n}"),
    "defaultdict": ("import collections\nV = collections.defaultdict(int)", "V.get('a')", "m.V['a'] = {n}"),
    "bytearray": ("V = bytearray(b'abc')", "bytes(V)", "m.V[0] = {n} % 256"),
    "namespace": ("import types\nV = types.SimpleNamespace(a=1)", "V.a", "m.V.a = {n}"),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\nV = C()",
        "V.a",
        "m.V.a = {n}",
    ),
    "dataclass field left out of comparisons": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = dataclasses.field(default=1, compare=False)\n"
        "V = C()",
        "V.a",
        "m.V.a = {n}",
    ),
    "dataclass attribute that is no field": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\nV = C()\nV.b = 1",
        "V.b",
        "m.V.b = {n}",
    ),
    "plain object": ("class C:\n    def __init__(self):\n        self.a = 1\nV = C()", "V.a", "m.V.a = {n}"),
    "object with its own pickle": (
        "class C:\n    def __init__(self):\n        self.a = 1\n    def __getstate__(self):\n        return {{}}\nV = C()",
        "V.a",
        "m.V.a = {n}",
    ),
    "slots": (
        "class C:\n    __slots__ = ('a',)\n    def __init__(self):\n        self.a = 1\nV = C()",
        "V.a",
        "m.V.a = {n}",
    ),
    "inherited slots": (
        "class B:\n    __slots__ = ('a',)\nclass C(B):\n    __slots__ = ('b',)\nV = C()\nV.a = V.b = 1",
        "V.a",
        "m.V.a = {n}",
    ),
    "dict subclass attribute": ("class C(dict):\n    pass\nV = C(a=1)\nV.b = 1", "V.b", "m.V.b = {n}"),
    "class attribute": ("class C:\n    a = 1", "C.a", "m.C.a = {n}"),
    "inherited class attribute": ("class B:\n    a = 1\nclass C(B):\n    pass", "C.a", "m.B.a = {n}"),
    "class attribute changed in a helper": (
        "class C:\n    a = 1\n    n = 0\ndef look():\n    C.n += 1\n    return C.a",
        "look()",
        "m.C.a = {n}",
    ),
    "new class attribute": ("class C:\n    pass", "getattr(C, 'a', 0)", "m.C.a = {n}"),
    "mutable class attribute": ("class C:\n    a = [1]", "C.a[0]", "m.C.a[0] = {n}"),
    "metaclass attribute": (
        "class M(type):\n    a = 1\nclass C(metaclass=M):\n    pass",
        "C.a",
        "m.M.a = {n}",
    ),
    "metaclass method": (
        "class M(type):\n    def a(cls):\n        return 1\nclass C(metaclass=M):\n    pass",
        "C.a()",
        "m.M.a = lambda cls: {n}",
    ),
    "metaclass call": (
        "class M(type):\n    def __len__(cls):\n        return 1\nclass C(metaclass=M):\n    pass",
        "len(C)",
        "m.M.__len__ = lambda cls: {n}",
    ),
    "function attribute": ("def look():\n    return look.a\nlook.a = 1", "look()", "m.look.a = {n}"),
    "function attribute of another": ("def g():\n    pass\ng.a = [1]", "g.a[0]", "m.g.a[0] = {n}"),
    "mutable default": ("def look(a=[1]):\n    return a[0]", "look()", "m.look.__defaults__[0][0] = {n}"),
    "replaced defaults": ("def look(a=1):\n    return a", "look()", "m.look.__defaults__ = ({n},)"),
    "keyword defaults": ("def look(*, a=1):\n    return a", "look()", "m.look.__kwdefaults__['a'] = {n}"),
    "closure variable": (
        "def make():\n    a = 1\n    def get():\n        return a\n    def put(v):\n        nonlocal a\n        a = v\n    return get, put\n"
        "look, put = make()",
        "look()",
        "m.put({n})",
    ),
    "nested closure": (
        "def make(a):\n    def mid():\n        def get():\n            return a[0]\n        return get\n    return mid()\nBOX = [1]\nlook = make(BOX)",
        "look()",
        "m.BOX[0] = {n}",
    ),
    "enum attribute": (
        "import enum\nclass E(enum.Enum):\n    A = 1\nE.A.weight = 1",
        "E.A.weight",
        "m.E.A.weight = {n}",
    ),
    "replaced method": ("class C:\n    def a(self):\n        return 1", "C().a()", "m.C.a = lambda self: {n}"),
    "method of one object": (
        "class C:\n    def a(self):\n        return 1\nV = C()",
        "V.a()",
        "m.V.a = lambda: {n}",
    ),
    "replaced base method": (
        "class B:\n    def a(self):\n        return 1\nclass C(B):\n    pass",
        "C().a()",
        "m.B.a = lambda self: {n}",
    ),
    "replaced bases": (
        "class A:\n    def a(self):\n        return 1\nclass B:\n    def a(self):\n        return 2\nclass C(A):\n    pass",
        "C().a()",
        "m.C.__bases__ = (m.B,)",
    ),
    "class of an object": (
        "class A:\n    def a(self):\n        return 1\nclass B:\n    def a(self):\n        return 2\nV = A()",
        "V.a()",
        "m.V.__class__ = m.B",
    ),
    "replaced property": (
        "class C:\n    @property\n    def a(self):\n        return 1",
        "C().a",
        "m.C.a = property(lambda self: {n})",
    ),
    "descriptor content": (
        "class D:\n    def __init__(self):\n        self.v = 1\n    def __get__(self, obj, kind):\n        return self.v\n"
        "class C:\n    a = D()",
        "C().a",
        "vars(m.C)['a'].v = {n}",
    ),
    "cached property cleared": (
        "import functools\nclass C:\n    n = 1\n    @functools.cached_property\n    def a(self):\n        return self.n\nV = C()",
        "V.a",
        "m.C.n = {n}; vars(m.V).pop('a', None)",
    ),
    "replaced code": ("def look():\n    return 1", "look()", "m.look.__code__ = (lambda: {n}).__code__"),
    "replaced function": ("def look():\n    return 1", "look()", "m.look = lambda: {n}"),
    "library function replaced": ("import math", "math.floor(1.5)", "import math; math.floor = lambda v: {n}"),
    "library class method replaced": (
        "import json",
        "json.JSONEncoder().encode(1)",
        "import json; json.JSONEncoder.encode = lambda self, o: {n}",
    ),
    "builtin replaced": ("", "len('abc')", "import builtins; builtins.len = lambda v: {n}"),
    "subclass registry list": (
        "class B:\n    known = []\n    def __init_subclass__(cls):\n        B.known.append(cls)\nclass C1(B):\n    v = 1",
        "[c.v for c in B.known]",
        "type('C2', (m.B,), {{'v': {n}}})",
    ),
    "subclass registry dict": (
        "KNOWN = {{}}\nclass B:\n    def __init_subclass__(cls):\n        KNOWN[cls.__name__] = cls\nclass C1(B):\n    v = 1",
        "sorted((k, c.v) for k, c in KNOWN.items())",
        "type('C2', (m.B,), {{'v': {n}}})",
    ),
    "subclasses": (
        "class B:\n    pass\nclass C1(B):\n    v = 1",
        "sorted(c.v for c in B.__subclasses__())",
        "m.C2 = type('C2', (m.B,), {{'v': {n}}})",
    ),
    "singledispatch register": (
        "import functools\n@functools.singledispatch\ndef look(x):\n    return 1",
        "look(1)",
        "m.look.register(int, lambda x: {n})",
    ),
    "singledispatch method": (
        "import functools\nclass C:\n    @functools.singledispatchmethod\n    def a(self, x):\n        return 1",
        "C().a(1)",
        "vars(m.C)['a'].register(int, lambda self, x: {n})",
    ),
    "decorator registry": (
        "STEPS = []\ndef step(g):\n    STEPS.append(g)\n    return g\n@step\ndef one(x):\n    return x + 1\ndef look():\n"
        "    v = 0\n    for s in STEPS:\n        v = s(v)\n    return v",
        "look()",
        "m.step(lambda x: x * {n})",
    ),
    "registry filled by a method": (
        "class R:\n    def __init__(self):\n        self.items = {{}}\n    def add(self, k, v):\n        self.items[k] = v\n"
        "    def get(self, k):\n        return self.items[k]\nV = R()\nV.add('a', 1)",
        "V.get('a')",
        "m.V.add('a', {n})",
    ),
    "own cache of a pure helper": (
        "SEEN = {{}}\nSCALE = [1]\ndef look():\n    if 1 not in SEEN:\n        SEEN[1] = 7\n    return SEEN[1] * SCALE[0]",
        "look()",
        "m.SCALE[0] = {n}",
    ),
    "lazy global": (
        "V = None\nBASE = 1\ndef look():\n    global V\n    if V is None:\n        V = [BASE]\n    return V[0]",
        "look()",
        "m.V = [{n}]",
    ),
    "lazy global reset": (
        "V = None\nBASE = [1]\ndef look():\n    global V\n    if V is None:\n        V = list(BASE)\n    return V[0]",
        "look()",
        "m.BASE[0] = {n}; m.V = None",
    ),
    "counter of calls that is not read": (
        "N = 0\nSCALE = [1]\ndef look():\n    global N\n    N += 1\n    return SCALE[0]",
        "look()",
        "m.SCALE[0] = {n}",
    ),
    "log that is not read": (
        "LOG = []\nSCALE = [1]\ndef look():\n    LOG.append(1)\n    return SCALE[0]",
        "look()",
        "m.SCALE[0] = {n}",
    ),
    "partial arguments": (
        "import functools\ndef g(a, b):\n    return a + b[0]\nV = functools.partial(g, 1, b=[1])",
        "V()",
        "m.V.keywords['b'][0] = {n}",
    ),
    "partial attribute": (
        "import functools\ndef g(a):\n    return a\nV = functools.partial(g, 1)\nV.note = 1",
        "V.note",
        "m.V.note = {n}",
    ),
    "ndarray": ("import numpy as np\nV = np.arange(4)", "int(V.sum())", "m.V[0] = {n}"),
    "ndarray view": ("import numpy as np\nA = np.arange(9)\nV = A[::2]", "int(V.sum())", "m.A[4] = {n}"),
    "object array": ("import numpy as np\nV = np.array([[1], 2], dtype=object)", "V[0][0]", "m.V[0][0] = {n}"),
    "numpy generator": (
        "import numpy as np\nV = np.random.default_rng(1)",
        "V.bit_generator.state['state']['state']",
        "m.V.random()",
    ),
    "python generator": ("import random\nV = random.Random(1)", "V.getstate()[1][0]", "m.V.seed({n})"),
    "tensor": ("import torch\nV = torch.arange(4)", "int(V.sum())", "m.V[0] = {n}"),
    "tensor gradient": (
        "import torch\nV = torch.ones(2, requires_grad=True)\nV.grad = torch.ones(2)",
        "float(V.grad.sum())",
        "m.V.grad = torch.full((2,), {n}.0)",
    ),
    "tensor that requires a gradient": (
        "import torch\nV = torch.ones(2)",
        "V.requires_grad",
        "m.V.requires_grad_()",
    ),
    "module weight": (
        "import torch\nV = torch.nn.Linear(1, 1)\nV.weight.data.fill_(1)\nV.bias.data.fill_(1)",
        "float(V.weight.sum())",
        "m.V.weight.data.fill_({n})",
    ),
    "module buffer": (
        "import torch\nV = torch.nn.Identity()\nV.register_buffer('b', torch.ones(1))",
        "float(V.b)",
        "m.V.b.fill_({n})",
    ),
    "non-persistent buffer": (
        "import torch\nV = torch.nn.Identity()\nV.register_buffer('b', torch.ones(1), persistent=False)",
        "float(V.b)",
        "m.V.b.fill_({n})",
    ),
    "module mode": ("import torch\nV = torch.nn.Dropout(0.5)", "V.training", "m.V.eval()"),
    "module setting": ("import torch\nV = torch.nn.Dropout(0.5)", "V.p", "m.V.p = 1 / {n}"),
    "module attribute": ("import torch\nV = torch.nn.Identity()\nV.a = [1]", "V.a[0]", "m.V.a[0] = {n}"),
    "private module attribute": ("import torch\nV = torch.nn.Identity()\nV._a = 1", "V._a", "m.V._a = {n}"),
    "plain tensor of a module": (
        "import torch\nV = torch.nn.Identity()\nV.a = torch.ones(1)",
        "float(V.a)",
        "m.V.a.fill_({n})",
    ),
    "forward hook": (
        "import torch\nV = torch.nn.Identity()",
        "float(V(torch.ones(1)))",
        "m.V.register_forward_hook(lambda mod, a, out: out * {n})",
    ),
    "forward pre-hook": (
        "import torch\nV = torch.nn.Sequential(torch.nn.Identity())",
        "float(V(torch.ones(1)))",
        "m.V[0].register_forward_pre_hook(lambda mod, a: (a[0] * {n},))",
    ),
    "forward of one module": (
        "import torch\nV = torch.nn.Identity()",
        "float(V(torch.ones(1)))",
        "m.V.forward = lambda v: v * {n}",
    ),
    "module order": (
        "import torch\nV = torch.nn.ModuleDict({{'a': torch.nn.Identity(), 'b': torch.nn.ReLU()}})",
        "[k for k in V]",
        "a = m.V.pop('a'); m.V['a'] = a",
    ),
    "optimizer setting": (
        "import torch\nV = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5)",
        "V.param_groups[0]['lr']",
        "m.V.param_groups[0]['lr'] = 1 / {n}",
    ),
    "frame": ("import pandas\nV = pandas.DataFrame({{'a': [1, 2]}})", "int(V['a'].sum())", "m.V.loc[0, 'a'] = {n}"),
    "frame attribute": (
        "import pandas\nV = pandas.DataFrame({{'a': [1]}})\nV.attrs['u'] = 1",
        "V.attrs['u']",
        "m.V.attrs['u'] = {n}",
    ),
    "order of a dict": ("V = {{'a': 1, 'b': 2}}", "list(V)", "v = m.V.pop('a'); m.V['a'] = v"),
    "attribute of a module": ("import other", "other.V", "m.other.V = {n}"),
    "name from a module": ("from other import V as VALUE", "VALUE", "m.VALUE = {n}"),
    "list behind two modules": (
        "import other\nfrom other import V_LIST as VALUE",
        "VALUE[0]",
        "m.other.V_LIST[0] = {n}",
    ),
    "function of a module": ("import other", "other.look()", "m.other.V = {n}"),
    "module reloaded": (
        "import other",
        "other.look()",
        "open('other.py', 'a').write('V = {n}\\n'); import importlib, os; os.utime('other.py', (9, {n} + 9)); importlib.invalidate_caches(); importlib.reload(m.other)",
    ),
    "module attribute by name": ("import other\nNAME = 'V'", "getattr(other, NAME)", "m.other.V = {n}"),
    "global by name": ("V = 1\nNAME = 'V'", "globals()[NAME]", "m.V = {n}"),
    "eval": ("V = 1\nTEXT = 'V'", "eval(TEXT)", "m.V = {n}"),
    "imported in the function": ("", "__import__('other').V", "import sys; sys.modules['other'].V = {n}"),
    "context variable": ("import contextvars\nV = contextvars.ContextVar('V', default=1)", "V.get()", "m.V.set({n})"),
    "thread local": ("import threading\nV = threading.local()\nV.a = 1", "V.a", "m.V.a = {n}"),
    "event": ("import threading\nV = threading.Event()", "V.is_set()", "m.V.set()"),
    "string stream": ("import io\nV = io.StringIO('abc')", "V.getvalue()", "m.V.write('{n}')"),
    "weak dictionary": (
        "import weakref\nclass C:\n    pass\nK = C()\nV = weakref.WeakKeyDictionary()\nV[K] = 1",
        "V[K]",
        "m.V[m.K] = {n}",
    ),
    "iterator": ("import itertools\nV = itertools.count(1)", "str(V)", "[next(m.V) for _ in range({n})]"),
    "user dict": ("import collections\nV = collections.UserDict(a=1)", "V['a']", "m.V['a'] = {n}"),
    "user list subclass": (
        "import collections\nclass C(collections.UserList):\n    pass\nV = C([1])\nV.a = 1",
        "V.a",
        "m.V.a = {n}",
    ),
    "chain map": ("import collections\nV = collections.ChainMap({{'a': 1}})", "V['a']", "m.V.maps[0]['a'] = {n}"),
    "mapping proxy": ("import types\nD = {{'a': 1}}\nV = types.MappingProxyType(D)", "V['a']", "m.D['a'] = {n}"),
    "memory view": ("A = bytearray(b'abc')\nV = memoryview(A)", "bytes(V)", "m.A[0] = {n} % 256"),
    "operator getter": ("import operator\nD = {{'a': 1}}\nV = operator.itemgetter('a')", "V(D)", "m.V = lambda d: {n}"),
    "environment variable": (
        "import os",
        "os.environ.get('SOME_VARIABLE')",
        "import os; os.environ['SOME_VARIABLE'] = '{n}'",
    ),
    "environment by getenv": (
        "import os",
        "os.getenv('SOME_VARIABLE', '')",
        "import os; os.environ['SOME_VARIABLE'] = '{n}'",
    ),
    "environment imported": (
        "from os import environ\nNAME = 'SOME_VARIABLE'",
        "environ.get(NAME)",
        "import os; os.environ['SOME_VARIABLE'] = '{n}'",
    ),
    "environment as a whole": (
        "import os",
        "sorted(k for k in os.environ if k.startswith('SOME_'))",
        "import os; os.environ['SOME_{n}'] = '1'",
    ),
    "working folder": (
        "import os",
        "os.path.basename(os.getcwd())",
        "import os; os.makedirs('sub{n}'); os.chdir('sub{n}')",
    ),
    "working folder of a path": (
        "from pathlib import Path",
        "Path.cwd().name",
        "import os; os.makedirs('sub{n}'); os.chdir('sub{n}')",
    ),
    "arguments of the script": ("import sys", "sys.argv[-1]", "import sys; sys.argv.append('{n}')"),
    "default dtype": (
        "import torch",
        "str(torch.ones(1).dtype)",
        "import torch; torch.set_default_dtype(torch.float64)",
    ),
    "gradient mode": (
        "import torch",
        "(torch.ones(1, requires_grad=True) * 2).requires_grad",
        "import torch; torch.set_grad_enabled(False)",
    ),
    "deterministic algorithms": (
        "import torch",
        "torch.are_deterministic_algorithms_enabled()",
        "import torch; torch.use_deterministic_algorithms(True)",
    ),
    "numpy error state": (
        "import numpy as np\ndef look():\n    try:\n        return str(np.float64(1) / np.float64(0))\n    except FloatingPointError:\n"
        "        return 'raised'\nnp.seterr(divide='ignore')",
        "look()",
        "import numpy; numpy.seterr(divide='raise')",
    ),
    "numpy print options": (
        "import numpy as np",
        "str(np.array([1 / 3]))",
        "import numpy; numpy.set_printoptions(precision=2)",
    ),
    "torch print options": (
        "import torch",
        "str(torch.tensor([1 / 3]))",
        "import torch; torch.set_printoptions(precision=2)",
    ),
    "pandas option": (
        "import pandas",
        "pandas.get_option('display.precision')",
        "import pandas; pandas.set_option('display.precision', 3)",
    ),
    "decimal context": (
        "import decimal",
        "str(decimal.Decimal(1) / 3)",
        "import decimal; decimal.getcontext().prec = 5",
    ),
    "text file": ("open('d.txt', 'w').write('1')", "open('d.txt').read()", "open('d.txt', 'w').write('{n}')"),
    "file of a Path": (
        "from pathlib import Path\nV = Path('d.txt')\nV.write_text('1')",
        "V.read_text()",
        "m.V.write_text('{n}')",
    ),
    "file of the same size and time": (
        "import os\nopen('d.txt', 'w').write('100')\nos.utime('d.txt', (9, 9))",
        "open('d.txt').read()",
        "import os; open('d.txt', 'w').write('{n:03d}'); os.utime('d.txt', (9, 9))",
    ),
    "file by descriptor": (
        "import os\nopen('d.txt', 'w').write('1')\ndef look():\n    d = os.open('d.txt', os.O_RDONLY)\n    try:\n        return os.read(d, 9)\n"
        "    finally:\n        os.close(d)",
        "look()",
        "open('d.txt', 'w').write('{n}')",
    ),
    "file replaced atomically": (
        "open('d.txt', 'w').write('1')",
        "open('d.txt').read()",
        "import os; open('t', 'w').write('{n}'); os.replace('t', 'd.txt')",
    ),
    "file behind a link": (
        "import os\nopen('a.txt', 'w').write('1')\nopen('b.txt', 'w').write('2')\nos.symlink('a.txt', 'd.txt')",
        "open('d.txt').read()",
        "import os; os.remove('d.txt'); os.symlink('b.txt', 'd.txt')",
    ),
    "file removed": (
        "import os\nopen('d.txt', 'w').write('1')\ndef look():\n    try:\n        return open('d.txt').read()\n    except FileNotFoundError:\n"
        "        return 'none'",
        "look()",
        "import os; os.remove('d.txt')",
    ),
    "file that appears": (
        "import os\ndef look():\n    try:\n        return open('d.txt').read()\n    except FileNotFoundError:\n        return 'none'",
        "look()",
        "open('d.txt', 'w').write('{n}')",
    ),
    "existence of a file": ("import os", "os.path.exists('d.txt')", "open('d.txt', 'w').close()"),
    "existence of a Path": ("from pathlib import Path", "Path('d.txt').is_file()", "open('d.txt', 'w').close()"),
    "size of a file": (
        "import os\nopen('d.txt', 'w').write('1')",
        "os.path.getsize('d.txt')",
        "open('d.txt', 'a').write('x' * {n})",
    ),
    "file in another folder": (
        "open('d.txt', 'w').write('1')",
        "open('d.txt').read()",
        "import os; os.makedirs('s'); os.chdir('s'); open('d.txt', 'w').write('{n}')",
    ),
    "listing": ("import os\nos.makedirs('d')", "sorted(os.listdir('d'))", "open('d/{n}', 'w').close()"),
    "scandir": ("import os\nos.makedirs('d')", "sorted(e.name for e in os.scandir('d'))", "open('d/{n}', 'w').close()"),
    "glob": ("import glob, os\nos.makedirs('d')", "sorted(glob.glob('d/*'))", "open('d/{n}', 'w').close()"),
    "Path glob": (
        "import os\nfrom pathlib import Path\nos.makedirs('d')",
        "sorted(map(str, Path('d').glob('*')))",
        "open('d/{n}', 'w').close()",
    ),
    "os walk": (
        "import os\nos.makedirs('d/e')",
        "[sorted(c) for a, b, c in os.walk('d')]",
        "open('d/e/{n}', 'w').close()",
    ),
    "folder recreated": (
        "import os\nos.makedirs('d')\nopen('d/a', 'w').close()",
        "sorted(os.listdir('d'))",
        "import os, shutil; shutil.rmtree('d'); os.makedirs('d'); open('d/{n}', 'w').close()",
    ),
    "json": (
        "import json\njson.dump(1, open('d.json', 'w'))",
        "json.load(open('d.json'))",
        "import json; json.dump({n}, open('d.json', 'w'))",
    ),
    "csv": (
        "import csv\nopen('d.csv', 'w').write('1,2')",
        "list(csv.reader(open('d.csv')))",
        "open('d.csv', 'w').write('{n},2')",
    ),
    "pickle": (
        "import pickle\npickle.dump(1, open('d.pkl', 'wb'))",
        "pickle.load(open('d.pkl', 'rb'))",
        "import pickle; pickle.dump({n}, open('d.pkl', 'wb'))",
    ),
    "npy": (
        "import numpy as np\nnp.save('d.npy', [1])",
        "np.load('d.npy').tolist()",
        "import numpy; numpy.save('d.npy', [{n}])",
    ),
    "npy mapped": (
        "import numpy as np\nnp.save('d.npy', [1])",
        "np.load('d.npy', mmap_mode='r').tolist()",
        "import numpy; numpy.save('d.npy', [{n}])",
    ),
    "npz": (
        "import numpy as np\nnp.savez('d.npz', a=[1])",
        "np.load('d.npz')['a'].tolist()",
        "import numpy; numpy.savez('d.npz', a=[{n}])",
    ),
    "loadtxt": (
        "import numpy as np\nnp.savetxt('d.txt', [1])",
        "np.loadtxt('d.txt').tolist()",
        "import numpy; numpy.savetxt('d.txt', [{n}])",
    ),
    "fromfile": (
        "import numpy as np\nnp.array([1]).tofile('d.bin')",
        "np.fromfile('d.bin', dtype=int).tolist()",
        "import numpy; numpy.array([{n}]).tofile('d.bin')",
    ),
    "torch.load": (
        "import torch\ntorch.save({{'a': 1}}, 'd.pt')",
        "torch.load('d.pt')['a']",
        "import torch; torch.save({{'a': {n}}}, 'd.pt')",
    ),
    "read_csv": (
        "import pandas\nopen('d.csv', 'w').write('a\\n1\\n')",
        "int(pandas.read_csv('d.csv').a[0])",
        "open('d.csv', 'w').write('a\\n{n}\\n')",
    ),
    "gzip": (
        "import gzip\ngzip.open('d.gz', 'wt').write('1')",
        "gzip.open('d.gz', 'rt').read()",
        "import gzip; gzip.open('d.gz', 'wt').write('{n}')",
    ),
    "sqlite": (
        "import sqlite3, contextlib\ndef put(n):\n    with contextlib.closing(sqlite3.connect('d.db')) as c, c:\n"
        "        c.execute('drop table if exists t')\n        c.execute('create table t as select ? as n', (n,))\nput(1)\n"
        "def look():\n    with contextlib.closing(sqlite3.connect('d.db')) as c:\n        return c.execute('select n from t').fetchone()[0]",
        "look()",
        "m.put({n})",
    ),
    "read once, used often": (
        "import functools\nopen('d.txt', 'w').write('1')\n@functools.lru_cache\ndef look():\n    return open('d.txt').read()",
        "look()",
        "open('d.txt', 'w').write('{n}'); m.look.cache_clear()",
    ),
    "file that the function also writes": (
        "import os\nopen('d.txt', 'w').write('1')\ndef look():\n    v = open('d.txt').read()\n    open('out.txt', 'w').write(v)\n    return open('out.txt').read()",
        "look()",
        "open('d.txt', 'w').write('{n}')",
    ),
}

VOLATILE = {
    "random": ("import random", "random.random()"),
    "numpy random": ("import numpy as np", "float(np.random.rand())"),
    "numpy unseeded generator": ("import numpy as np", "float(np.random.default_rng().random())"),
    "torch random": ("import torch", "float(torch.rand(1))"),
    "unseeded Random": ("import random", "random.Random().random()"),
    "urandom": ("import os", "os.urandom(4)"),
    "uuid": ("import uuid", "str(uuid.uuid4())"),
    "secrets": ("import secrets", "secrets.token_hex(4)"),
    "clock": ("import time", "time.time()"),
    "clock imported": ("from time import time_ns", "time_ns()"),
    "now": ("import datetime", "str(datetime.datetime.now())"),
    "today": ("from datetime import date", "str(date.today())"),
    "subprocess": ("import subprocess", "subprocess.run(['date', '+%N'], capture_output=True).stdout"),
    "system": ("import os", "os.system('true')"),
    "socket": (
        "import socket\ndef look():\n    s = socket.socket()\n    s.settimeout(0.1)\n    return s.connect_ex(('127.0.0.1', 9))",
        "look()",
    ),
    "process id": ("import os", "os.getpid()"),
    "self counter": ("N = 0\ndef look():\n    global N\n    N += 1\n    return N", "look()"),
    "self counter of a class": ("class C:\n    n = 0\ndef look():\n    C.n += 1\n    return C.n", "look()"),
    "self list": ("L = []\ndef look():\n    L.append(1)\n    return len(L)", "look()"),
    "self setdefault": ("D = {{}}\ndef look():\n    return D.setdefault(len(D), len(D))", "look()"),
    "self iterator": ("import itertools\nV = itertools.count()", "next(V)"),
}

OTHER = "V = 1\nV_LIST = [1]\ndef look():\n    return V\n"


def mutations(count: int | None = None, *, seed: int = 0) -> list[Mutation]:
    """Returns all examples in an order given by the seed, or the first of them, with every state among the first."""
    draw = random.Random(seed)
    first, rest = [], []
    for state, (setup, read, change) in STATES.items():
        reaches = draw.sample(sorted(REACHES), len(REACHES))
        made = [_mutation(state, reach, setup, read, change, draw) for reach in reaches]
        first.append(made[0])
        rest += made[1:]
    draw.shuffle(rest)
    return (first + rest)[:count]


def volatile_functions() -> list[Mutation]:
    return [
        Mutation(
            f"{name}, by helper",
            f"{setup}\n{_reached('helper', read)}\n".replace("{{}}", "{}"),
            "",
            OTHER,
            is_volatile=True,
        )
        for name, (setup, read) in VOLATILE.items()
    ]


def _reached(reach: str, read: str) -> str:
    """Returns the code of a reach, whose names are not those of any state."""
    return re.sub(r"\b([ghBDKM])\b(?!')", r"\1r", REACHES[reach]).format(read=read)


def _mutation(state: str, reach: str, setup: str, read: str, change: str, draw: random.Random) -> Mutation:
    source = f"{setup.format()}\n{_reached(reach, read)}\n" if "{{" in setup else f"{setup}\n{_reached(reach, read)}\n"
    return Mutation(f"{state}, by {reach}", source, change.format(n=draw.randrange(3, 250)), OTHER)
