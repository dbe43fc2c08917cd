"""Hugging Face Transformers: `Trainer(…, callbacks=[ReliveCallback()])` records its loops and what it logs."""

from __future__ import annotations

from transformers import TrainerCallback, trainer

from relive.handsfree.frameworks import patch_transformers, transformers_callback

ReliveCallback = transformers_callback(TrainerCallback)
patch_transformers(trainer)
