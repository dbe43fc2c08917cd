"""Which loops are instrumented, and under which names."""

from __future__ import annotations

import ast
import textwrap

import pytest

from relive.instrument import reachable_files, survey_functions
from relive.instrument.loop_selection import LoopKind, choose_loops


def choose_in(source: str, *others: str) -> list[tuple[str, LoopKind]]:
    text = textwrap.dedent(source)
    known = survey_functions([text, *map(textwrap.dedent, others)])
    return [(choice.name, choice.kind) for choice in choose_loops(ast.parse(text), known)]


TRAINING, TRIALS, PASS = LoopKind.TRAINING, LoopKind.TRIALS, LoopKind.PASS


def test_loops_that_train_and_those_around_them_are_chosen():
    found = choose_in("""
        for epoch in range(10):
            for inputs, labels in train_loader:
                loss.backward()
                optimizer.step()
            for inputs, labels in val_loader:
                model(inputs)
        for name in names:
            print(name)
    """)

    assert found == [("epoch", TRAINING), ("batch", TRAINING), ("batch_2", PASS)]


def test_training_is_found_through_functions_and_methods_of_other_files():
    engine = """
        class Engine:
            def run_step(self, batch):
                self.loss(batch).backward()
        def train_one(engine, data):
            for batch in data:
                engine.run_step(batch)
    """
    found = choose_in(
        """
        import engine
        for round in range(3):
            engine.train_one(it, data)
    """,
        engine,
    )

    assert found == [("round", TRAINING)]


def test_setting_the_mode_of_a_module_is_not_training():
    found = choose_in("""
        def train(model):
            loss.backward()
        def evaluate(models):
            for model in models:
                model.train()
                model.eval()
    """)

    assert found == []


def test_a_loop_that_creates_an_optimizer_in_each_iteration_is_a_loop_of_trials():
    found = choose_in("""
        for fold, (a, b) in enumerate(kf.split(x)):
            optimizer = torch.optim.Adam(model.parameters())
            for epoch in range(3):
                optimizer.step()
    """)

    assert found == [("fold", TRIALS), ("epoch", TRAINING)]


def test_an_optimizer_created_in_some_iterations_only_does_not_make_a_loop_of_trials():
    found = choose_in("""
        for epoch in range(9):
            if epoch == 5:
                optimizer = SGD(model.parameters())
            for batch in loader:
                optimizer.step()
    """)

    assert found == [("epoch", TRAINING), ("batch", TRAINING)]


@pytest.mark.parametrize(
    "body", ["w -= lr * grad", "w = w - lr * grad", "clf.partial_fit(x, y)", "state = train_step(state, x)",
             "params = optax.apply_updates(params, updates)", "agent.update(batch)"],
)  # fmt: skip
def test_training_without_torch_is_recognized(body: str):
    assert choose_in(f"for i in items:\n    {body}\n") == [("item", TRAINING)]


@pytest.mark.parametrize(
    "source",
    ["for o in optimizers:\n    o.step()\n", "for k, v in config.items():\n    d.update(k)\n",
     "x = [m.step() for m in ms]\n", "for step in range(9):\n    rows.append(step)\n",
     "def g():\n    for x in xs:\n        opt.step()\n        yield x\n",
     "async def f():\n    for x in xs:\n        opt.step()\n", "while queue:\n    env.step(queue.pop())\n"],
)  # fmt: skip
def test_loops_that_do_not_train_are_not_chosen(source: str):
    assert choose_in(source) == []


@pytest.mark.parametrize(
    ("head", "name"),
    [("for epoch in range(9)", "epoch"), ("for _ in range(args.num_epochs)", "epoch"), ("for i in range(9)", "i"),
     ("for i, batch in enumerate(loader)", "batch"), ("for step, (x, y) in enumerate(tqdm(loader))", "step"),
     ("for x, y in dl", "batch"), ("for i in range(0, len(x), bs)", "batch"), ("for seed in (1, 2)", "seed"),
     ("for train, test in kfold.split(x)", "fold"), ("while step < max_steps", "step"), ("while True", "turn"),
     ("while self.global_step < n", "global_step"), ("for _ in itertools.count()", "turn")],
)  # fmt: skip
def test_loops_get_the_names_people_use(head: str, name: str):
    assert [found for found, _ in choose_in(f"{head}:\n    optimizer.step()\n")] == [name]


def test_loop_names_are_unique_in_a_file():
    loops = "for batch in loader:\n    opt.step()\n" * 2 + "for batch_2 in loader:\n    opt.step()\n"

    assert [name for name, _ in choose_in(loops)] == ["batch", "batch_3", "batch_2"]


def test_adding_a_log_call_does_not_change_the_choice():
    loop = "for epoch in range(9):\n    for x in xs:\n        total += x\n    train(x)\n"
    asked = loop.replace("        total", "        writer.add_scalar('x', x)\n        print('x', x)\n        total")

    assert choose_in(asked, "def train(x): opt.step()") == choose_in(loop, "def train(x): opt.step()")


def test_a_file_that_calls_relive_loop_is_not_instrumented():
    assert choose_in("for e in relive.loop('e', range(3)):\n    for b in loader:\n        opt.step()\n") == []


def test_the_files_of_a_script_are_the_files_it_imports():
    files = {
        "jobs/train.py": "import helper\nfrom lib.engine import run\nimport numpy",
        "jobs/helper.py": "",
        "lib/__init__.py": "from . import more",
        "lib/engine.py": "from .deep import x",
        "lib/deep.py": "",
        "lib/more.py": "",
        "other.py": "",
    }

    assert set(reachable_files("jobs/train.py", files.get)) == set(files) - {"other.py"}
