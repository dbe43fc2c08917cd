"""Metrics of torchmetrics that go on over all epochs."""

import torch
import torchmetrics
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
x = torch.randn(96, 4)
y = (x[:, 0] + x[:, 1] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=24, shuffle=True)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=2, average="macro")
mean_loss = torchmetrics.MeanMetric()
both = torchmetrics.MetricCollection(
    {
        "f1": torchmetrics.F1Score(task="multiclass", num_classes=2, average="macro"),
        "confusion": torchmetrics.ConfusionMatrix(task="multiclass", num_classes=2),
    }
)

for epoch in range(6):
    for inputs, labels in loader:
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy.update(logits, labels)
        mean_loss.update(loss.detach())
        both.update(logits, labels)
    print("loss:", loss.item())
    # probe late_accuracy: accuracy.compute().item()
    # probe late_mean: mean_loss.compute().item()
# probe after_f1: both.compute()["f1"].item()
# probe after_confusion: float(both.compute()["confusion"][0, 0])
# probe after_accuracy: accuracy.compute().item()
