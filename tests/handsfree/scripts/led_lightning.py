"""Lightning: a module with dropout and outputs that it gathers, a data module, validation, and early stopping."""

import lightning.pytorch as pl
import torch


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        self.outputs = []
        self.best = []

    def training_step(self, batch, at):
        x, y = batch
        loss = ((self.body(x) - y) ** 2).mean()
        # probe inside: loss.item() + x.sum().item() + self.global_step + len(self.best)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, at):
        x, y = batch
        self.outputs.append(((self.body(x) - y) ** 2).mean().item())

    def on_validation_epoch_end(self):
        error = sum(self.outputs) / len(self.outputs)
        self.best.append(min([error, *self.best]))
        self.outputs.clear()
        self.log("error", error)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]


class Data(pl.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.drawn = torch.Generator().manual_seed(5)

    def setup(self, stage):
        x = torch.randn(40, 3)
        rows = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).sin())
        self.train_rows, self.val_rows = torch.utils.data.random_split(rows, [28, 12])

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_rows, batch_size=4, shuffle=True, generator=self.drawn)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(self.val_rows, batch_size=4)


class Count(pl.Callback):
    def __init__(self):
        self.batches = 0

    def on_train_batch_end(self, *told):
        self.batches += 1

    def on_train_epoch_end(self, trainer, module):
        lr = trainer.optimizers[0].param_groups[0]["lr"]
        # probe epoch: self.batches + lr + float(trainer.callback_metrics["error"]) + trainer.current_epoch
        print("lr:", lr)


def main():
    torch.manual_seed(0)
    net, data = Net(), Data()
    trainer = pl.Trainer(
        max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Count(), pl.callbacks.EarlyStopping("error", patience=4)],
    )  # fmt: skip
    # probe before: net.body[0].weight.sum().item()
    trainer.fit(net, datamodule=data)
    # probe after: net.body[0].weight.sum().item() + float(trainer.callback_metrics["loss_epoch"]) + len(net.best)
    print("final:", sum(net.best))


if __name__ == "__main__":
    main()
