"""Lightning: `Trainer(callbacks=[ReliveCallback()])` records its loops and what the module logs."""

from __future__ import annotations

from lightning.pytorch.callbacks import Callback

from relive.handsfree.frameworks import enter_lightning, lightning_callback

ReliveCallback = lightning_callback(Callback)
enter_lightning("lightning.pytorch")
