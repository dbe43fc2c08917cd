"""Hugging Face Transformers: `Trainer(…, callbacks=[ReliveCallback()])` records its loops and what it logs."""

from __future__ import annotations

from transformers import TrainerCallback, trainer

from relive.handsfree.frameworks import enter_transformers, transformers_callback

ReliveCallback = transformers_callback(TrainerCallback)
enter_transformers(trainer)
