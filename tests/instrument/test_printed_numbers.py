"""Named numbers in printed texts, and the names that log calls log."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.instrument import find_named_numbers, logged_name_patterns, names_passed_to_loggers


def find(*parts: object) -> list[tuple[str, object]]:
    return find_named_numbers(parts, lambda part: isinstance(part, float | int))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("loss: 0.31", [("loss", 0.31)]),
        ("Epoch 3/10, loss 0.31, val_acc: 93.1%", [("loss", 0.31), ("val_acc", 93.1)]),
        ("[1,   200] loss: 2.173", [("loss", 2.173)]),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.25", [("loss", 0.25)]),
        ("Test set: Average loss: 0.12, Accuracy: 9000/10000 (90%)", [("average_loss", 0.12)]),
        ("loss=0.3 lr=1e-3 | time 3.2s", [("loss", 0.3), ("lr", 0.001), ("time", 3.2)]),
        ("val loss = -1.5e-3, F1 0.3", [("val_loss", -0.0015), ("f1", 0.3)]),
        ("iter 10 loss inf", [("loss", float("inf"))]),
        ("2026-01-01 12:00:00 loss 3", [("loss", 3)]),
        ("127.0.0.1:8080 in 3 of 4", []),
        ("saved to model_3.pt after 5 minutes", []),
        ("the accuracy of this network on all of the images: 55", []),
        ("tokens 1,234,567", []),
        ("epoch 3", []),
        ("", []),
    ],
)
def test_named_numbers_are_found_in_texts(text: str, found: list[tuple[str, float]]):
    assert find(text) == found


def test_values_between_texts_keep_their_precision():
    assert find("loss: ", 0.123456789, " acc ", 1) == [("loss", 0.123456789), ("acc", 1)]
    assert find("train", " ", "loss", " ", 0.5) == [("train_loss", 0.5)]
    assert find("x: ", object(), " yy ", 3) == [("yy", 3)]


@given(st.text())
def test_any_text_can_be_searched(text: str):
    assert all(isinstance(name, str) and name for name, _ in find(text))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("print(f'grad_norm: {g:.3f}')", "grad_norm"),
        ("print('grad norm', g)", "grad_norm"),
        ("print('loss %.3f grad_norm %.3f' % (a, b))", "grad_norm"),
        ("print('grad_norm: {}'.format(g))", "grad_norm"),
        ("print(f'{split} loss: {x}')", "val_loss"),
        ("log.info('lr %g grad_norm %g', lr, g)", "grad_norm"),
        ("writer.add_scalar('grad_norm', g, step)", "grad_norm"),
        ("writer.add_scalar(f'grad/{layer}', g)", "grad/fc1"),
        ("writer.add_scalars('grad', {'norm': g})", "grad/norm"),
        ("wandb.log({'loss': x, 'grad_norm': g})", "grad_norm"),
        ("wandb.log({'grad': {'norm': g}})", "grad.norm"),
        ("mlflow.log_metric('grad_norm', g)", "grad_norm"),
        ("mlflow.log_metrics({'grad_norm': g})", "grad_norm"),
        ("pbar.set_postfix(grad_norm=g)", "grad_norm"),
        ("pbar.set_postfix({'grad_norm': g})", "grad_norm"),
        ("self.log('grad_norm', g)", "grad_norm"),
    ],
)
def test_the_names_a_call_logs_are_found(call: str, name: str):
    patterns = logged_name_patterns(ast.parse(call).body[0].value)  # type: ignore[attr-defined]

    assert any(pattern.fullmatch(name) for pattern in patterns)
    assert not any(pattern.fullmatch("something_else") for pattern in patterns)


def test_constant_names_passed_to_loggers_are_collected():
    assert names_passed_to_loggers(["w.add_scalar('loss', x)\nwandb.log({'acc': 1})\nprint('f1', f)\n", "("]) == {
        "loss",
        "acc",
    }
