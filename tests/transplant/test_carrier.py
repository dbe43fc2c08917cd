"""What a statement needs is carried along or renamed; what the old version can't provide is a refusal."""

from __future__ import annotations

from textwrap import dedent

import pytest

from relive.transplant import transplant
from relive.transplant.results import Transplant

OLD = dedent("""
    import torch
    from model import Net

    def train(net, loader):
        for epoch in range(3):
            for x, y in loader:
                l = loss(net(x), y)
                l.backward()
            net.eval()
""")


def carry(old: str, new: str, *prefixes: str) -> Transplant:
    """Carries the statements of the new version whose lines start with these prefixes."""
    old, new = dedent(old), dedent(new)
    lines = [number for number, line in enumerate(new.splitlines(), 1) if line.strip().startswith(prefixes)]
    assert len(lines) == len(prefixes)
    return transplant({"a.py": old}, {"a.py": new}, [("a.py", number) for number in lines])


def test_a_renamed_variable_gets_its_old_name():
    new = OLD.replace("l = ", "value = ").replace("l.backward", "value.backward") + "        log('loss', value)\n"
    new = new.replace(
        "value.backward()\n", "value.backward()\n            log('l', value.item(), f'{value:.3f} value')\n"
    )
    result = carry(OLD, new.rpartition("        log")[0], "log('l'")

    assert result.names == {"value": "l"}
    assert "            log('l', l.item(), f'{l:.3f} value')\n" in result.files["a.py"]


def test_keywords_attributes_and_texts_are_not_renamed():
    old = "def f(a):\n    b = g(a)\n    h(b)\n    return b\n"
    log = "log('value', x.value, value=value, t=\"value\")"
    result = carry(old, f"def f(a):\n    value = g(a)\n    h(value)\n    {log}\n    return value\n", "log(")

    assert "    log('value', x.value, value=b, t=\"value\")\n" in result.files["a.py"]


def test_imports_functions_and_accumulators_are_carried_along():
    new = """
        import torch
        import math
        import relive
        from model import Net

        def norm(model):
            return math.sqrt(sum(float((p**2).sum()) for p in model.parameters()))

        def train(net, loader):
            seen = []
            for epoch in range(3):
                for x, y in loader:
                    l = loss(net(x), y)
                    l.backward()
                    seen.append(l.item())
                relive.log("norm", norm(net))
                relive.log("mean", sum(seen) / len(seen))
                net.eval()
    """
    result = carry(OLD, new, 'relive.log("norm"', 'relive.log("mean"')

    assert result.refusals == ()
    patched = result.files["a.py"].splitlines()
    for line in (
        "import math",
        "import relive",
        "def norm(model):",
        "    seen = []",
        "            seen.append(l.item())",
    ):
        assert line in patched
    compile(result.files["a.py"], "a.py", "exec")


def test_a_new_block_is_carried_along_with_only_what_the_statement_needs_and_what_may_change_that():
    old = "def main(net):\n    for epoch in range(9):\n        step(net)\n    done()\n"
    new = """
        def main(net):
            for epoch in range(9):
                step(net)
                if epoch % 2 == 0:
                    m = evaluate(net)
                    show(epoch_times)
                    augment(net)
                    k = m * 2
                    log("k", k)
            done()
    """
    result = carry(old, new, "log(")

    added = (
        "        if epoch % 2 == 0:\n            m = evaluate(net)\n            augment(net)\n"
        '            k = m * 2\n            log("k", k)\n'
    )
    assert result.files["a.py"] == old.replace("    done()", f"{added}    done()")
    assert result.landings[0].old_line == 8


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (
            "def f(a, b):\n    x = a\n    log('b', b)\n    return x\n",
            "b isn't in the old version: it is a parameter of f()",
        ),
        ("def f(a):\n    x, y = a\n    log('y', y)\n    return x\n", "it also binds x, which the old version has"),
        (
            "def f(a):\n    for b in a:\n        x = a\n        log('b', b)\n    return x\n",
            "b isn't in the old version: `for b in a:` binds it",
        ),
    ],
)
def test_a_refusal_gives_the_reason(new: str, reason: str):
    result = carry("def f(a):\n    x = a\n    return x\n", new, "log(")

    assert result.landings == ()
    assert result.files == {}
    assert reason in result.refusals[0].reason


def test_a_refusal_still_names_the_place():
    old = "def f(a):\n    x = a\n    return x\n"
    (refusal,) = carry(old, "def f(a, b):\n    x = a\n    log('b', b)\n    return x\n", "log(").refusals

    assert (refusal.old_path, refusal.before) == ("a.py", 3)


