"""The names of what a script may tell its values by; each can be switched off."""

SOURCES = ("print", "logging", "tqdm", "tensorboard", "wandb", "mlflow", "frameworks", "config")
