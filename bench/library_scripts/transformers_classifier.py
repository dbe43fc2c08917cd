"""A classifier of transformers with a schedule that restarts, an average of old weights, and labels from a generator."""

import copy

import torch
from transformers import BertConfig, BertForSequenceClassification, get_cosine_with_hard_restarts_schedule_with_warmup

torch.manual_seed(20)
model = BertForSequenceClassification(
    BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
)
best = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, 2, 20, num_cycles=2)


def batches():
    generator = torch.Generator().manual_seed(3)
    while True:
        ids = torch.randint(0, 30, (4, 6), generator=generator)
        yield ids, (ids.sum(1) % 2).long()


source = batches()
lowest = float("inf")

for epoch in range(5):
    for _ in range(2):
        ids, labels = next(source)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    if loss.item() < lowest:
        lowest = loss.item()
        best.load_state_dict(model.state_dict())
    print("loss:", loss.item())
    # probe late_best: sum(p.double().sum().item() for p in best.parameters())
    # probe late_lowest: lowest
# probe after_best: sum(p.double().sum().item() for p in best.parameters())
# probe after_next: float(next(source)[0].sum())
