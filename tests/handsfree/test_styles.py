"""Scripts in common styles: each is recorded unchanged, and answers questions at four depths."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.handsfree.styles import Style, check

PLAIN = [
    Style("plain.py"),
    Style("functions.py", ("train.py", "--lr", "0.2")),
    Style("trainer.py"),
    Style("while_loop.py"),
    Style("folds.py"),
    Style("early_stopping.py"),
    Style("rl.py"),
    Style("package", ("-m", "package.train")),
    Style("sklearn_partial.py"),
]
TORCH = [
    Style("torch_plain.py"),
    Style("torch_gan.py"),
    Style("torch_accumulate.py"),
    Style("torch_ema.py"),
    Style("torch_config.py", ("train.py", "optim.lr=0.05", "model.hidden=6")),
    Style("torch_trainer.py", ("train.py", "--epochs", "4")),
]
BRIEFLY = ("trainer.py", "while_loop.py", "package")


@pytest.mark.long
@pytest.mark.parametrize("style", [s for s in PLAIN if s.name in BRIEFLY], ids=lambda style: style.name)
def test_an_unchanged_script_answers_questions_later(style: Style, tmp_path: Path):
    found = check(style, tmp_path, ("epoch", "inside"))

    assert set(found.values()) <= {"proven", "reproduced"}


@pytest.mark.slow
@pytest.mark.parametrize("style", [*PLAIN, *TORCH], ids=lambda style: style.name)
def test_a_script_of_each_style_answers_questions_at_every_depth(style: Style, tmp_path: Path):
    found = check(style, tmp_path, workers=2)

    assert "unverified" not in found.values()
    assert {found["epoch"], found["inside"]} <= {"proven", "reproduced"}
