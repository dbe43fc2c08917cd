"""A statement finds its variables after a refactoring into a class and back; calls of relive stay what they are."""

from __future__ import annotations

import difflib
from textwrap import dedent

import pytest

from relive.transplant import transplant
from relive.transplant.results import Transplant

SCRIPT = dedent("""
    import copy
    import torch

    net = torch.nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    total = 0
    for epoch in range(3):
        for x, y in load():
            opt.zero_grad()
            h = net(x)
            loss = ((h - y) ** 2).mean()
            loss.backward()
            opt.step()
            total += loss.item()
        print(epoch, total)
    torch.save(net.state_dict(), "net.pt")
""")

ONE_METHOD = dedent("""
    import copy
    import torch

    class Trainer:
        def __init__(self):
            self.net = torch.nn.Linear(4, 2)
            self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.total = 0

        def fit(self):
            for epoch in range(3):
                for x, y in load():
                    self.opt.zero_grad()
                    h = self.net(x)
                    loss = ((h - y) ** 2).mean()
                    loss.backward()
                    self.opt.step()
                    self.total += loss.item()
                print(epoch, self.total)
            torch.save(self.net.state_dict(), "net.pt")

    Trainer().fit()
""")

RENAMED = dedent("""
    import copy
    import torch

    class Trainer:
        def __init__(self):
            self.model = torch.nn.Linear(4, 2)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.running = 0

        def train_epoch(self, epoch):
            for x, y in load():
                self.optimizer.zero_grad()
                h = self.model(x)
                loss = ((h - y) ** 2).mean()
                loss.backward()
                self.optimizer.step()
                self.running += loss.item()
            print(epoch, self.running)

        def fit(self):
            for epoch in range(3):
                self.train_epoch(epoch)
            torch.save(self.model.state_dict(), "net.pt")

    Trainer().fit()
""")

FUNCTIONS = dedent("""
    import copy
    import torch

    def train(net, opt):
        total = 0
        for epoch in range(3):
            for x, y in load():
                opt.zero_grad()
                h = net(x)
                loss = ((h - y) ** 2).mean()
                loss.backward()
                opt.step()
                total += loss.item()
            print(epoch, total)

    def main():
        net = torch.nn.Linear(4, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        train(net, opt)
        torch.save(net.state_dict(), "net.pt")

    main()
""")

NESTED = dedent("""
    import copy
    import torch

    def main():
        net = torch.nn.Linear(4, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        total = 0

        def step(x, y):
            nonlocal total
            opt.zero_grad()
            h = net(x)
            loss = ((h - y) ** 2).mean()
            loss.backward()
            opt.step()
            total += loss.item()

        for epoch in range(3):
            for x, y in load():
                step(x, y)
            print(epoch, total)
        torch.save(net.state_dict(), "net.pt")

    main()
""")

VERSIONS = {
    "script": (SCRIPT, {"net": "net", "opt": "opt", "total": "total"}),
    "functions": (FUNCTIONS, {"net": "net", "opt": "opt", "total": "total"}),
    "nested": (NESTED, {"net": "net", "opt": "opt", "total": "total"}),
    "one method": (ONE_METHOD, {"net": "self.net", "opt": "self.opt", "total": "self.total"}),
    "renamed": (RENAMED, {"net": "self.model", "opt": "self.optimizer", "total": "self.running"}),
}
STATEMENTS = [  # the line before it, and the statement
    ("loss.backward()", 'relive.log("grad", {net}.weight.grad.norm())'),
    ("h = {net}(x)", 'relive.log("act", f"{{h.norm()}} of {{{net}}}")'),
    ("{opt}.step()", 'relive.log("lr", {opt}.param_groups[0]["lr"])'),
    ("{total} += loss.item()", 'relive.log("total", {total})'),
]
PAIRS = [(new, old) for new in VERSIONS for old in VERSIONS if new != old]


