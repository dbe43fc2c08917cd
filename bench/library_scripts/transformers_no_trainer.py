"""A language model of transformers in a loop of one's own, as its examples without a Trainer have it."""

import math

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_scheduler

torch.manual_seed(19)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2))
texts = torch.randint(0, 40, (16, 12))
train, valid = DataLoader(texts[:12], shuffle=True, batch_size=3), DataLoader(texts[12:], batch_size=2)
decayed = [p for n, p in model.named_parameters() if "bias" not in n and "ln" not in n]
others = [p for n, p in model.named_parameters() if "bias" in n or "ln" in n]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=5e-3)
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=4, num_training_steps=60)
model, optimizer, train, valid, scheduler = accelerator.prepare(model, optimizer, train, valid, scheduler)
completed_steps = 0

for epoch in range(5):
    model.train()
    total_loss = 0.0
    for batch in train:
        with accelerator.accumulate(model):
            loss = model(input_ids=batch, labels=batch).loss
            total_loss += loss.detach().float()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            completed_steps += 1
    model.eval()
    losses = []
    for batch in valid:
        with torch.no_grad():
            losses.append(accelerator.gather_for_metrics(model(input_ids=batch, labels=batch).loss.repeat(2)))
    perplexity = math.exp(torch.mean(torch.cat(losses)))
    print(f"epoch {epoch}: perplexity: {perplexity}")
    # probe late_rate: scheduler.get_last_lr()[0]
    # probe late_train: float(total_loss) / len(train)
    # probe late_steps: float(completed_steps)
# probe after_rate: scheduler.get_last_lr()[0]
# probe after_weights: sum(p.double().sum().item() for p in model.parameters())
