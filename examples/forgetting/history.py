"""The history of the detector: the changes to its code in ten versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# Each step: pairs of old and new text. The fifth step is the mistake; the ninth reverts it.
STEPS: list[list[tuple[str, str]]] = [
    [],
    [('lr = relive.arg("lr", 0.5)', 'lr = relive.arg("lr", 0.4)')],
    [  # a learning rate that decays
        (
            "        order = rng.permutation(len(x_train))\n",
            "        rate = lr * 0.9**epoch\n        order = rng.permutation(len(x_train))\n",
        ),
        ("- lr * x_train", "- rate * x_train"),
    ],
    [  # clearer names
        ("    found = predict(w, x)\n", "    shares = predict(w, x)\n"),
        ("    guess = found.argmax(1)\n", "    labels = shares.argmax(1)\n"),
        ("    return float((guess == y).mean())", "    return float((labels == y).mean())"),
        ("acc = validate", "accuracy = validate"), ('relive.log("acc", acc)', 'relive.log("acc", accuracy)'),
        ("{acc:.3f}", "{accuracy:.3f}"),
    ],
    [  # "drop what the labellers were unsure about": which is nearly every pedestrian
        (
            "weights = np.load",
            "sure = np.abs(x_train[:, 2]) < 1.0  # unclear at night\n"
            "x_train, y_train = x_train[sure], y_train[sure]\nweights = np.load",
        ),
    ],
    [  # training in a separate function
        (
            "            error = predict(model[\"w\"], x_train[rows])\n"
            "            error[np.arange(len(rows)), y_train[rows]] -= 1\n"
            "            model[\"w\"] = model[\"w\"] - rate * x_train[rows].T @ error / len(rows)\n",
            "            step(model, x_train[rows], y_train[rows], rate)\n",
        ),
        (
            "rng = np.random",
            "def step(model, x, y, rate):\n"
            "    error = predict(model[\"w\"], x)\n"
            "    error[np.arange(len(x)), y] -= 1\n"
            "    model[\"w\"] = model[\"w\"] - rate * x.T @ error / len(x)\n\n\nrng = np.random",
        ),
    ],
    [("np.array_split(order, 20)", "np.array_split(order, 25)")],
    [("        accuracy = validate", "        # days are short\n        accuracy = validate")],
    [  # the filter is removed again
        (
            "sure = np.abs(x_train[:, 2]) < 1.0  # unclear at night\nx_train, y_train = x_train[sure], y_train[sure]\n",
            "",
        ),
    ],
    [('lr = relive.arg("lr", 0.4)', 'lr = relive.arg("lr", 0.3)')],
]  # fmt: skip

# The questions of the last day, and where they are put into the newest version.
F1_ALERT = (
    "    return float((labels == y).mean())",
    '    relive.log("f1_alert", f1(labels != 0, y != 0))\n    return float((labels == y).mean())',
)
F1_PED = (
    'np.save("detector.npy", model["w"])',
    'relive.log("f1_ped", f1(predict(model["w"], x_val).argmax(1) == 2, y_val == 2))\n'
    'np.save("detector.npy", model["w"])',
)
HELPER = (
    "def validate(",
    "def f1(found, true):\n"
    "    hits = float((found & true).sum())\n"
    "    return 2 * hits / max(1.0, float(found.sum() + true.sum()))\n\n\ndef validate(",
)


def versions(first: str) -> Iterator[str]:
    """The ten versions of train.py, one after the other."""
    text = first
    for step in STEPS:
        text = changed(text, step)
        yield text


def changed(text: str, step: list[tuple[str, str]]) -> str:
    for old, new in step:
        if old not in text:
            raise ValueError(f"the script has no {old!r} to change")
        text = text.replace(old, new)
    return text


def asked(newest: str) -> str:
    """The newest version with the statements that nobody had thought of."""
    return changed(newest, [HELPER, F1_ALERT, F1_PED])


def make_data(folder: Path) -> None:
    """A camera's days: mostly cars, and pedestrians that lie apart in one feature."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    centres = np.array([[1.5, 0.0, 0.0, 1.0], [-1.0, 1.2, 0.2, 1.0], [-0.2, -0.6, 1.8, 1.0]])

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.choice(3, count, p=[0.7, 0.18, 0.12])
        noise = rng.normal(0, 0.45, (count, 4)) * [1, 1, 1, 0]
        return centres[labels] + noise, labels

    for day in range(10):
        x, y = draw(600)
        np.savez(folder / f"day_{day}.npz", x=x, y=y)
    x, y = draw(400)
    np.savez(folder / "val.npz", x=x, y=y)
    np.save(folder / "base.npy", rng.normal(0, 0.01, (4, 3)))
