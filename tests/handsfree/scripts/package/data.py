"""A loader that shuffles anew each time."""

import random


class Loader:
    def __init__(self, count, batch_size, seed):
        self.rng = random.Random(seed)
        self.rows = [(self.rng.random(), self.rng.random()) for _ in range(count)]
        self.batch_size = batch_size

    def __len__(self):
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self):
        order = list(self.rows)
        self.rng.shuffle(order)
        for start in range(0, len(order), self.batch_size):
            yield order[start : start + self.batch_size]
