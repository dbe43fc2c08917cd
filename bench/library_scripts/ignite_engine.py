"""ignite: an engine that trains, one that evaluates, metrics and handlers."""

import torch
from ignite.engine import Engine, Events
from ignite.metrics import Average, RunningAverage

torch.manual_seed(14)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
data = [torch.randn(8, 4) for _ in range(4)]
counts = {"iterations": 0}


def train_step(engine, batch):
    optimizer.zero_grad()
    loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


trainer, evaluator = Engine(train_step), Engine(lambda engine, batch: model(batch).mean().item())
RunningAverage(output_transform=lambda out: out).attach(trainer, "running")
Average().attach(evaluator, "mean")


@trainer.on(Events.ITERATION_COMPLETED)
def count(engine):
    counts["iterations"] += 1


for epoch in range(6):
    trainer.run(data, max_epochs=1)
    evaluator.run(data[:2])
    print("loss:", trainer.state.output)
    # probe late_running: float(trainer.state.metrics["running"])
    # probe late_mean: float(evaluator.state.metrics["mean"])
    # probe late_iterations: float(counts["iterations"])
# probe after_iterations: float(counts["iterations"])
# probe after_weights: model.weight.double().sum().item()
