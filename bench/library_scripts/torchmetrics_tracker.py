"""A tracker, a running mean and a list-valued metric of torchmetrics."""

import torch
import torchmetrics
from torchmetrics.wrappers import MetricTracker

torch.manual_seed(4)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tracker = MetricTracker(torchmetrics.MeanSquaredError(), maximize=False)
recent = torchmetrics.aggregation.RunningMean(window=3)
seen = torchmetrics.CatMetric()

for epoch in range(6):
    tracker.increment()
    for _ in range(4):
        x = torch.randn(8, 3)
        y = x.sum(1, keepdim=True)
        out = model(x)
        loss = torch.nn.functional.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.update(out.detach(), y)
        recent(loss.detach())
        seen.update(loss.detach())
    print("loss:", loss.item())
    # probe late_recent: recent.compute().item()
    # probe late_seen: float(seen.compute().numel())
# probe after_best: float(tracker.best_metric())
# probe after_seen: seen.compute().sum().item()
