"""A small diffusion model: a UNet, a noise scheduler and an average of the weights, all of diffusers."""

import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel

torch.manual_seed(5)
unet = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 8), norm_num_groups=4,
    down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
)  # fmt: skip
ema = EMAModel(unet.parameters(), decay=0.95, use_ema_warmup=True)
noise_scheduler = DDPMScheduler(num_train_timesteps=50)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=30)
images = torch.rand(8, 1, 8, 8)

for epoch in range(5):
    for batch in images.split(4):
        noise = torch.randn_like(batch)
        timesteps = torch.randint(0, 50, (len(batch),))
        noisy = noise_scheduler.add_noise(batch, noise, timesteps)
        loss = torch.nn.functional.mse_loss(unet(noisy, timesteps).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        ema.step(unet.parameters())
    print("loss:", loss.item())
    # probe late_average: sum(p.double().sum().item() for p in ema.shadow_params)
    # probe late_decay: float(ema.cur_decay_value)
    # probe late_rate: schedule.get_last_lr()[0]
# probe after_average: sum(p.double().sum().item() for p in ema.shadow_params)
# probe after_steps: float(ema.optimization_step)
