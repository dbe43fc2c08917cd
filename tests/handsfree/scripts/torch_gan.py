"""Two networks, two optimizers, noise drawn every step."""

import torch
from torch import nn

torch.manual_seed(1)
generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(), nn.Linear(8, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(critic.parameters(), lr=0.01, betas=(0.5, 0.9))
bce = nn.BCEWithLogitsLoss()
real = torch.randn(64, 2) * 0.3 + 1
batches = real.split(16)
# probe before: critic(real).sum().item()
for _epoch in range(3):
    for x in batches:
        fake = generator(torch.randn(len(x), 3))
        loss_d = bce(critic(x), torch.ones(len(x), 1)) + bce(critic(fake.detach()), torch.zeros(len(x), 1))
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        loss_g = bce(critic(fake), torch.ones(len(x), 1))
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        # probe inside: fake.mean().item()
    # probe epoch: generator[0].weight.norm().item()
    print(f"D loss: {loss_d.item():.4f}, G loss: {loss_g.item():.4f}")
# probe after: critic[0].bias.sum().item()
