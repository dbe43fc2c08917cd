"""Laws of reading a program: its loops and where they stand, its calls, and the ways out of its loops."""

from __future__ import annotations

import textwrap

import pytest

from relive.hindsight.analysis.program import LoopSite, Program, read_program
from relive.hindsight.analysis.syntax_facts import ANY_LOOP


def program(source: str, **more: str) -> Program:
    files = {"train.py": textwrap.dedent(source).lstrip("\n")}
    return read_program(files | {f"{name}.py": textwrap.dedent(text) for name, text in more.items()})


def loops(source: str) -> list[LoopSite]:
    return [site for unit in program(source).units for site in unit.loops]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import relive\nfor e in relive.loop('epoch', range(3)):\n    pass", ["epoch"]),
        ("import relive as r\nfor e in r.loop('epoch', range(3)):\n    pass", ["epoch"]),
        ("from relive import loop\nfor e in loop('epoch', range(3)):\n    pass", ["epoch"]),
        ("from relive import loop as turns\nfor e in turns('epoch', x):\n    pass", ["epoch"]),
        ("import relive\nfor i, e in enumerate(tqdm(relive.loop('epoch', x))):\n    pass", ["epoch"]),
        ("import relive\nsteps = relive.loop('step', x)\nfor s in steps:\n    pass", ["step"]),
        ("import relive\nfor e in relive.loop(name='epoch', items=x):\n    pass", ["epoch"]),
        ("import relive\nfor e in relive.loop(f'epoch{n}', x):\n    pass", [ANY_LOOP]),
        ("import relive\nout = [f(s) for s in relive.loop('step', x)]", ["step"]),
        ("import relive\nb = relive.skipblock('warm')\nif b.step_into():\n    f()\nb.end()", ["warm"]),
        ("for e in loop('epoch', range(3)):\n    pass", []),
        ("import relive\nfor e in other.loop('epoch', x):\n    pass", []),
    ],
)
def test_loops_are_found_by_whatever_name_they_are_called(source: str, names: list[str]) -> None:
    assert [site.name for site in loops(source)] == names


def test_a_nested_loop_knows_the_loops_around_it() -> None:
    found = loops(
        """
        import relive
        for e in relive.loop("epoch", x):
            for s in relive.loop("step", y):
                pass
            for s in relive.loop("check", y):
                pass
        """
    )

    assert [(site.name, site.path) for site in found] == [("epoch", ()), ("step", ("epoch",)), ("check", ("epoch",))]


def test_the_else_of_a_loop_is_outside_of_it() -> None:
    top = program(
        """
        import relive
        for e in relive.loop("epoch", x):
            a = 1
        else:
            b = 2
        """
    ).top("train.py")

    assert top is not None
    assert top.path_at(3) == ("epoch",)
    assert top.path_at(5) == ()


@pytest.mark.parametrize(
    ("body", "leaves"),
    [
        ("for e in relive.loop('epoch', x):\n    if e: break", False),
        ("for e in relive.loop('epoch', x):\n    if e: break\nelse:\n    g()", True),
        ("for e in relive.loop('epoch', x):\n    if e: return 1", True),
        ("for e in relive.loop('epoch', x):\n    def inner(): return 1", False),
        ("for e in relive.loop('epoch', x):\n    pass\nelse:\n    g()", False),
    ],
)
def test_a_loop_knows_whether_it_may_continue_elsewhere(body: str, leaves: bool) -> None:
    source = "import relive\ndef f():\n" + textwrap.indent(body, "    ")

    assert [site.leaves for site in loops(source)] == [leaves]


def test_the_body_of_a_loop_in_a_generator_is_apart() -> None:
    assert loops("import relive\ndef g():\n    for s in relive.loop('step', x):\n        yield s")[0].is_apart


def test_a_file_that_is_no_python_holds_nothing() -> None:
    assert read_program({"a.py": "def ("}).units == []


def test_a_line_belongs_to_the_innermost_function() -> None:
    read = program("def outer():\n    def inner():\n        pass\n    return inner\n")

    unit = read.innermost_unit("train.py", 3)
    assert unit is not None
    assert unit.name == "inner"


@pytest.mark.parametrize(
    ("source", "is_implicit"),
    [
        ("def f():\n    pass", False),
        ("@torch.no_grad()\ndef f():\n    pass", False),
        ("@app.command\ndef f():\n    pass", True),
        ("class A:\n    def f(self):\n        pass", False),
        ("class A(nn.Module):\n    def forward(self):\n        pass", True),
        ("class A(Callback):\n    def f(self):\n        pass", True),
        ("class A:\n    def __getitem__(self, i):\n        pass", True),
    ],
)
def test_functions_that_libraries_call_are_recognised(source: str, is_implicit: bool) -> None:
    (unit,) = [unit for unit in program(source).units if unit.name]

    assert unit.is_implicit is is_implicit
