"""A plain torch script with a data loader, dropout, batch norm, a schedule, tqdm-like counting."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 6), torch.randint(0, 3, (48,)))
train_loader = DataLoader(data, batch_size=12, shuffle=True)
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
# probe before: sum(p.sum().item() for p in model.parameters())
for epoch in range(4):
    running = 0.0
    for _i, (inputs, labels) in enumerate(train_loader, 0):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()
        # probe inside: model[0].weight.grad.norm().item()
    scheduler.step()
    # probe epoch: model[1].running_mean.sum().item() + scheduler.get_last_lr()[0]
    print(f"[{epoch + 1}] loss: {running / len(train_loader):.3f}")
# probe after: model[4].weight.sum().item()
print("Finished Training")
