"""Early stopping: the best state is copied, and put back at the end."""

import copy
import random

random.seed(11)
data = [(x / 10, 2 * x / 10 + 1 + random.gauss(0, 0.2)) for x in range(30)]
train, valid = data[::2], data[1::2]
model = {"slope": 0.0, "offset": 0.0}


def loss_of(rows):
    return sum((model["slope"] * x + model["offset"] - y) ** 2 for x, y in rows) / len(rows)


def main(max_epochs=30, patience=2, lr=0.12):
    global model
    best, best_state, bad = float("inf"), None, 0
    # probe before: loss_of(valid)
    for epoch in range(max_epochs):
        random.shuffle(train)
        for x, y in train:
            error = model["slope"] * x + model["offset"] - y
            model["slope"] -= lr * error * x / 3
            model["offset"] -= lr * error / 3
            # probe inside: error
        val_loss = loss_of(valid)
        # probe epoch: model["slope"] + bad
        print(f"epoch {epoch} val_loss={val_loss:.5f}")
        if val_loss < best:
            best, best_state, bad = val_loss, copy.deepcopy(model), 0
        else:
            bad += 1
            if bad > patience:
                print("stopping early")
                break
    model = best_state
    # probe after: model["slope"] * 10 + best
    print("best val_loss:", loss_of(valid))


main()
