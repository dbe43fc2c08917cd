"""ignite: the engine has the loop over the epochs, and an average of the weights is a handler."""

import torch
from ignite.engine import Engine, Events
from ignite.handlers import EMAHandler, LRScheduler

torch.manual_seed(15)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = [torch.randn(8, 4) for _ in range(3)]
history = []


def train_step(engine, batch):
    optimizer.zero_grad()
    loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


trainer = Engine(train_step)
average = EMAHandler(model, momentum=0.1)
average.attach(trainer, event=Events.ITERATION_COMPLETED)
schedule = LRScheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
trainer.add_event_handler(Events.ITERATION_STARTED, schedule)


@trainer.on(Events.EPOCH_COMPLETED)
def report(engine):
    history.append(engine.state.output)
    print("loss:", engine.state.output)


trainer.run(data, max_epochs=5)
# probe after_average: average.ema_model.weight.double().sum().item()
# probe after_history: sum(history)
# probe after_rate: optimizer.param_groups[0]["lr"]
