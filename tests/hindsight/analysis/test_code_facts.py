"""Laws of what code reads: volatile results are followed to the statement, and unused state is told from used."""

from __future__ import annotations

from textwrap import dedent

import pytest

from relive.hindsight.analysis.depth import AddedStatement
from relive.hindsight.analysis.reads import CodeFacts
from relive.hindsight.analysis.reads.volatile_calls import HIDDEN, ORDER

FILE = "reads a time or the number of a file, which a replay's own files don't have"


def facts(source: str, name: str = "x", mains: tuple[str, ...] = ("epoch",), **files: str) -> CodeFacts:
    """The facts of a script whose statements that log the name were added."""
    text = dedent(source)
    lines = [at for at, line in enumerate(text.splitlines(), start=1) if f'"{name}"' in line]
    added = [AddedStatement("train.py", line, name) for line in lines]
    others = {f"{module}.py": dedent(other) for module, other in files.items()}
    return CodeFacts({"train.py": text, **others}.get, "train.py", added=added, mains=mains)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('import time\nrelive.log("x", time.time())', "reads the clock (time.time)"),
        ('from time import perf_counter as now\nrelive.log("x", now())', "reads the clock (time.perf_counter)"),
        ('import time\nt = time.time()\nrelive.log("x", 2 * (t - 1))', "reads the clock (time.time)"),
        ('import time\nm = {}\nm["t"] = time.time()\nrelive.log("x", m["t"])', "reads the clock (time.time)"),
        ('import time\ndef took():\n    return time.time()\nrelive.log("x", took())', "reads the clock (time.time)"),
        ('import time\ndef say(t):\n    relive.log("x", t)\nsay(time.time())', "reads the clock (time.time)"),
        ('import time\nl = []\nl.append(time.time())\nrelive.log("x", sum(l))', "reads the clock (time.time)"),
        ('from datetime import datetime\nrelive.log("x", datetime.now())', "reads the clock (datetime.datetime.now)"),
        (
            'import time\ndef make():\n    def a():\n        return time.time()\n    return 1, a\n'
            'n, ask = make()\nrelive.log("x", ask())',
            "reads the clock (time.time)",
        ),
        (
            'import time\ndef now():\n    return time.time()\nclass A:\n    def __init__(self):\n'
            '        self.ask = now\na = A()\nrelive.log("x", a.ask())',
            "reads the clock (time.time)",
        ),
        (
            'import time\ndef now():\n    return time.time()\nask = now\nother = {"k": ask}\n'
            'relive.log("x", other["k"]())',
            "reads the clock (time.time)",
        ),
        ('import time\nask = time.time\nrelive.log("x", ask())', "reads the clock (time.time)"),
        ('relive.log("x", id(net))', "reads an address in memory (id)"),
        ('import os\nrelive.log("x", os.getpid())', "reads a property of the process or the machine (os.getpid)"),
        ('import requests as r\nrelive.log("x", r.get("u").text)', "reads the network (requests.get)"),
        (
            'import sys\nrelive.log("x", len(sys.modules))',
            "reads a property of the process or the machine (sys.modules)",
        ),
        ('import sys\na = sys.modules["m"].w\nrelive.log("x", a)', None),
        ('import uuid\nrelive.log("x", str(uuid.uuid4()))', "draws random numbers of the system (uuid.uuid4)"),
        ('import os\nrelive.log("x", os.stat("f").st_mtime)', f"{FILE} (st_mtime)"),
        ('from pathlib import Path\nrelive.log("x", Path("f").stat().st_ino)', f"{FILE} (st_ino)"),
        ('import os\ns = os.stat("f")\nrelive.log("x", s.st_ctime_ns)', f"{FILE} (st_ctime_ns)"),
        ('import os\nt = os.stat("f").st_atime\nrelive.log("x", t)', f"{FILE} (st_atime)"),
        ('import os\nrelive.log("x", os.stat("f")[8])', f"{FILE} (os.stat)"),
        ('from pathlib import Path\nrelive.log("x", str(Path("f").stat()))', f"{FILE} (stat)"),
        ('from os import path\nrelive.log("x", path.getmtime("f"))', f"{FILE} (os.path.getmtime)"),
        ('def age(p):\n    return p.stat().st_mtime\nrelive.log("x", age(p))', f"{FILE} (st_mtime)"),
        ('import numpy as np\nrelive.log("x", str(np.datetime64("now")))', "reads the clock (datetime64)"),
        ('import pandas as pd\nrelive.log("x", pd.Timestamp.now().year)', "reads the clock (pandas.Timestamp.now)"),
        (
            'relive.log("x", open("/proc/uptime").read())',
            "reads a property of the process or the machine (/proc/uptime)",
        ),
        (
            'import numpy as np\nrelive.log("x", np.fromfile("/dev/urandom", "u1", 2))',
            "draws random numbers of the system (/dev/urandom)",
        ),
        ('import polars as pl\nb = df.sample(5)\nrelive.log("x", b["a"].sum())', f"{HIDDEN} (polars.sample)"),
        ('import polars as pl\nb = df.sample(5, seed=3)\nrelive.log("x", b["a"].sum())', None),
        ('import pandas as pd\nb = df.sample(5)\nrelive.log("x", b["a"].sum())', None),
        ('import numpy as np\nrelive.log("x", str(np.datetime64("2020-01-01")))', None),
        ('import os\nrelive.log("x", os.stat("f").st_size + os.path.getsize("f"))', None),
        ('from pathlib import Path\ns = Path("f").stat()\nrelive.log("x", s.st_size)', None),
        ('relive.log({"x": loss, "y": 1})', None),
        ('import time\nrelive.log({"x": loss, "y": time.time()})', None),
        ('import time\nrun = Writer(f"{time.time()}")\nrelive.log("x", run.loss)', None),
        ('import time\nm = {}\nm["t"] = time.time()\nrelive.log("x", m["loss"])', None),
        ('import time\ndef test():\n    t = time.time()\n    print(t)\n    return 3\nrelive.log("x", test())', None),
        ('import time\nif time.time() > 3:\n    a = 1\nrelive.log("x", a)', None),
        ('seen = {id(net): 1}\nrelive.log("x", len(seen))', None),
    ],
)  # fmt: skip
def test_what_a_statement_reads_besides_the_state(source: str, found: str | None) -> None:
    assert facts(source).volatile_source("x") == found


