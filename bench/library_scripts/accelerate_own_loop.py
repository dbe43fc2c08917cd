"""An own loop with accelerate: everything is prepared, the scheduler too."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

set_seed(1)
accelerator = Accelerator(cpu=True)
x = torch.randn(64, 4)
y = (x.sum(1) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + 0.3 * step))
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

for epoch in range(6):
    for inputs, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    print("loss:", loss.item())
    # probe late_rate: scheduler.get_last_lr()[0]
    # probe late_weights: sum(p.double().sum().item() for p in model.parameters())
# probe after_rate: scheduler.get_last_lr()[0]
# probe after_steps: float(scheduler.scheduler.last_epoch)
