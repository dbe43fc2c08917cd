"""Laws of depth: only loops in which an added statement may run are entered, through calls and modules too."""

from __future__ import annotations

import textwrap

import pytest

from relive.hindsight.analysis.depth import (
    INNER,
    NOWHERE,
    OUTER,
    PREFIX,
    SUFFIX,
    AddedStatement,
    Reach,
    find_reach,
    leaving_loops,
)

MAIN = frozenset({("epoch",)})
ENTERED = [("epoch",), ("epoch", "step"), ("epoch", "step", "step"), ("epoch", "check"), ("warmup",)]


def reach(
    source: str, mains: frozenset[tuple[str, ...]] = MAIN, *, has_framework_loop: bool = False, **more: str
) -> Reach:
    """Of the statements marked ADDED."""
    texts = {"train.py": source} | {f"{name}.py": text for name, text in more.items()}
    files = {name: textwrap.dedent(text).lstrip("\n") for name, text in texts.items()}
    added = [
        AddedStatement(name, number, "x")
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if "ADDED" in line
    ]
    return find_reach(files, "train.py", added, mains, loops=ENTERED, has_framework_loop=has_framework_loop)


LOOPS = """
import relive
{prefix}
for e in relive.loop("epoch", range(9)):
    {before}
    for s in relive.loop("step", range(9)):
        {inside}
    for s in relive.loop("check", range(9)):
        {other}
    {after}
{suffix}
"""


def test_the_body_of_a_loop_that_was_listed_runs_after_it() -> None:
    source = """
    import relive
    for e in relive.loop("epoch", range(9)):
        for s in list(relive.loop("step", range(9))):
            for c in relive.loop("check", range(9)):
                relive.log("x", 1)  # ADDED
    """

    found = reach(source)

    assert found.enters(("epoch", "check"))
    assert "step" in found.kept


def at(place: str) -> Reach:
    holes = dict.fromkeys(("prefix", "before", "inside", "other", "after", "suffix"), "pass")
    return reach(LOOPS.format(**{**holes, place: "relive.log('x', 1)  # ADDED"}))


@pytest.mark.parametrize(
    ("place", "depth"),
    [("prefix", PREFIX), ("before", OUTER), ("inside", INNER), ("other", INNER), ("after", OUTER), ("suffix", SUFFIX)],
)
def test_depth_follows_from_position(place: str, depth: str) -> None:
    assert at(place).depth(MAIN) == depth


def test_only_the_loop_that_holds_the_statement_is_entered() -> None:
    found = at("inside")

    assert found.enters(("epoch", "step"))
    assert not found.enters(("epoch", "check"))
    assert found.enters(("epoch",))


def test_a_statement_after_the_loops_enters_none() -> None:
    assert not at("suffix").enters(("epoch",))
    assert not at("after").enters(("epoch", "step"))


def test_a_function_runs_where_it_is_called() -> None:
    found = reach(
        """
        import relive
        def note():
            relive.log("x", 1)  # ADDED
        for e in relive.loop("epoch", range(9)):
            for s in relive.loop("step", range(9)):
                pass
            note()
        """
    )

    assert found.depth(MAIN) == OUTER
    assert not found.enters(("epoch", "step"))


def test_a_function_called_from_several_places_takes_the_deepest_and_says_so() -> None:
    found = reach(
        """
        import relive
        def note():
            relive.log("x", 1)  # ADDED
        for e in relive.loop("epoch", range(9)):
            for s in relive.loop("step", range(9)):
                note()
        note()
        """
    )

    assert found.depth(MAIN) == INNER
    assert found.is_after
    assert any("2 places" in reason for reason in found.reasons)


def test_a_method_of_another_module_is_followed() -> None:
    found = reach(
        """
        import relive
        from tools import Meter
        meter = Meter()
        for e in relive.loop("epoch", range(9)):
            for s in relive.loop("step", range(9)):
                meter.add(s)
        """,
        tools="""
        import relive
        class Meter:
            def add(self, value):
                relive.log("x", value)  # ADDED
        """,
    )

    assert found.depth(MAIN) == INNER


