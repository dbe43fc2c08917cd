"""`while` loops with a break, a continue and an else."""

import random

rng = random.Random(5)
weight, velocity, lr = 4.0, 0.0, 0.05
# probe before: rng.getstate()[1][0] + weight
step, skipped, best = 0, 0, float("inf")
while step < 12:
    step += 1
    noise = rng.gauss(0, 0.1)
    if abs(noise) > 0.2:
        skipped += 1
        continue
    inner = 0
    while True:
        grad = 2 * weight + noise
        velocity = 0.5 * velocity - lr * grad
        weight += velocity
        inner += 1
        # probe inside: grad
        if inner == 3 or abs(velocity) < 1e-6:
            break
    # probe epoch: velocity
    best = min(best, weight * weight)
    print(f"step {step} loss: {weight * weight:.6f}")
else:
    print("ran out, best:", best)
# probe after: weight + skipped
print(f"last weight: {weight}")