def with_statement(version: str, line: str, statement: str) -> tuple[str, int]:
    """Returns a version with the statement after a line, and the number of the statement's line."""
    text, names = VERSIONS[version]
    line, statement = line.format(**names), statement.format(**names)
    lines = text.splitlines()
    at = next(number for number, each in enumerate(lines) if each.strip() == line)
    indent = lines[at].removesuffix(line)
    return "\n".join([*lines[: at + 1], indent + statement, *lines[at + 1 :], ""]), at + 2


def carry(old: str, new: str, prefix: str) -> Transplant:
    line = next(number for number, each in enumerate(new.splitlines(), 1) if each.strip().startswith(prefix))
    return transplant({"a.py": old}, {"a.py": new}, [("a.py", line)])


def added_lines(old: str, result: Transplant) -> list[str]:
    diff = list(difflib.ndiff(old.splitlines(), result.files.get("a.py", old).splitlines()))
    assert not [line for line in diff if line.startswith("- ")]
    return [line[2:].strip() for line in diff if line.startswith("+ ")]


@pytest.mark.parametrize(("new", "old"), PAIRS)
@pytest.mark.parametrize(("line", "statement"), STATEMENTS)
def test_variables_are_found_after_a_refactoring(new: str, old: str, line: str, statement: str):
    text, number = with_statement(new, line, statement)
    expected, _ = with_statement(old, line, statement)
    text = text.replace("import copy\n", "import copy\nimport relive\n")
    result = transplant({"a.py": VERSIONS[old][0]}, {"a.py": text}, [("a.py", number + 1)])

    assert result.refusals == ()
    assert result.files["a.py"].replace("import relive\n", "") == expected


@pytest.mark.parametrize(
    ("imported", "call"),
    [
        ("import relive", "relive.log"),
        ("import relive as rl", "rl.log"),
        ("from relive import log", "log"),
        ("from relive import log as note", "note"),
    ],
)
@pytest.mark.parametrize("place", ["import copy\n{}\n", "{}\nimport copy\n", "{}\n", "import sys, {rest}\n"])
def test_calls_of_relive_are_not_renamed_and_their_import_comes_along(imported: str, call: str, place: str):
    if "{rest}" in place and not imported.startswith("import "):
        place = "import sys\n{}\n"
    above = place.format(imported, rest=imported.removeprefix("import "))
    new = SCRIPT.replace("import copy\n", above).replace("h = net(x)\n", f'h = net(x)\n        {call}("act", h)\n')
    result = carry(SCRIPT, new, f"{call}(")

    assert result.names == {}
    assert added_lines(SCRIPT, result) == [imported, f'{call}("act", h)']
    assert result.landings[0].confidence == "high"


def test_a_name_of_relive_that_is_something_else_in_the_old_version_is_refused():
    old = SCRIPT.replace("import copy\n", "import copy\nfrom math import log\n")
    new = SCRIPT.replace("import copy\n", "import copy\nfrom relive import log\n")
    result = carry(old, new.replace("h = net(x)\n", 'h = net(x)\n        log("act", h)\n'), "log(")

    assert result.landings == ()
    assert "call relive.log in the statement by a name that is free" in result.refusals[0].reason


def test_an_import_under_another_name_is_found():
    old = SCRIPT.replace("import copy\n", "import numpy\n")
    new = SCRIPT.replace("import copy\n", "import numpy as np\n")
    result = carry(old, new.replace("h = net(x)\n", "h = net(x)\n        note('act', np.abs(h))\n"), "note(")

    assert "note('act', numpy.abs(h))" in result.files["a.py"] or "import numpy as np" in result.files["a.py"]


def test_an_object_that_the_old_version_makes_elsewhere_is_not_made_a_second_time():
    old = (
        "import lib\ndef make():\n    net = lib.Net(3)\n    return net\n\n"
        "def run(first, second):\n    a(first)\n    b(second)\n"
    )
    new = "import lib\nnet = lib.Net(3)\n\ndef run(first, second):\n    a(first)\n    note('n', net)\n    b(second)\n"
    result = carry(old, new, "note(")

    assert result.landings == ()
    assert "net" in result.refusals[0].reason


