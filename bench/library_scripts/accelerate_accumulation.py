"""accelerate with gradient accumulation over a number of batches that does not divide an epoch."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
data = TensorDataset(torch.randn(40, 5), torch.randn(40, 1))
model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8, shuffle=True))
updates, history = 0, []
note = history.append

for epoch in range(6):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                updates += 1
                note(loss.item())
    print("loss:", loss.item())
    # probe late_updates: float(updates)
    # probe late_history: sum(history)
# probe after_history: sum(history)
# probe after_weights: model.weight.double().sum().item()
