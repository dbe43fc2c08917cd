"""Functions, argparse, and a log by `logging`."""

import argparse
import logging
import random

log = logging.getLogger("train")


def make_data(count, rng):
    points = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(count)]
    return [(a, b, 3 * a - 2 * b + rng.gauss(0, 0.1)) for a, b in points]


def train_one_epoch(weights, data, lr, rng):
    total = 0.0
    batches = [data[i : i + 8] for i in range(0, len(data), 8)]
    rng.shuffle(batches)
    for batch in batches:
        grads = [0.0, 0.0]
        for a, b, target in batch:
            error = weights["a"] * a + weights["b"] * b - target
            grads[0] += error * a / len(batch)
            grads[1] += error * b / len(batch)
            total += error * error
        weights["a"] -= lr * grads[0]
        weights["b"] -= lr * grads[1]
        # probe inside: grads[0] + weights["b"]
    return total / len(data)


def evaluate(weights, data):
    return max(abs(weights["a"] * a + weights["b"] * b - target) for a, b, target in data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    rng = random.Random(1)
    data = make_data(48, rng)
    weights = {"a": 0.0, "b": 0.0}
    # probe before: evaluate(weights, data)
    for epoch in range(1, args.epochs + 1):
        loss = train_one_epoch(weights, data, args.lr, rng)
        # probe epoch: evaluate(weights, data)
        log.info("Epoch %d/%d: train loss %.6f", epoch, args.epochs, loss)
    # probe after: weights["a"] * 2
    log.info(f"worst error: {evaluate(weights, data):.3f}")


if __name__ == "__main__":
    main()
