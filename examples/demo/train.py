"""Trains a small convolutional network to tell shapes apart. It logs the loss of each epoch, and nothing else."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import relive

lr = relive.arg("lr", 1e-3)
epochs = relive.arg("epochs", 20)

torch.set_num_threads(1)
torch.manual_seed(0)
shapes = torch.load(relive.data("shapes", "data/shapes.pt"))
loader = DataLoader(TensorDataset(*shapes["train"].values()), batch_size=64, shuffle=True)
images, labels = shapes["test"].values()

net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(32, 4),
)  # fmt: skip
optimizer = torch.optim.Adam(net.parameters(), lr=lr)

with relive.checkpointing(model=net, optimizer=optimizer):
    for epoch in relive.loop("epoch", range(epochs)):
        total = 0.0
        for x, y in relive.loop("step", loader):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        relive.log("loss", total / len(loader))
        print(f"epoch {epoch:2}  loss {total / len(loader):.3f}  " + "#" * round(40 * total / len(loader)), flush=True)

torch.save(net.state_dict(), "model.pt")
relive.artifact("model.pt")
