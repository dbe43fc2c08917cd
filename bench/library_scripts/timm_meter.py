"""A small model of timm, with its meters, its scheduler and its average of the weights."""

import timm
import torch
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, accuracy

torch.manual_seed(6)
model = timm.create_model("resnet10t", num_classes=3, in_chans=1, drop_rate=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scheduler = CosineLRScheduler(optimizer, t_initial=6, warmup_t=2, warmup_lr_init=1e-4)
average = ModelEmaV3(model, decay=0.9)
losses, top1 = AverageMeter(), AverageMeter()
images, labels = torch.randn(12, 1, 32, 32), torch.arange(12) % 3

for epoch in range(4):
    model.train()
    for at in range(0, 12, 6):
        out = model(images[at : at + 6])
        loss = torch.nn.functional.cross_entropy(out, labels[at : at + 6])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        losses.update(loss.item(), 6)
        top1.update(accuracy(out, labels[at : at + 6])[0].item(), 6)
    scheduler.step(epoch + 1)
    print("loss:", loss.item())
    # probe late_mean: losses.avg
    # probe late_top: top1.avg
# probe after_mean: losses.avg
# probe after_count: float(top1.count)
# probe after_average: sum(p.double().sum().item() for p in average.module.parameters())
