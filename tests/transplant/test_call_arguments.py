"""A parameter that the old function lacks is what the calls pass, if the function can compute that itself."""

from __future__ import annotations

import pytest

from relive.transplant import transplant
from relive.transplant.results import Transplant


def carry(old: str, new: str) -> Transplant:
    """Carries the statement that calls `note`."""
    line = next(number for number, text in enumerate(new.splitlines(), 1) if text.strip().startswith("note("))
    return transplant({"a.py": old}, {"a.py": new}, [("a.py", line)])


OLD = "opt = parse()\n\ndef load(net, x):\n    y = net(x)\n    return y\n\ndef main(net):\n    load(net, 3)\n"


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("load(net, 3, opt.kind)", "opt.kind"),
        ("load(net, 3, kind=opt.kind)", "opt.kind"),
        ("load(net, 3, net.kind)", "net.kind"),
        ("load(net, 3, opt.sizes[0] * 2)", "opt.sizes[0] * 2"),
        ("chosen = opt.kind\n    load(net, 3, chosen)", "opt.kind"),
    ],
)
def test_a_parameter_is_what_all_calls_pass(call: str, value: str):
    new = OLD.replace("x):", "x, kind):").replace("    return y", "    note(y, kind)\n    return y")
    result = carry(OLD, new.replace("load(net, 3)", call))

    assert result.files["a.py"] == OLD.replace("    return y", f"    kind = {value}\n    note(y, kind)\n    return y")
    assert result.landings[0].confidence != "high"
    assert f"kind comes along as {value}" in result.landings[0].notes


def test_a_parameter_of_a_method_is_the_attribute_that_its_class_passes():
    old = (
        "class A:\n    def step(self, x):\n        y = f(x)\n        g(y)\n\n    def run(self):\n        self.step(1)\n"
    )
    new = old.replace("x):", "x, rate):").replace("step(1)", "step(1, self.rate)")
    result = carry(old, new.replace("        g(y)", "        note(y * rate)\n        g(y)"))

    assert result.files["a.py"] == old.replace(
        "        g(y)", "        rate = self.rate\n        note(y * rate)\n        g(y)"
    )


def test_the_objects_of_what_is_passed_get_their_old_names():
    old = OLD.replace("opt", "args").replace("load(net, 3)", "load(net, args.seed)")
    new = OLD.replace("x):", "x, kind):").replace("    return y", "    note(y, kind)\n    return y")
    result = carry(old, new.replace("load(net, 3)", "load(net, opt.seed, opt.kind)"))

    assert "    kind = args.kind\n    note(y, kind)\n" in result.files["a.py"]


def test_a_variable_of_the_caller_is_not_mistaken_for_one_of_the_function():
    new = OLD.replace("x):", "x, kind):").replace("    return y", "    note(y, kind)\n    return y")
    result = carry(OLD, new.replace("load(net, 3)", "opt = make()\n    load(net, 3, opt.kind)"))

    assert result.landings == ()
    assert result.refusals[0].reason == "kind isn't in the old version: it is a parameter of load()"


def test_a_name_that_old_code_reads_is_not_set_to_what_is_passed():
    old = "kind = 7\n" + OLD.replace("    return y", "    h(kind)\n    return y")
    new = OLD.replace("x):", "x, kind):").replace("    return y", "    note(y, kind)\n    return y")
    result = carry(old, new.replace("load(net, 3)", "load(net, 3, opt.kind)"))

    assert "kind = opt.kind" not in result.files.get("a.py", "")