def test_a_name_assigned_on_some_paths_only_is_refused():
    old = "def f(a):\n    if a:\n        x = 1\n    g(a)\n"
    result = carry(old, "def f(a):\n    x = 1\n    g(a)\n    log('x', x)\n", "log(")

    assert result.landings == ()
    assert "x has its value there only on some paths" in result.refusals[0].reason


def test_a_global_of_the_same_name_is_not_mistaken_for_a_local_variable():
    old = "b = 7\n\ndef f(a):\n    h(a)\n    return a\n"
    result = carry(old, "def f(a):\n    h(a)\n    b = a + 1\n    log('b', b)\n    return a\n", "log(")

    assert "    b = a + 1\n    log('b', b)\n" in result.files["a.py"]


def test_a_name_that_a_star_import_may_provide_lowers_confidence():
    old = "from lib import *\ndef f(a):\n    g(a)\n"
    result = carry(old, "import lib\nthing = 3\ndef f(a):\n    g(a)\n    log('x', thing)\n", "log(")

    assert result.landings[0].confidence != "high"
    assert "thing may have no value there" in result.landings[0].notes


def test_names_that_old_code_uses_are_never_rebound():
    old = "def f(a):\n    total = 0\n    g(a, total)\n    return total\n"
    new = "def f(a):\n    total = 0\n    g(a, total)\n    n, total = h(a)\n    log('n', n)\n    return total\n"

    assert "n, total" not in carry(old, new, "log(").files.get("a.py", "")


def test_other_files_of_the_project_are_carried_along_or_extended():
    old = {
        "train.py": "from lib.data import load\nimport metrics\n\ndef main(net):\n    out = net(load())\n"
        "    return out\n",
        "metrics.py": "import math\n\ndef acc(a):\n    return a\n",
        "lib/data.py": "def load():\n    return 1\n",
    }
    new = {
        "train.py": "from lib.data import load, split\nimport metrics\nfrom lib.extra import deep\n\n"
        "def main(net):\n    out = net(load())\n    log('f1', metrics.f1(out))\n    log('d', deep(split(out)))\n"
        "    return out\n",
        "metrics.py": "import math\nfrom half import half\n\ndef acc(a):\n    return a\n\n"
        "def f1(o):\n    return half(math.sqrt(o))\n",
        "half.py": "def half(x):\n    return x / 2\n",
        "lib/data.py": "def load():\n    return 1\n\ndef split(o):\n    return o\n",
        "lib/extra.py": "from .deeper import x\ndef deep(o):\n    return x\n",
        "lib/deeper.py": "x = 1\n",
    }
    result = transplant(old, new, [("train.py", 7), ("train.py", 8)])

    assert result.refusals == ()
    assert {path: result.files[path] for path in ("half.py", "lib/extra.py", "lib/deeper.py")} == {
        path: new[path] for path in ("half.py", "lib/extra.py", "lib/deeper.py")
    }
    assert "def f1(o):" in result.files["metrics.py"]
    assert "from half import half" in result.files["metrics.py"]
    assert "def split(o):" in result.files["lib/data.py"]
    assert "from lib.data import split\n" in result.files["train.py"]


def test_a_function_that_moved_to_another_file_is_found():
    body = "def train(net):\n    for x in net:\n        loss = net(x)\n        loss.backward()\n"
    old = {"main.py": "import os\n" + body, "loops.py": "def nothing():\n    pass\n"}
    new = {"main.py": "import os\n", "loops.py": "def nothing():\n    pass\n\n" + body + "        log('l', loss)\n"}
    result = transplant(old, new, [("loops.py", 8)])

    assert result.files == {"main.py": old["main.py"] + "        log('l', loss)\n"}


def test_a_file_that_was_renamed_is_found():
    body = "def train(net):\n    for x in net:\n        loss = net(x)\n        loss.backward()\n"
    result = transplant({"old_name.py": body}, {"name.py": body + "        log('l', loss)\n"}, [("name.py", 5)])

    assert result.files == {"old_name.py": body + "        log('l', loss)\n"}


@pytest.mark.parametrize("line", ["import math, time", "from math import sqrt, pi", "import math as m, time as t, os"])
def test_an_import_of_several_names_is_carried_along_for_each_name_needed(line: str):
    used = {"import math, time": "math.sqrt(time.time())", "from math import sqrt, pi": "sqrt(pi)"}
    value = used.get(line, "m.sqrt(t.time())")
    old = "net = [0.5]\nprint(net[0])\n"
    result = carry(old, f'{old}{line}\nlog("x", {value})\n', 'log("x"')

    assert result.refusals == ()
    added = result.files["a.py"].removeprefix(old).splitlines()
    assert len([one for one in added if "import" in one]) == 2
    assert "os" not in result.files["a.py"]
    compile(result.files["a.py"], "a.py", "exec")


