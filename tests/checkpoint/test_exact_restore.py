"""The law of checkpoints: restored in a fresh process, a training continues bit for bit as recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import relive

pytest.importorskip("torch")
SCRIPT = Path(__file__).with_name("trainings.py")
NAMES = (
    "mlp_sgd", "cnn_adamw_cosine", "adamw_fused", "two_workers", "own_generators", "accumulation", "ema",
    "autocast_bf16", "numpy_only", "partial_fit",
)  # fmt: skip


def run_script(*args: str, home: Path, **env: str) -> Any:
    environ = {**os.environ, "RELIVE_HOME": str(home), "RELIVE_VERSIONS": "0", **env}
    done = subprocess.run(
        [sys.executable, "-W", "error::relive.errors.ReliveWarning", str(SCRIPT), *args],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def recorded_and_restored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], dict[str, Any]]:
    """Records all trainings in one process and restores them in another, so that torch is imported only twice."""
    names = [name for name in NAMES if name != "partial_fit" or _has_sklearn()]
    home = tmp_path_factory.mktemp("home")
    runs = run_script("record", *names, home=home)
    return home, runs, run_script("restore", str(home), json.dumps(runs), home=home, RELIVE_OFF="1")


def _has_sklearn() -> bool:
    import importlib.util

    return importlib.util.find_spec("sklearn") is not None


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_restored_training_continues_bit_for_bit(
    recorded_and_restored: tuple[Path, dict[str, str], dict[str, Any]], name: str
) -> None:
    home, runs, restored = recorded_and_restored
    if name not in runs:
        pytest.skip("scikit-learn is not installed")
    logged = relive.sql(
        f"select name, value from logs where run = '{runs[name]}' and iterations[1] >= 2 order by seq", home=home
    )

    recorded = list(zip(logged["name"], logged["value"], strict=True))
    assert len(recorded) > 0
    assert [tuple(pair) for pair in restored[name]] == recorded
