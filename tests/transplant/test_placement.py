"""A statement of the new version lands where it belongs in the old one, whatever happened in between."""

from __future__ import annotations

import textwrap

import pytest

from relive.transplant import transplant
from relive.transplant.results import Transplant

MARK = "# <-"


def versions(old: str, new: str) -> tuple[str, str, list[tuple[str, int]], str]:
    """Returns the two texts, the marked lines of the new one, and the old text with the expected lines inserted."""
    old, new = textwrap.dedent(old), textwrap.dedent(new)
    wanted = [("train.py", number) for number, line in enumerate(new.splitlines(), 1) if line.endswith(MARK)]
    expected = old.replace(f"  {MARK}", "")
    old = "".join(line for line in old.splitlines(keepends=True) if not line.rstrip().endswith(MARK))
    return old, new.replace(f"  {MARK}", ""), wanted, expected


def carried(old: str, new: str) -> tuple[Transplant, str]:
    old, new, wanted, expected = versions(old, new)
    return transplant({"train.py": old}, {"train.py": new}, wanted), expected


CASES = {
    "a formatter went over everything": (
        """
        def train(net, data):
            for epoch in range( 3 ):
                for x, y in data :
                    loss = net( x,
                                y )
                    log('loss', loss)  # <-
                    loss.backward( )
        """,
        """
        def train(net, data):
            for epoch in range(3):
                for x, y in data:
                    loss = net(
                        x,
                        y,
                    )
                    log('loss', loss)  # <-
                    loss.backward()
        """,
    ),
    "train and validation are twins": (
        """
        def train(net, data):
            total = 0
            for x, y in data:
                loss = net(x, y)
                total += loss
            return total

        def validate(net, data):
            total = 0
            for x, y in data:
                loss = net(x, y)
                log('val', loss)  # <-
                total += loss
            return total
        """,
        """
        def validate(net, data):
            total = 0
            for x, y in data:
                loss = net(x, y)
                log('val', loss)  # <-
                total += loss
            return total

        def train(net, data, extra):
            extra()
            total = 0
            for x, y in data:
                loss = net(x, y)
                total += loss
            return total
        """,
    ),
    "the loop was restructured": (
        """
        step = 0
        for epoch in range(3):
            batch = fetch(step)
            loss = net(batch)
            log('loss', loss)  # <-
            step += 1
        finish(net)
        """,
        """
        step = 0
        while step < 300:
            batch = fetch(step)
            loss = net(batch)
            log('loss', loss)  # <-
            step += 1
            save(net)
        finish(net)
        """,
    ),
    "the code moved into a function": (
        """
        import lib
        net = lib.Net()
        for epoch in range(3):
            loss = lib.step(net)
            log('loss', loss)  # <-
            lib.save(net, epoch)
        """,
        """
        import lib

        def main():
            net = lib.Net()
            for epoch in range(3):
                loss = lib.step(net)
                log('loss', loss)  # <-
                lib.save(net, epoch)

        main()
        """,
    ),
    "the block was wrapped": (
        """
        def train(net):
            for epoch in range(3):
                loss = net.step()
                acc = net.test()
                log('acc', acc)  # <-
                save(net, acc)
        """,
        """
        def train(net):
            with context():
                for epoch in range(3):
                    if epoch:
                        loss = net.step()
                        acc = net.test()
                        log('acc', acc)  # <-
                        save(net, acc)
        """,
    ),
    "loops have names": (
        """
        import relive
        for i in relive.loop("epoch", range(2)):
            for x in relive.loop("step", first(i)):
                work(x)
                relive.log("x", x)  # <-
        """,
        """
        import relive
        for epoch in relive.loop("epoch", epochs()):
            prepare(epoch)
            for x in relive.loop("step", other(epoch, 3)):
                forward(x)
                relive.log("x", x)  # <-
            evaluate(epoch)
        """,
    ),
    "at the end of a function": (
        """
        def test(net):
            acc = net.test()
            return_value = acc
            log('acc', acc)  # <-

        def other():
            pass
        """,
        """
        def test(net):
            acc = net.test()
            return_value = acc
            log('acc', acc)  # <-

        def another():
            pass
        """,
    ),
    "below the docstring": (
        '''
        def test(net):
            """Says what it does."""
            log('net', net)  # <-
            acc = net.test()
        ''',
        """
        def test(net):
            log('net', net)  # <-
            acc = net.test()
        """,
    ),
    "in an else": (
        """
        if ready():
            go()
        else:
            wait = 3
            log('wait', wait)  # <-
            sleep(wait)
        """,
        """
        if ready():
            go_on()
        else:
            wait = 4
            log('wait', wait)  # <-
            sleep(wait)
        """,
    ),
    "in a handler": (
        """
        try:
            go()
        except ValueError as error:
            log('error', str(error))  # <-
            mend()
        finally:
            stop()
        """,
        """
        try:
            go(1)
        except ValueError as error:
            log('error', str(error))  # <-
            mend()
        finally:
            stop()
        """,
    ),
    "in a case": (
        """
        match kind():
            case "a":
                x = 1
                log('x', x)  # <-
            case _:
                x = 2
        """,
        """
        match kind(2):
            case "a":
                x = 1
                log('x', x)  # <-
            case _:
                x = 2
        """,
    ),
    "in async code": (
        """
        async def main():
            async for x in source():
                y = await x
                log('y', y)  # <-
                await put(y)
        """,
        """
        async def main(n):
            async for x in source(n):
                y = await x
                log('y', y)  # <-
                await put(y)
        """,
    ),
    "in a decorated method": (
        """
        class Net:
            @staticmethod
            def f(x):
                y = x + 1
                log('y', y)  # <-
                return y
        """,
        """
        class Net(Base):
            @classmethod
            @cached
            def f(cls, x):
                y = x + 1
                log('y', y)  # <-
                return y
        """,
    ),
    "a statement of many lines with a text in it": (
        '''
        def f(x):
            if x:
                y = x
                log("y", {"y": y, "text": """
          keep
        this
        """})  # <-
                return y
        ''',
        '''
        def f(x):
            y = x
            log("y", {"y": y, "text": """
          keep
        this
        """})  # <-
            return y
        ''',
    ),
}


