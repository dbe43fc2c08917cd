"""An average of the weights, a gradient scaler, validation with the average, the best kept."""

import copy

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        for mine, theirs in zip(self.shadow.parameters(), model.parameters(), strict=True):
            mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)


def validate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.mse_loss(model(x), y).item()
    model.train()
    return total


def main():
    torch.manual_seed(3)
    x = torch.randn(40, 4)
    y = x.sum(1, keepdim=True).sin()
    train_loader = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 32, 8)]
    val_loader = [(x[32:], y[32:])]
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 1))
    opt = torch.optim.RMSprop(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=True, init_scale=1024.0, growth_interval=3)
    ema = EMA(net, 0.9)
    best, best_state = float("inf"), None
    # probe before: validate(net, val_loader)
    for epoch in range(4):
        for inputs, targets in train_loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            ema.update(net)
            # probe inside: loss.item() + scaler.get_scale()
        val_loss = validate(ema.shadow, val_loader)
        # probe epoch: ema.updates + ema.shadow[0].weight.sum().item()
        if val_loss < best:
            best, best_state = val_loss, copy.deepcopy(ema.shadow.state_dict())
        print(f"epoch {epoch}: val_loss {val_loss:.5f} best {best:.5f}")
    net.load_state_dict(best_state)
    # probe after: net[3].weight.sum().item()
    print("final:", validate(net, val_loader))


if __name__ == "__main__":
    main()