def test_a_function_that_is_given_away_may_run_anywhere() -> None:
    found = reach(
        """
        import relive
        def note():
            relive.log("x", 1)  # ADDED
        register(note)
        for e in relive.loop("epoch", range(9)):
            for s in relive.loop("step", range(9)):
                pass
        """
    )

    assert found.is_anywhere
    assert found.enters(("epoch", "step"))
    assert "anywhere" in found.reasons[0]


def test_the_top_of_a_module_runs_where_it_is_imported() -> None:
    found = reach("import relive\nimport setup_it\nfor e in relive.loop('epoch', x):\n    pass\n",
                  setup_it="import relive\nrelive.log('x', 1)  # ADDED\n")  # fmt: skip

    assert found.depth(MAIN) == PREFIX


def test_a_loop_in_a_function_stands_where_the_function_is_called() -> None:
    found = reach(
        """
        import relive
        def iteration():
            for s in relive.loop("step", range(9)):
                relive.log("x", 1)  # ADDED
        for e in relive.loop("epoch", range(9)):
            iteration()
        """
    )

    assert found.inside == {("epoch", "step")}


def test_what_follows_the_function_with_the_main_loop_is_after_it() -> None:
    found = reach(
        """
        import relive
        def train():
            for e in relive.loop("epoch", range(9)):
                pass
        relive.log("y", 1)
        train()
        relive.log("x", 1)  # ADDED
        """
    )

    assert found.depth(MAIN) == SUFFIX


def test_a_statement_around_which_plain_code_repeats_the_main_loop_is_before_and_after() -> None:
    found = reach(
        """
        import relive
        for fold in range(3):
            relive.log("x", 1)  # ADDED
            for e in relive.loop("epoch", range(9)):
                pass
        """
    )

    assert found.is_before
    assert found.is_after


def test_a_loop_with_an_unknown_name_may_be_any() -> None:
    found = reach(
        """
        import relive
        for e in relive.loop("epoch", range(9)):
            for s in relive.loop(names[e], range(9)):
                relive.log("x", 1)  # ADDED
        """
    )

    assert found.enters(("epoch", "step"))


def test_nothing_added_is_nowhere() -> None:
    assert reach("import relive\n").depth(MAIN) == NOWHERE


def test_a_class_is_called_where_it_is_made() -> None:
    found = reach(
        """
        import relive
        class Net:
            def __init__(self):
                relive.log("x", 1)  # ADDED
        for e in relive.loop("epoch", range(9)):
            net = Net()
        """
    )

    assert found.depth(MAIN) == OUTER


def test_loops_of_a_function_whose_namesake_is_given_away_are_entered_where_the_run_had_them() -> None:
    source = """
    import relive
    def make():
        def turn():
            pass
        return turn
    def watch():
        relive.log("x", 1)  # ADDED
    def turn():
        for s in relive.loop("step", range(9)):
            watch()
    given = make()
    for e in relive.loop("epoch", range(9)):
        turn()
    """

    found = reach(source)

    assert found.enters(("epoch", "step"))
    assert found.depth(MAIN) == INNER


def test_a_lambda_may_run_anywhere() -> None:
    found = reach(
        """
        import relive
        note = lambda v: relive.log("x", v)  # ADDED
        for e in relive.loop("epoch", range(9)):
            note(e)
        """
    )

    assert found.enters(("epoch",))


def test_a_recursive_function_is_read_to_an_end() -> None:
    found = reach(
        """
        import relive
        def down(n):
            for s in relive.loop("step", range(2)):
                relive.log("x", n)  # ADDED
                down(n - 1)
        for e in relive.loop("epoch", range(9)):
            down(3)
        """
    )

    assert found.enters(("epoch", "step", "step"))


def test_loops_that_may_be_left_by_return_are_found() -> None:
    files = {"train.py": "import relive\ndef f():\n    for s in relive.loop('step', x):\n        return s\n"}

    assert leaving_loops(files) == {"step"}


def test_a_block_that_holds_the_statement_is_entered() -> None:
    found = reach(
        """
        import relive
        warm = relive.skipblock("warmup")
        if warm.step_into():
            relive.log("x", 1)  # ADDED
        warm.end()
        for e in relive.loop("epoch", range(9)):
            pass
        """
    )

    assert found.depth(MAIN) == PREFIX
    assert found.enters(("warmup",))
    assert not found.enters(("epoch",))