@pytest.mark.parametrize("name", [name for name in CASES if "many lines" not in name])
def test_a_statement_lands_where_it_belongs(name: str):
    result, expected = carried(*CASES[name])

    assert result.refusals == ()
    assert result.files["train.py"] == expected


def test_text_in_a_string_keeps_its_indentation():
    new = 'def f(x):\n    y = x\n    log("y", """\n  keep\nthis\n""", y)\n    return y\n'
    old = "def f(x):\n  if x:\n    y = x\n    return y\n"
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 3)])

    added = '    log("y", """\n  keep\nthis\n""", y)\n'
    assert result.files["a.py"] == old.replace("    return y\n", f"{added}    return y\n")


def test_landings_give_line_numbers_of_the_patched_text():
    old, new, wanted, _ = versions(*CASES["loops have names"])
    (landing,) = transplant({"train.py": old}, {"train.py": new}, wanted).landings

    assert (landing.path, landing.line, landing.old_path, landing.old_line, landing.before) == (
        *wanted[0], "train.py", 6, 6,
    )  # fmt: skip


def test_a_move_of_a_few_lines_gets_high_confidence_and_another_program_none():
    old, new, wanted, _ = versions(*CASES["train and validation are twins"])
    sure = transplant({"train.py": old}, {"train.py": new}, wanted)
    lost = transplant({"train.py": "import os\nprint(os.getcwd())\n"}, {"train.py": new}, wanted)

    assert sure.landings[0].confidence == "high"
    assert lost.landings == ()
    assert lost.files == {}


def test_a_statement_that_fits_two_places_equally_gets_low_confidence():
    old = "def f():\n    a()\n\ndef g():\n    a()\n"
    new = "def h():\n    a()\n    log('a', 1)\n"
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 3)])

    assert all(landing.confidence != "high" for landing in result.landings)


def test_versions_in_between_align_code_that_changed_beyond_recognition():
    old = "def one(net):\n    a1()\n    a2()\n\ndef two(net):\n    b1()\n    b2()\n    b3()\n    b4()\n"
    middle = "def three(net):\n    b1()\n    b2()\n    c3()\n    c4()\n"
    new = "def three(net):\n    d1()\n    d2()\n    log('net', net)\n    c3()\n    c4()\n"
    direct = transplant({"a.py": old}, {"a.py": new}, [("a.py", 4)])
    by_way = transplant({"a.py": old}, {"a.py": new}, [("a.py", 4)], chain=[{"a.py": middle}])

    assert direct.landings == ()
    assert by_way.landings[0].old_line > old.splitlines().index("def two(net):") + 1


def test_a_statement_never_lands_where_it_is_not_reached():
    old = "def f(net):\n    net.train()\n    return net\n\ndef g():\n    return_value = 3\n"
    new = (
        "def f(net):\n    net.train()\n    a = 1\n    log('a', a)\n\n"
        "def g():\n    return_value = 3\n    log('r', return_value)\n"
    )
    result = transplant({"a.py": old}, {"a.py": new}, [("a.py", 4), ("a.py", 8)])
    patched = result.files["a.py"]

    assert "return net\n    log" not in patched
    assert patched.endswith("return_value = 3\n    log('r', return_value)\n")


def test_a_neighbour_that_is_hardly_alike_gives_no_high_confidence():
    old = "def f(args):\n    args.seed = g(args)\n    if not args.seed:\n        h(args)\n    k(args)\n    m(args)\n"
    new = old.replace(
        "    if not args.seed:\n        h(args)", "    log('args', args)\n    if args.track:\n        p()"
    )
    (landing,) = transplant({"a.py": old}, {"a.py": new}, [("a.py", 3)]).landings

    assert landing.confidence == "medium"
