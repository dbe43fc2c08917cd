"""Writes data/shapes.pt: noisy images of four shapes, of any size and at any place."""

from pathlib import Path

import torch

SIZE, NOISE = 24, 0.6
torch.manual_seed(1)


def draw(count: int) -> dict[str, torch.Tensor]:
    """Images and labels: 0 disk, 1 square, 2 ring, 3 cross."""
    labels = torch.randint(0, 4, (count,))
    radius = 4 + 4 * torch.rand(count, 1, 1)
    middle = radius + (SIZE - 1 - 2 * radius) * torch.rand(2, count, 1, 1)
    line = torch.arange(SIZE)
    x, y = (line - middle[0].squeeze(2)).unsqueeze(1).abs(), (line - middle[1].squeeze(2)).unsqueeze(2).abs()
    distance = (x**2 + y**2).sqrt()
    disk, square = distance < radius, torch.maximum(x, y) < 0.85 * radius
    ring, cross = disk & (distance > 0.6 * radius), disk & (torch.minimum(x, y) < 0.3 * radius)
    shapes = torch.stack([disk, square, ring, cross], dim=1)[torch.arange(count), labels]
    return {"images": (shapes + NOISE * torch.randn(count, SIZE, SIZE)).unsqueeze(1), "labels": labels}


Path("data").mkdir(exist_ok=True)
torch.save({"train": draw(4000), "test": draw(1000)}, "data/shapes.pt")
print("data/shapes.pt: 4,000 images to train with, 1,000 to test with")