GLOBAL_AS_PARAMETER = """
    import torch

    def evaluate(device, net, x):
        log("y", net(x.to(device)))
        return net(x)

    def train(device, net, loader):
        for x in loader:
            evaluate(device, net, x)

    device = torch.device("cuda")
    train(device, Net(), [1])
"""


def test_a_new_parameter_is_the_variable_of_the_module_that_all_calls_pass():
    old = """
        import torch

        def evaluate(net, x):
            return net(x)

        def train(net, loader):
            for x in loader:
                evaluate(net, x)

        train(Net(), [1])
    """
    result = carry(old, GLOBAL_AS_PARAMETER, "log(")

    assert not result.refusals
    text = result.files["a.py"]
    assert 'device = torch.device("cuda")\n' in text
    assert '    log("y", net(x.to(device)))\n    return net(x)\n' in text
    assert text.index("device =") < text.index("train(Net()")


@pytest.mark.parametrize(
    ("code", "other"),
    [
        ("    evaluate(device, net, x)", "    evaluate(pick(x), net, x)"),
        ("    evaluate(device, net, x)", "    evaluate(net.device, net, x)\n            evaluate(x.device, net, x)"),
        ("    evaluate(device, net, x)", "    evaluate(loader.device, net, x)"),
        ("    evaluate(device, net, x)", "    evaluate(*net)"),
        ("    evaluate(device, net, x)", "    map(evaluate, x)"),
        ('device = torch.device("cuda")', 'device = torch.device("cuda")\n    device = torch.device("cpu")'),
    ],
)
def test_a_new_parameter_that_calls_may_pass_other_values_for_is_refused(code, other):
    old = "import torch\n\ndef evaluate(net, x):\n    return net(x)\n"
    result = carry(old, GLOBAL_AS_PARAMETER.replace(code, other), "log(")

    (refusal,) = result.refusals
    assert refusal.reason == "device isn't in the old version: it is a parameter of evaluate()"


def test_an_import_is_not_carried_into_a_block_that_may_be_skipped():
    old = """
        import torch
        try:
            import ipex
            if torch.xpu.is_available():
                from library.ipex import ipex_init
        except Exception:
            pass
        from accelerate import set_seed
        set_seed(1)
    """
    new = """
        import torch
        from library.ipex import init_ipex
        init_ipex()
        from accelerate import set_seed
        set_seed(1)
    """
    result = carry(old, new, "init_ipex(")

    assert "\nfrom library.ipex import init_ipex\n" in result.files["a.py"]


def test_a_variable_is_not_replaced_by_a_module():
    old = """
        import torch

        def f(entropies, losses):
            log("entropy", torch.mean(entropies))
            log("loss", torch.mean(losses))
            log("end", torch.mean(losses))
    """
    new = """
        import torch

        def f(entropies, losses):
            entropy = entropies.get(losses)
            log("entropy", entropy.mean(entropies))
            log("loss", entropy.mean(losses))
            log("max", entropy.max())
            log("end", entropy.mean(losses))
    """
    result = carry(old, new, 'log("max"')

    assert "torch.max()" not in result.files["a.py"]
    assert "    entropy = entropies.get(losses)\n" in result.files["a.py"]


def test_settings_that_were_a_module_are_found_in_it():
    old = """
        import config

        def f(net):
            a(net, config.workers, config.rate)
            b(net, config.rate)
            c(net, config.workers)
    """
    new = """
        def f(net, cfg):
            a(net, cfg.workers, cfg.rate)
            b(net, cfg.rate)
            log("rate", cfg.rate)
            c(net, cfg.workers)
    """
    result = carry(old, new, 'log("rate"')

    assert '    log("rate", config.rate)\n' in result.files["a.py"]


def test_the_import_for_an_annotation_that_a_class_evaluates_comes_along():
    old = "class A:\n    size = 3\n    other = 4\n"
    new = "from typing import ClassVar\n\nclass A:\n    size = 3\n    kinds: ClassVar = {}\n    other = 4\n"
    result = carry(old, new, "kinds")

    assert result.files["a.py"].startswith("from typing import ClassVar\n")
    assert "    size = 3\n    kinds: ClassVar = {}\n    other = 4\n" in result.files["a.py"]
