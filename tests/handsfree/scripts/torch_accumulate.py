"""Gradient accumulation by steps, an endless stream of batches, warm-up, clipping."""

import itertools

import torch

torch.manual_seed(2)
weights = torch.nn.Parameter(torch.zeros(5))
optimizer = torch.optim.SGD([weights], lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 5))
truth = torch.arange(5.0)
ema_loss = None
# probe before: truth.sum().item()
for step in itertools.count():
    if step >= 8:
        break
    optimizer.zero_grad(set_to_none=True)
    for _micro in range(3):
        x = torch.randn(8, 5)
        loss = ((x @ weights - x @ truth) ** 2).mean() / 3
        loss.backward()
        # probe inside: loss.item()
    torch.nn.utils.clip_grad_norm_([weights], 5.0)
    optimizer.step()
    schedule.step()
    ema_loss = loss.item() if ema_loss is None else 0.9 * ema_loss + 0.1 * loss.item()
    # probe epoch: ema_loss
    print(f"step={step} loss={loss.item():.4f} lr={schedule.get_last_lr()[0]:.4f}")
# probe after: weights.sum().item()
