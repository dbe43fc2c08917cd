"""What a training is made of: a model, its optimizer, an epoch."""


class Model:
    def __init__(self):
        self.weight, self.grad = 0.0, 0.0

    def loss(self, batch):
        errors = [self.weight * x - y for x, y in batch]
        self.grad = sum(2 * e * x for e, (x, _) in zip(errors, batch, strict=True)) / len(batch)
        return sum(e * e for e in errors) / len(batch)


class Optimizer:
    def __init__(self, model, lr):
        self.model, self.lr, self.steps = model, lr, 0

    def step(self):
        self.model.weight -= self.lr * self.model.grad
        self.steps += 1


def run_epoch(model, optimizer, train_loader):
    losses = []
    for step, batch in enumerate(train_loader):
        losses.append(model.loss(batch))
        optimizer.step()
        # probe inside: model.grad + step
    return sum(losses) / len(losses)
