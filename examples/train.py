"""A small classifier: a training script that uses relive."""

import torch
from torch import nn

import relive

lr = relive.arg("lr", 1e-2)
seed = relive.arg("seed", 0)
epochs = relive.arg("epochs", 5)

torch.manual_seed(seed)
points = torch.load(relive.data("train", "data/train.pt"))
x, y = points["x"], points["y"]
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[:800], y[:800]), batch_size=32, shuffle=True)

net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)

with relive.checkpointing(model=net, optimizer=optimizer):
    for _epoch in relive.loop("epoch", range(epochs)):
        for inputs, labels in relive.loop("step", loader):
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            relive.log("loss", loss.item())
        correct = net(x[800:]).argmax(1) == y[800:]
        relive.log("val_acc", correct.float().mean().item())

torch.save(net.state_dict(), "model.pt")
relive.artifact("model.pt")