def test_a_meter_of_times_is_volatile_and_one_of_losses_is_not() -> None:
    code = facts(
        """
        import time
        class Meter:
            def update(self, value):
                self.value = value
                self.sum += value
        losses, durations = Meter(), Meter()
        for epoch in relive.loop("epoch", range(3)):
            begun = time.time()
            losses.update(step())
            durations.update(time.time() - begun)
            relive.log("loss", losses.sum)
            relive.log("batch", durations.sum)
        """
    )

    assert [code.is_volatile(name) for name in ("loss", "batch", "wall_time")] == [False, True, True]
    assert code.is_volatile_path("durations.sum: other content")
    assert not code.is_volatile_path("losses.sum: other content")
    assert not code.is_volatile_path("memory.weight: other content")


LOOP = """
    import data
    tokenizer, config, trainer = make()
    texts = tokenizer(config)
    for epoch in relive.loop("epoch", range(3)):
        trainer.step()
        lr = config.lr
        for old, (new, _) in trainer.files:
            trainer.drop(old)
        for kept in trainer.files:
            pass
        relive.log("x", trainer.loss + len(texts) + len(kept) + epoch)
    """


@pytest.mark.parametrize(
    ("path", "is_used", "is_read"),
    [
        ("tokenizer._tokenizer: opaque", False, False),  # only code before the loop uses it
        ("trainer.model: opaque", True, False),  # its method may use it
        ("trainer.loss.grad: opaque", True, True),
        ("config.lr: other content", True, False),
        ("config.name: other content", False, False),
        ("texts[3]: other content", True, True),
        ("__main__.texts: other content", True, True),
        ("torch default generator: other content", True, False),  # the source does not name it
        ("data.cache: other content", True, False),
        ("old: another value", False, False),  # bound anew before it is read
        ("kept: another value", True, True),
        ("epoch: another value", True, True),  # of the main loop, which the replay itself goes over
    ],
)
def test_which_state_the_code_of_the_loop_uses_and_the_statement_reads(path: str, is_used: bool, is_read: bool) -> None:
    code = facts(LOOP, data="cache = {}\ndef get(key):\n    return cache[key]")

    assert (code.is_used(path), code.reads_directly("x", path)) == (is_used, is_read)


