"""Hugging Face: a Trainer with dropout, a schedule, evaluation, a callback that counts, and metrics that remember."""

import numpy as np
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(3, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.drop = torch.nn.Dropout(0.2)
        self.out = torch.nn.Linear(8, 1)
        self.seen = []

    def forward(self, x, labels=None):
        out = self.out(self.drop(torch.relu(self.norm(self.hidden(x)))))
        loss = ((out - labels) ** 2).mean()
        self.seen.append(len(x))
        # probe inside: loss.item() + sum(self.seen) + x.sum().item()
        return {"loss": loss, "logits": out}


class Count(TrainerCallback):
    def __init__(self):
        self.epochs = 0
        self.losses = []

    def on_epoch_end(self, args, state, control, model=None, **told):
        self.epochs += 1
        # probe epoch: self.epochs + len(self.losses) + state.global_step + model.out.weight.sum().item()

    def on_log(self, args, state, control, logs=None, **told):
        self.losses.append(logs.get("loss", 0.0))


best = []


def compute_metrics(told):
    error = float(np.mean((told.predictions - told.label_ids) ** 2))
    best.append(min([error, *best]))
    return {"error": error, "best": best[-1]}


def rows(count):
    return [{"x": (x := torch.randn(3)), "labels": x.sum(0, keepdim=True).sin()} for _ in range(count)]


def main():
    torch.manual_seed(0)
    args = TrainingArguments(
        "out", num_train_epochs=5, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=2,
        report_to=[], save_strategy="no", eval_strategy="epoch", lr_scheduler_type="cosine", learning_rate=0.02,
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model=Net(), args=args, train_dataset=rows(22), eval_dataset=rows(8), compute_metrics=compute_metrics,
        callbacks=[Count()],
    )  # fmt: skip
    # probe before: trainer.model.out.weight.sum().item()
    result = trainer.train()
    # probe after: result.training_loss + result.global_step + len(best) + trainer.state.log_history[-1]["train_loss"]
    print("final:", trainer.evaluate()["eval_error"])


if __name__ == "__main__":
    main()
