"""Loggers that are installed here are heard for real, and keep what they are told as ever."""

from __future__ import annotations

import importlib.util

import pytest

import relive
from tests.conftest import Script

pytestmark = pytest.mark.slow

SOURCES = {
    "tqdm": """
        from tqdm import tqdm
        bar = tqdm(range(3))
        def tell(value):
            bar.set_postfix(told=value)
    """,
    "wandb": """
        import wandb
        wandb.init(project="p", mode="offline")
        def tell(value):
            wandb.log({"told": value, "deep": {"x": 1}})
    """,
    "mlflow": """
        import mlflow
        mlflow.set_tracking_uri("file:./mlruns")
        def tell(value):
            mlflow.log_metrics({"told": value})
    """,
}
TRAINING = """
        w = 3.0
        for epoch in range(3):
            w -= 0.1 * (grad := w)
            tell(w)
"""


@pytest.mark.parametrize("library", SOURCES)
def test_a_logger_is_heard(library: str, script: Script):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    script.write(SOURCES[library].rstrip() + TRAINING)
    env = {"WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    script.relive("run", "train.py", env=env, timeout=300)
    frame = relive.dataframe("told", home=script.home)

    assert frame["epoch"].tolist() == [0, 1, 2]
    assert frame["told"].round(3).tolist() == [2.7, 2.43, 2.187]
    if library != "tqdm":
        assert list(script.project.glob({"wandb": "wandb/offline-run-*", "mlflow": "mlruns/*/*"}[library]))
