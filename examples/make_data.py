"""Two interleaved half moons, as data/train.pt."""

from pathlib import Path

import torch

torch.manual_seed(1)
labels = torch.randint(0, 2, (1000,))
angle = torch.rand(1000) * torch.pi
side = 1 - 2 * labels
points = torch.stack([side * torch.cos(angle) + labels, side * torch.sin(angle) + 0.5 * labels], dim=1)
Path("data").mkdir(exist_ok=True)
torch.save({"x": points + 0.1 * torch.randn(1000, 2), "y": labels}, "data/train.pt")
print("data/train.pt: 1000 points")
