"""A small detector for a street camera: is it a car, a cyclist, a pedestrian? Fine-tuned every few days."""

import numpy as np

import relive

CLASSES = ["car", "cyclist", "ped"]
lr = relive.arg("lr", 0.5)
epochs = relive.arg("epochs", 6)
day = relive.arg("day", 0)


def load(path):
    with np.load(relive.data(path.rpartition("/")[2], path)) as stored:
        return stored["x"], stored["y"]


def predict(w, x):
    scores = np.exp(x @ w - (x @ w).max(1, keepdims=True))
    return scores / scores.sum(1, keepdims=True)


def validate(w, x, y):
    found = predict(w, x)
    guess = found.argmax(1)
    return float((guess == y).mean())


rng = np.random.default_rng(3)
x_train, y_train = load(f"data/day_{day}.npz")
x_val, y_val = load("data/val.npz")
weights = np.load("data/base.npy")
model = {"w": weights}

with relive.checkpointing(model=model, every=1):
    for epoch in relive.loop("epoch", range(epochs)):
        order = rng.permutation(len(x_train))
        for rows in relive.loop("batch", np.array_split(order, 20)):
            error = predict(model["w"], x_train[rows])
            error[np.arange(len(rows)), y_train[rows]] -= 1
            model["w"] = model["w"] - lr * x_train[rows].T @ error / len(rows)
        acc = validate(model["w"], x_val, y_val)
        relive.log("acc", acc)
        print(f"epoch {epoch}: {acc:.3f}")

np.save("detector.npy", model["w"])
relive.artifact("detector.npy")
