"""Statements that were inserted with a log statement come along if they affect what it logs."""

from __future__ import annotations

import pytest

from relive.transplant import transplant

OLD = "net = make()\nfor epoch in range(9):\n    step(net)\n    x = data()\nend(net)\n"


def carried(new: str, old: str = OLD) -> str:
    line = next(at for at, text in enumerate(new.splitlines(), 1) if "log(" in text)
    found = transplant({"a.py": old}, {"a.py": new}, [("a.py", line)])
    assert not found.refusals, found.refusals
    return found.files["a.py"]


@pytest.mark.parametrize(
    "block",
    [
        'net.eval()\n    log("q", net(x))\n    net.train()',
        'net.eval()\n    out = net(x)\n    net.train()\n    log("q", out)',
        'net.training = False\n    log("q", net(x))\n    net.training = True',
        'old, net.scale = net.scale, 5.0\n    log("q", net(x))\n    net.scale = old',
        'found = []\n    fill(found)\n    log("q", sum(found))',
        'switch(net)\n    log("q", net(x))',
        'with no_grad():\n        net.eval()\n        log("q", net(x))\n        net.train()',
        "net.eval()\n    hits = 0\n    for one in data():\n        hits += net(one)\n    log('q', hits)\n"
        "    net.train()",
    ],
)
def test_an_inserted_block_comes_whole(block):
    new = OLD.replace("    x = data()\n", f"    x = data()\n    {block}\n")

    assert carried(new) == new


def test_what_does_not_affect_the_statement_stays_behind():
    new = OLD.replace("    x = data()\n", '    x = data()\n    plot(epoch)\n    print(net)\n    log("q", net(x))\n')

    assert carried(new) == new.replace("    plot(epoch)\n    print(net)\n", "")


def test_statements_that_replaced_others_do_not_run_beside_them():
    new = OLD.replace("    step(net)\n    x = data()\n", '    net.advance(2)\n    log("q", net.w)\n    x = data()\n')

    assert "advance" not in carried(new)


def test_two_questions_in_one_block_share_what_they_need():
    block = '    net.eval()\n    log("q", net(x))\n    log("r", net(x))\n    net.train()\n'
    new = OLD.replace("    x = data()\n", f"    x = data()\n{block}")
    lines = [at for at, text in enumerate(new.splitlines(), 1) if "log(" in text]

    assert transplant({"a.py": OLD}, {"a.py": new}, [("a.py", line) for line in lines]).files["a.py"] == new


@pytest.mark.parametrize(
    ("before", "logged"),
    [
        ("g = Generator()\ng.manual_seed(5)\nprobe = draw(g)\n", "probe"),
        ("ref = empty(4)\ninit.constant_(ref, 2.0)\n", "norm(ref)"),
        ("seen = []\ndef hook(m):\n    seen.append(m)\nnet.register(hook)\n", "sum(seen)"),
        ("acts = {}\ndef save(key):\n    def hook(m):\n        acts[key] = m\n    return hook\n"
         "net.register(save('a'))\n", "acts['a']"),
    ],
)  # fmt: skip
def test_what_is_done_to_a_new_variable_elsewhere_comes_along(before, logged):
    new = OLD.replace("for epoch", f"{before}for epoch").replace(
        "    x = data()\n", f"    x = data()\n    log('q', {logged})\n"
    )

    assert carried(new) == new
