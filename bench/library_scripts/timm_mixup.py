"""Augmentations of timm, which draw from two random generators, and a plateau scheduler."""

import random

import numpy as np
import torch
from timm.data import Mixup
from timm.data.random_erasing import RandomErasing
from timm.loss import SoftTargetCrossEntropy
from timm.scheduler import PlateauLRScheduler

random.seed(7)
np.random.seed(7)
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = PlateauLRScheduler(optimizer, patience_t=1, decay_rate=0.5)
mixup = Mixup(mixup_alpha=0.4, cutmix_alpha=0.4, num_classes=4)
erase = RandomErasing(probability=0.6, device="cpu", mode="pixel")
criterion = SoftTargetCrossEntropy()
images, labels = torch.rand(16, 3, 8, 8), torch.arange(16) % 4

for epoch in range(8):
    mixed, targets = mixup(erase(images.clone()), labels)
    loss = criterion(model(mixed), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step(epoch, metric=loss.item())
    print("loss:", loss.item())
    # probe late_mixed: mixed.double().sum().item()
    # probe late_rate: optimizer.param_groups[0]["lr"]
    # probe late_bad: float(scheduler.lr_scheduler.num_bad_epochs)
# probe after_best: float(scheduler.lr_scheduler.best)
# probe after_draw: random.random() + float(np.random.rand())