def test_an_attribute_that_the_old_version_lacks_lowers_the_confidence():
    old = "class A:\n    def f(self, x):\n        a(x)\n        b(x)\n"
    new = (
        "class A:\n    def __init__(self):\n        self.seen = 0\n\n"
        "    def f(self, x):\n        a(x)\n        note('s', self.seen)\n        b(x)\n"
    )
    result = carry(old, new, "note(")

    assert "self.seen may have no value there" in result.landings[0].notes
    assert result.landings[0].confidence != "high"


def test_names_that_differ_in_case_only_are_found():
    old = "BATCH_SIZE = 8\ndef f(a):\n    x = g(a)\n    return x\n"
    result = carry(old, "def f(a, batch_size):\n    x = g(a)\n    note('b', batch_size)\n    return x\n", "note(")

    assert "    note('b', BATCH_SIZE)\n" in result.files["a.py"]


def test_settings_of_another_object_are_found():
    old = "def f(args):\n    a(args.width)\n    b(args.depth)\n    x = c()\n    return x\n"
    new = (
        "def f(cfg):\n    a(cfg.net.width)\n    b(cfg.run.depth)\n    x = c()\n    note(cfg.net.depth)\n    return x\n"
    )
    result = carry(old, new, "note(")

    assert "    note(args.depth)\n" in result.files["a.py"]
    assert result.landings[0].confidence != "high"


def test_a_parameter_that_the_old_version_lacks_has_its_default():
    old = "def f(a):\n    x = g(a)\n    return x\n"
    new = "def f(a, stage='val', *, depth=(1, 2)):\n    x = g(a)\n    note(stage, depth)\n    return x\n"
    result = carry(old, new, "note(")

    assert added_lines(old, result) == ["stage = 'val'", "depth = (1, 2)", "note(stage, depth)"] or added_lines(
        old, result
    ) == ["depth = (1, 2)", "stage = 'val'", "note(stage, depth)"]
    assert result.landings[0].confidence != "high"


def test_a_first_value_comes_along_if_the_old_version_assigns_the_name_on_some_paths():
    old = "def f(a):\n    for i in a:\n        if i % 2:\n            mean = g(i)\n        h(i)\n"
    new = (
        "def f(a):\n    mean = 0\n    for i in a:\n        if i % 2:\n            mean = g(i)\n"
        "        note(mean)\n        h(i)\n"
    )
    result = carry(old, new, "note(")

    assert result.files["a.py"] == new


def test_a_name_that_a_neighbour_reads_has_a_value_there():
    old = "def f(a):\n    if a:\n        x = 1\n    h(x)\n    g(a)\n"
    result = carry(old, "def f(a):\n    x = 1\n    h(x)\n    note('x', x)\n    g(a)\n", "note(")

    assert result.files["a.py"] == old.replace("    g(a)\n", "    note('x', x)\n    g(a)\n")


def test_an_import_comes_along_without_the_calls_on_the_module():
    old = "def f(a):\n    x = g(a)\n    return x\n"
    new = "import numpy as np\nnp.random.seed(3)\ndef f(a):\n    x = g(a)\n    note(np.abs(x))\n    return x\n"

    assert "seed" not in carry(old, new, "note(").files["a.py"]


def test_a_name_that_each_case_assigns_has_a_value():
    old = "def f(a):\n    if a == 1:\n        x = g(1)\n    elif a == 2:\n        x = g(2)\n    h(a)\n"
    result = carry(old, "def f(a):\n    x = g(a)\n    note('x', x)\n    h(a)\n", "note(")

    assert result.files["a.py"] == old.replace("    h(a)\n", "    note('x', x)\n    h(a)\n")


