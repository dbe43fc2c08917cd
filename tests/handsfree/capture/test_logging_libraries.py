"""Values passed to the installed loggers are captured, and the loggers still write them."""

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
        def report(value):
            bar.set_postfix(seen=value)
    """,
    "wandb": """
        import wandb
        wandb.init(project="p", mode="offline")
        def report(value):
            wandb.log({"seen": value, "deep": {"x": 1}})
    """,
    "mlflow": """
        import mlflow
        mlflow.set_tracking_uri("file:./mlruns")
        def report(value):
            mlflow.log_metrics({"seen": value})
    """,
}
TRAINING = """
        w = 3.0
        for epoch in range(3):
            w -= 0.1 * (grad := w)
            report(w)
"""


@pytest.mark.parametrize("library", SOURCES)
def test_values_of_a_logger_are_captured(library: str, script: Script):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    script.write(SOURCES[library].rstrip() + TRAINING)
    env = {"WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    script.relive("run", "train.py", env=env, timeout=300)
    frame = relive.dataframe("seen", home=script.home)

    assert frame["epoch"].tolist() == [0, 1, 2]
    assert frame["seen"].round(3).tolist() == [2.7, 2.43, 2.187]
    if library != "tqdm":
        assert list(script.project.glob({"wandb": "wandb/offline-run-*", "mlflow": "mlruns/*/*"}[library]))
