"""The commands of `relive …`, one module per subject."""
