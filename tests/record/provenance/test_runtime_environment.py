"""Laws of the environment record: fast, complete, and without secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from relive.record.provenance.runtime_environment import describe_environment, installed_packages
from relive.record.provenance.secret_filter import REDACTED, SecretFilter


def test_only_selected_variables_are_recorded_and_a_secret_never() -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "NCCL_TOKEN": "abc", "SLURM_JOB_NODELIST": "n[1-2]",
        "EDITOR": "vi", "MY_DATA": "x", "MY_KEY": "abc", "STORE": "s3://me:abc@host", "TORCH_HOME": "/t",
    }  # fmt: skip

    kept = describe_environment(environ, [], secrets=SecretFilter(), extra=["MY_DATA", "MY_KEY", "STORE"])["variables"]

    assert kept == {
        "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "SLURM_JOB_NODELIST": "n[1-2]", "MY_DATA": "x",
        "STORE": f"s3://me:{REDACTED}@host", "TORCH_HOME": "/t",
    }  # fmt: skip


def test_the_description_names_the_machine_and_the_process() -> None:
    facts = describe_environment(os.environ, ["train.py", "--lr=1"], secrets=SecretFilter())

    assert facts["python"] == ".".join(map(str, sys.version_info[:3])) or sys.version_info.releaselevel != "final"
    assert (facts["executable"], facts["pid"], facts["cwd"]) == (sys.executable, os.getpid(), os.getcwd())
    assert facts["command"] == ["train.py", "--lr=1"]
    assert facts["cpu"]
    assert facts["hostname"]
    assert facts["user"]
    assert isinstance(facts["memory_bytes"], int)
    assert facts["memory_bytes"] > 1 << 20
    assert isinstance(facts["gpus"], list)


@pytest.mark.slow  # a promise about a quiet machine
def test_describing_the_environment_takes_less_than_five_milliseconds() -> None:
    program = (
        "import os, sys, time; import relive.record.provenance.runtime_environment as e; s = time.process_time(); "
        "e.describe_environment(os.environ, sys.argv, secrets=e.SecretFilter()); "
        "print(time.process_time() - s); print('torch' in sys.modules)"
    )
    took_s = []
    for _ in range(3):
        printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        took, torch_loaded = printed.split()
        took_s.append(float(took))

    assert torch_loaded == "False"
    assert min(took_s) < 0.005


def test_describing_the_environment_survives_a_removed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert describe_environment({}, [], secrets=SecretFilter())["cwd"] is None


def test_packages_have_versions_and_a_broken_one_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_removed-1.0.dist-info").mkdir()
    bad = tmp_path / "garbled-2.0.dist-info"
    bad.mkdir()
    (bad / "METADATA").write_bytes(b"\xff\xfe\x00Name")
    good = tmp_path / "mine-3.0.dist-info"
    good.mkdir()
    (good / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 3.0\n")
    monkeypatch.syspath_prepend(tmp_path)

    found = installed_packages()

    assert found["mine"] == "3.0"
    assert found["pytest"] == metadata.version("pytest")
    assert not {"half_removed", "garbled"} & set(found)