@pytest.mark.parametrize(
    ("source", "is_seeded"),
    [("import torch\ntorch.manual_seed(3)", True), ("from random import seed\nseed(1)", True), ("import torch", False)],
)
def test_whether_a_script_is_seeded(source: str, is_seeded: bool) -> None:
    assert facts(source).is_seeded is is_seeded


@pytest.mark.parametrize(
    ("added", "logged", "found"),
    [
        ("probe = np.random.default_rng().normal(size=3)", "probe @ w", "draws random numbers of a generator that "
         "seeds itself (np.random.default_rng)"),
        ("probe = np.random.default_rng(0).normal(size=3)", "probe @ w", None),
        ("probe = np.random.default_rng()", "w", None),  # not of this statement
        ("order = list({'a', 'b'})", "''.join(order)", ORDER),
        ("order = sorted({'a', 'b'})", "''.join(order)", None),
        ("class C:\n    @property\n    def now(self):\n        return time.time()\nc = C()", "c.now",
         "reads the clock (time.time)"),
    ],
)  # fmt: skip
def test_what_code_beside_the_statement_depends_on(added: str, logged: str, found: str | None):
    old = "import time\nimport numpy as np\nw = 1.0\n"
    new = f'{old}{added}\nrelive.log("x", {logged})\n'
    line = len(new.splitlines())
    one = CodeFacts(
        {"train.py": new}.get, "train.py", added=[AddedStatement("train.py", line, "x")], has_hash_seed=False,
        originals={"train.py": old},
    )  # fmt: skip

    assert one.volatile_source("x") == found


def test_statements_that_read_what_added_code_has_made():
    old = "w = 1.0\n"
    new = old + 'age = load("age.npy")\nrelive.log("x", age.mean())\nrelive.log("y", w)\n'
    added = [AddedStatement("train.py", 3, "x"), AddedStatement("train.py", 4, "y")]
    one = CodeFacts({"train.py": new}.get, "train.py", added=added, originals={"train.py": old})

    assert one.reads_added("x")
    assert not one.reads_added("y")


LAZY = """
    class Model:
        def size(self):
            if self._n is None:
                self._n = len(self.w)
            return self._n
        @functools.cached_property
        def total(self):
            return sum(self.w)
        def note(self):
            self.seen.append(1)
            return helper()
        def step(self):
            self.w = [1]
    def helper():
        global calls
        calls += 1
    """


@pytest.mark.parametrize(
    ("logged", "path", "expected"),
    [
        ("m.size()", "m._n: other content", True),
        ("m.size()", "m.w: other content", False),
        ("m.total", "m.total: only now", True),
        ("m.note()", "m.seen[3]: only now", True),
        ("m.note()", "calls: other content", True),
        ("len(m.w)", "m.w: other content", False),
        ("m.step()", "m.w: other content", True),
    ],
)
def test_what_a_statement_may_change_itself(logged: str, path: str, expected: bool):
    found = facts(dedent(LAZY) + f'relive.log("x", {logged})')

    assert found.is_changed_by_statement(path) is expected