def test_a_variable_that_is_computed_in_the_same_way_is_found():
    old = "def f(a):\n    label = lib.wrap(a)\n    h(label)\n    g(a)\n"
    new = "def f(a):\n    label = a\n    labelv = lib.wrap(a)\n    h(label)\n    note(labelv)\n    g(a)\n"
    result = carry(old, new, "note(")

    assert "note(label)" in result.files["a.py"]
    assert result.landings[0].confidence != "high"


def test_a_variable_that_is_an_attribute_of_one_object_is_found():
    old = "def f(opt):\n    if opt.evolve == 2:\n        a(opt)\n    x = b()\n    return x\n"
    new = "def f(opt):\n    evolve, y = opt.parts()\n    x = b()\n    note(evolve)\n    return x\n"
    result = carry(old, new, "note(")

    assert "    note(opt.evolve)\n" in result.files["a.py"]
    assert result.landings[0].confidence != "high"


def test_a_loop_of_the_old_version_is_not_run_a_second_time_for_its_last_value():
    old = "class A:\n    def fit(self):\n        for x, y in self.loader:\n            a(x, y)\n\nA().fit()\n"
    new = "data = load()\nfor x, y in data:\n    a(x, y)\nnote(x)\n"

    assert "for x, y in data" not in carry(old, new, "note(").files.get("a.py", "")


def test_a_name_that_a_loop_in_each_case_assigns_may_have_a_value():
    old = (
        "def f(a):\n    if a.kind == 1:\n        x = g(1)\n        x.backward()\n    elif a.kind == 2:\n"
        "        for i in h(a):\n            x = g(i)\n            x.backward()\n    k(a)\n    m(a)\n    n(a)\n"
    )
    new = "def f(a):\n    x = p(a)\n    k(a)\n    m(a)\n    note('x', x)\n    n(a)\n"
    result = carry(old, new, "note(")

    assert result.files["a.py"] == old.replace("    n(a)\n", "    note('x', x)\n    n(a)\n")
    assert "x may have no value there" in result.landings[0].notes
    assert result.landings[0].confidence != "high"


def test_a_plain_value_that_another_function_computes_too_comes_along():
    old = (
        "def train(images):\n    a(images)\n    b(images)\n    c(images)\n    d(images)\n\n"
        "def evaluate(images):\n    e(images)\n    size = len(images)\n    h(size)\n    return 0\n"
    )
    new = (
        "def train(images):\n    a(images)\n    b(images)\n    size = len(images)\n    c(images)\n    note('n', size)\n"
        "    d(images)\n\ndef evaluate(images):\n    e(images)\n    return 0\n"
    )
    result = carry(old, new, "note(")

    assert added_lines(old, result) == ["size = len(images)", "note('n', size)"]
    assert "    c(images)\n    note('n', size)\n    d(images)\n" in result.files["a.py"]


def test_an_attribute_that_the_statement_assigns_is_a_variable_where_there_is_no_self():
    old = "def main(config):\n    parts = split(config)\n    a(parts)\n    b(config)\n"
    new = (
        "class Trainer:\n    def __init__(self, config):\n        self.parts = split(config)\n"
        "        self.count = len(self.parts)\n        a(self.parts)\n        b(config)\n"
    )
    result = carry(old, new, "self.count")

    assert result.files["a.py"] == old.replace("    a(parts)", "    count = len(parts)\n    a(parts)")
    assert result.landings[0].confidence != "high"


def test_an_attribute_does_not_become_the_name_of_a_module():
    old = "import time\n\ndef main(config):\n    parts = split(config)\n    a(parts)\n    b(time.time())\n"
    new = (
        "import time\n\nclass Trainer:\n    def __init__(self, config):\n        self.parts = split(config)\n"
        "        self.time = c()\n        a(self.parts)\n        b(time.time())\n"
    )

    assert "    time = c()" not in carry(old, new, "self.time").files.get("a.py", "")