LED = """
import lightning as pl

class Net(pl.LightningModule):
    def training_step(self, batch, at):
        return self.loss(batch)  # {inside}

    def loss(self, batch):
        return 1  # {called}

trainer = pl.Trainer()
print(1)  # {before}
trainer.fit(Net())
"""


@pytest.mark.parametrize("place", ["inside", "called"])
def test_what_a_library_calls_is_in_all_loops_that_it_runs(place: str) -> None:
    found = reach(
        LED.format(**{**dict.fromkeys(("inside", "called", "before"), ""), place: "ADDED"}), has_framework_loop=True
    )

    assert found.depth(MAIN) == INNER
    assert found.enters(("epoch",))
    assert found.enters(("epoch", "step"))
    assert found.is_after


def test_beside_a_loop_that_a_library_runs_everything_may_come_after_it() -> None:
    found = reach(LED.format(inside="", called="", before="ADDED"), has_framework_loop=True)

    assert found.depth(MAIN) == SUFFIX


FED = """
import relive

def batches(data):
    for one in data:
        relive.log("x", one)  # ADDED
        yield one

for e in relive.loop("epoch", range(9)):
    {before}
    for s in {steps}:
        pass
    for s in relive.loop("check", range(9)):
        pass
"""


@pytest.mark.parametrize(
    "steps", ['relive.loop("step", batches(range(9)))', 'batches(relive.loop("step", range(9)))',
              'zip(batches(relive.loop("step", range(9))), range(9))']
)  # fmt: skip
def test_a_generator_that_a_loop_goes_through_runs_inside_it(steps: str) -> None:
    found = reach(FED.format(before="pass", steps=steps))

    assert found.enters(("epoch", "step"))
    assert not found.enters(("epoch", "check"))


def test_a_generator_that_was_made_elsewhere_may_run_anywhere() -> None:
    found = reach(FED.format(before="feed = batches(range(9))", steps='relive.loop("step", feed)'))

    assert found.enters(("epoch", "step"))
    assert found.is_anywhere


def test_a_generator_that_is_gone_through_at_once_runs_there() -> None:
    found = reach(FED.format(before="feed = list(batches(range(9)))", steps='relive.loop("step", feed)'))

    assert found.depth(MAIN) == OUTER


SIBLING = """
import relive
def train(model):
    model.train()
    for e in relive.loop("epoch{n}", range(9)):
        for s in relive.loop("step{n}", range(9)):
            model.train()
        more(model)
def more(model):
    for s in relive.loop("more{n}", range(9)):
        model.train()
train(Net())
relive.log("x", 1)  {added}
"""


@pytest.mark.timeout(20)
def test_functions_that_may_call_each_other_in_any_order_are_read_to_an_end() -> None:
    files = {f"train_{n}.py": SIBLING.format(n=n, added="").lstrip() for n in range(40)}
    added = [AddedStatement("train_0.py", 12, "x")]

    found = find_reach(files, "train_0.py", added, {("epoch0",)}, loops=[("epoch0",), ("epoch0", "step0")])

    assert found.depth({("epoch0",)}) == SUFFIX


def test_loops_that_the_run_did_not_enter_are_told_apart_from_those_it_did() -> None:
    found = reach(
        """
        import relive
        def note():
            relive.log("x", 1)  # ADDED
        for e in relive.loop("epoch", range(9)):
            for s in relive.loop("unknown", range(9)):
                for t in relive.loop("step", range(9)):
                    note()
        """
    )

    assert found.enters(("epoch",))
    assert not found.enters(("epoch", "step"))
    assert found.depth(MAIN) == INNER


def test_a_statement_in_a_file_that_is_not_there_is_nowhere_and_says_so() -> None:
    added = [AddedStatement("other.py", 1, "x")]
    found = find_reach({"train.py": "import relive\n"}, "train.py", added, MAIN, loops=ENTERED)

    assert found.depth(MAIN) == NOWHERE
    assert found.reasons == ("the run did not import other.py",)
