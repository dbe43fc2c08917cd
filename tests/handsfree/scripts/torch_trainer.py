"""A trainer class over torch, with a config, workers of its own for logging, and a resumable range of epochs."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    """Draws noise from three generators whenever an item is taken."""

    def __len__(self):
        return 24

    def __getitem__(self, at):
        noise = random.random() + np.random.rand()
        return torch.full((3,), float(at) / 24) + 0.01 * torch.randn(3) + 0.01 * noise, torch.tensor([at / 24])


class Trainer:
    def __init__(self, args):
        self.args = args
        self.net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, args.epochs)
        self.loader = DataLoader(Noisy(), batch_size=6, shuffle=True, generator=torch.Generator().manual_seed(4))
        self.global_step, self.history = 0, []

    def training_step(self, batch):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.global_step += 1
        # probe inside: loss.item() * self.global_step
        return loss.item()

    def fit(self, start=0):
        # probe before: self.net[0].weight.sum().item()
        for epoch in range(start, self.args.epochs):
            losses = [self.training_step(batch) for batch in self.loader]
            self.sched.step()
            self.history.append(sum(losses) / len(losses))
            # probe epoch: self.history[-1] + self.opt.param_groups[0]["lr"]
            print(f"Epoch: {epoch}, loss: {self.history[-1]:.5f}, step: {self.global_step}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    trainer = Trainer(args)
    trainer.fit(start=1)
    # probe after: sum(trainer.history)


main()
