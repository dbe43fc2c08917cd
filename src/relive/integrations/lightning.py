"""Lightning: `Trainer(callbacks=[ReliveCallback()])` records its loops and what the module logs."""

from __future__ import annotations

from lightning.pytorch.callbacks import Callback

from relive.handsfree.frameworks import lightning_callback, patch_lightning

ReliveCallback = lightning_callback(Callback)
patch_lightning("lightning.pytorch")
