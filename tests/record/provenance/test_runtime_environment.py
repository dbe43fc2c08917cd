"""Laws of the environment record: fast, complete, and without secrets."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from relive.record.provenance.runtime_environment import (
    REDACTED,
    describe_environment,
    installed_packages,
    is_secret,
    redact_argv,
)

SECRETS = (
    "API_KEY WANDB_API_KEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID HF_TOKEN token --token github-token GITHUB_TOKEN2 "
    "password PGPASSWORD PASSWD db.password MYSQL_PWD DB_PASS APIKEY apiKey openaiApiKey accessToken HFToken "
    "AUTH_HEADER Authorization SESSION_ID COOKIE PRIVATE_KEY SENTRY_DSN GOOGLE_APPLICATION_CREDENTIALS X-Amz-Signature"
).split()
HARMLESS = (
    "monkey keyboard KEYBOARD_LAYOUT TOKENIZERS_PARALLELISM tokenizer max_tokens --num-tokens pad_token_id lr author "
    "authors passes bypass key_dim num_keys sessions_per_batch CUDA_VISIBLE_DEVICES PYTHONHASHSEED compass secretary "
    "n_forward_pass tokens_per_batch query_key_value hash_seed turkey"
).split()


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_recognized_by_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", HARMLESS)
def test_words_that_only_look_like_secrets_are_recorded(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["t.py", "--api-key=abc", "--lr=0.1"], ["t.py", f"--api-key={REDACTED}", "--lr=0.1"]),
        (["t.py", "--token", "abc", "x"], ["t.py", "--token", REDACTED, "x"]),
        (["t.py", "--token", "--lr", "3"], ["t.py", "--token", "--lr", "3"]),
        (["--kwargs", "password=my abc", "lr=3"], ["--kwargs", f"password={REDACTED}", "lr=3"]),
        (["+trainer.logger.api_key=abc"], [f"+trainer.logger.api_key={REDACTED}"]),
        (["https://me:abc@host/x?y=1"], [f"https://{REDACTED}@host/x?y=1"]),
        (["--data=s3://key:abc@host/x"], [f"--data=s3://{REDACTED}@host/x"]),
        (["https://host/x?y=1&token=abc&z=2"], [f"https://host/x?y=1&token={REDACTED}&z=2"]),
        (['{"lr": 1, "api_key": "abc", "b": [1]}'], [f'{{"lr": 1, "api_key": {REDACTED}, "b": [1]}}']),
        (["db={user:me,password:abc}"], [f"db={{user:me,password:{REDACTED}}}"]),
        (["-H", "Authorization: Bearer abc"], ["-H", f"Authorization: {REDACTED}"]),
        (["hf_" + "a1" * 17], [REDACTED]),
        (["--max-tokens", "512", "--pad-token-id=0"], ["--max-tokens", "512", "--pad-token-id=0"]),
        (["ssh://git@host/x", "a:b", "12:30", "C:/x"], ["ssh://git@host/x", "a:b", "12:30", "C:/x"]),
    ],
)
def test_a_command_line_is_recorded_without_its_secrets(given: list[str], kept: list[str]) -> None:
    assert redact_argv(given) == kept


def test_only_selected_variables_are_recorded_and_a_secret_never() -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "NCCL_TOKEN": "abc", "SLURM_JOB_NODELIST": "n[1-2]",
        "EDITOR": "vi", "MY_DATA": "x", "MY_KEY": "abc", "STORE": "s3://me:abc@host", "TORCH_HOME": "/t",
    }  # fmt: skip

    kept = describe_environment(environ, [], extra=["MY_DATA", "MY_KEY", "STORE"])["variables"]

    assert kept == {
        "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "SLURM_JOB_NODELIST": "n[1-2]", "MY_DATA": "x",
        "STORE": f"s3://{REDACTED}@host", "TORCH_HOME": "/t",
    }  # fmt: skip


def test_the_description_names_the_machine_and_the_process() -> None:
    facts = describe_environment(os.environ, ["train.py", "--lr=1"])

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
        "e.describe_environment(os.environ, sys.argv); print(time.process_time() - s); print('torch' in sys.modules)"
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

    assert describe_environment({}, [])["cwd"] is None


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
