"""Laws of secrets: what is one never enters a record, and what is none is recorded as it is."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.record.provenance.secret_filter import REDACTED, SecretFilter, hides, is_secret
from relive.store.journal import encode_value, to_json

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
        (["https://me:abc@host/x?y=1"], [f"https://me:{REDACTED}@host/x?y=1"]),
        (["--data=s3://key:abc@host/x"], [f"--data=s3://key:{REDACTED}@host/x"]),
        (["https://host/x?y=1&token=abc&z=2"], [f"https://host/x?y=1&token={REDACTED}&z=2"]),
        (['{"lr": 1, "api_key": "abc", "b": [1]}'], [f'{{"lr": 1, "api_key": "{REDACTED}", "b": [1]}}']),
        (["db={user:me,password:abc}"], [f"db={{user:me,password:{REDACTED}}}"]),
        (["-H", "Authorization: Bearer abc"], ["-H", f"Authorization: {REDACTED}"]),
        (["hf_" + "a1" * 17], [REDACTED]),
        (["--max-tokens", "512", "--pad-token-id=0"], ["--max-tokens", "512", "--pad-token-id=0"]),
        (["ssh://git@host/x", "a:b", "12:30", "C:/x"], ["ssh://git@host/x", "a:b", "12:30", "C:/x"]),
    ],
)
def test_a_command_line_is_recorded_without_its_secrets(given: list[str], kept: list[str]) -> None:
    assert SecretFilter().argv(given) == kept


# Command lines


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["mysql", "-p", "hunter2"], ["mysql", "-p", REDACTED]),
        (["t.py", "-p", "0.5", "-p", "8080"], ["t.py", "-p", "0.5", "-p", "8080"]),
        (["t.py", "-p", "data/train", "-p", "cfg.yaml"], ["t.py", "-p", "data/train", "-p", "cfg.yaml"]),
        (["t.py", "-p", "my-project"], ["t.py", "-p", "my-project"]),
        (["t.py", "--password-reset-rate", "0.1"], ["t.py", "--password-reset-rate", "0.1"]),
        (["t.py", "--db-password", "123456"], ["t.py", "--db-password", REDACTED]),
        (["t.py", "postgresql://me:p@ss/w?rd@host/db"], ["t.py", f"postgresql://me:{REDACTED}@host/db"]),
    ],
)
def test_the_value_after_a_flag_is_recorded_unless_it_is_secret(given: list[str], kept: list[str]) -> None:
    assert SecretFilter().argv(given) == kept


# Shapes

TOKENS = (
    "sk-" + "aB3" * 16,
    "sk-proj-" + "a-B_3" * 10,
    "ghp_" + "a1" * 18,
    "hf_" + "Ab" * 17,
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefABCDEF",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIEow",
    "relive_0123abcd_" + "x" * 43,
)


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_are_removed_wherever_they_are(token: str) -> None:
    assert SecretFilter().text(f"refused ({token}") == f"refused ({REDACTED}"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("postgresql://user:pw@host/db", f"postgresql://user:{REDACTED}@host/db"),
        ("redis://:pw@host:6379/0", f"redis://:{REDACTED}@host:6379/0"),
        ("at https://a:b@h/x, then https://c:d@h/y", f"at https://a:{REDACTED}@h/x, then https://c:{REDACTED}@h/y"),
        ("https://h/x?page=2&sig=ab%2Fc&key=q#top", f"https://h/x?page=2&sig={REDACTED}&key={REDACTED}#top"),
        ("https://h/x?X-Amz-Signature=ab&n=1", f"https://h/x?X-Amz-Signature={REDACTED}&n=1"),
        ('{"u": "http://a:b@h", "v": "c@d"}', f'{{"u": "http://a:{REDACTED}@h", "v": "c@d"}}'),
        ("Authorization: Bearer abc.def", f"Authorization: {REDACTED}"),
        ("sent Bearer abcdefgh12345678", f"sent Bearer {REDACTED}"),
    ],
)
def test_credentials_in_urls_and_headers_are_removed(given: str, kept: str) -> None:
    assert SecretFilter().text(given) == kept


@pytest.mark.parametrize(
    "text",
    [
        "https://host:8080/path?page=2&key_dim=3", "ssh://git@host/x", "the bearer of news", "Basic authentication",
        "sk-learn-random-forest-v2", "task-0123456789abcdef0123", "ghp_", "-----BEGIN CERTIFICATE-----\nabc", "eyJ",
        "unexpected key: conv1.weight", "size mismatch for auth.weight: copying a param", "Invalid token: the",
        "size mismatch for vit.cls_token: copying", "tokens: 512", "0.1", "12345678", "epoch=3, lr=0.1", "key=value",
        "password_reset_rate=0.1",
    ],
)  # fmt: skip
def test_ordinary_texts_are_recorded_as_they_are(text: str) -> None:
    assert SecretFilter().message(text) == text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("connect failed: host=db password=hunter2 port=5", f"connect failed: host=db password={REDACTED} port=5"),
        ("bad {'api_key': 'a b', 'n': 1}", f"bad {{'api_key': '{REDACTED}', 'n': 1}}"),
        ("ran mysql --password hunter2 --fast", f"ran mysql --password {REDACTED} --fast"),
        ("ran x --auth-token=abc y", f"ran x --auth-token={REDACTED} y"),
        ("X-Api-Key: abc", f"X-Api-Key: {REDACTED}"),
    ],
)
def test_secrets_in_messages_are_removed_by_name(given: str, kept: str) -> None:
    assert SecretFilter().message(given) == kept


def test_patterns_of_the_project_are_secret_as_well() -> None:
    assert SecretFilter(["proj-[0-9]+", "z*"]).text("a proj-17 b") == f"a {REDACTED} b"


# Values


@dataclass
class Login:
    user: str
    password: str


def encoded(value: Any) -> str:
    return to_json(encode_value(value, lambda _: "chunk", SecretFilter().settings))


@pytest.mark.parametrize(
    "value",
    [
        {"db": {"user": "me", "password": "hunter2"}},
        [{"api_key": "hunter2"}],
        ({"deep": [{"token": "hunter2"}]},),
        {1: "a", "secret": "hunter2"},
        {"auth": {"user": "x", "pw": "hunter2"}},
        {"url": "postgresql://me:hunter2@host"},
        {"postgresql://me:hunter2@host": 1},
        Login("me", "hunter2"),
        {"login": Login("me", "hun'ter2 hunter2")},
        argparse.Namespace(lr=0.1, token="hunter2"),
        "host=db password=hunter2",
        {"password": b"hunter2"},
    ],
)
def test_nested_secrets_are_not_encoded(value: Any) -> None:
    assert "hunter2" not in encoded(value)


def test_what_is_left_of_a_value_is_recognisable() -> None:
    assert encoded({"password": "x", "lr": 0.1}) == '{"password":{"$secret":""},"lr":0.1}'
    assert encoded(["http://a:b@h"]) == f'["http://a:{REDACTED}@h"]'


def test_a_container_of_numbers_is_a_setting_whatever_its_name_is() -> None:
    config = {"token": {"dim": 64, "rate": [0.1, 3]}, "session": (1, 2)}

    assert encoded(config) == to_json(encode_value(config, lambda _: "chunk"))


def test_a_container_that_holds_itself_is_encoded() -> None:
    endless: dict[str, Any] = {"lr": 0.1}
    endless["auth"] = endless

    assert encoded(endless) == '{"lr":0.1,"auth":{"$secret":""}}'


def test_keys_that_become_equal_keep_their_values() -> None:
    assert encoded({"http://a:b@h": 1, "http://a:c@h": 2}).count(REDACTED) == 2


# What is no secret

HYPERPARAMETERS = (
    "lr learning_rate batch_size max_tokens num_tokens n_tokens tokenizer tokenizer_name tokenizer_path key_dim n_keys "
    "num_key_value_heads query_key_value keys tokens pad_token eos_token bos_token cls_token unk_token mask_token "
    "sep_token stop_token start_token class_token token_type token_dropout tokens_per_batch image_key label_key "
    "sort_key group_by_key key_size value_dim hidden_size weight_decay warmup_steps seed optimizer scheduler dataset "
    "model_name passes n_forward_pass second_pass author monkey keyboard compass secretary hash_seed bypass classes "
    "primary_key special_tokens new_tokens prompt_tokens token_embedding sessions num_sessions"
).split()
ORDINARY = st.one_of(
    st.floats(), st.integers(), st.booleans(), st.none(), st.text(st.characters(categories=["Ll"]), max_size=8)
)


@given(st.dictionaries(st.sampled_from(HYPERPARAMETERS), ORDINARY))
def test_hyperparameters_are_recorded_as_they_are(config: dict[str, Any]) -> None:
    assert encoded(config) == to_json(encode_value(config, lambda _: "chunk"))


@given(st.sampled_from(HYPERPARAMETERS), st.floats(allow_nan=False) | st.integers())
def test_hyperparameters_on_a_command_line_are_recorded_as_they_are(name: str, value: float) -> None:
    line = ["train.py", f"--{name}={value}", f"--{name}", str(value), f"{name}={value}"]

    assert SecretFilter().argv(line) == line


@given(st.sampled_from(SECRETS), st.floats() | st.booleans() | st.integers(-999, 999) | st.none())
def test_small_numbers_are_never_secret(name: str, value: Any) -> None:
    assert not hides(name, value)


@given(st.text())
def test_removing_secrets_twice_changes_nothing_more(text: str) -> None:
    once = SecretFilter().message(text)

    assert SecretFilter().message(once) == once


def test_logged_texts_lose_what_has_the_shape_of_a_secret_only() -> None:
    logged = {"token": "the", "key": "k", "url": "http://a:b@h"}
    kept = encode_value(logged, lambda _: "chunk", SecretFilter().logged)

    assert kept == {"token": "the", "key": "k", "url": f"http://a:{REDACTED}@h"}


@pytest.mark.parametrize("part", ["aB3x", "eyJ", "a-", "://", "a=b ", "sk-", "x:", "'a=", "http://a:b"])
def test_large_texts_take_linear_time(part: str) -> None:
    SecretFilter().message(part * 50_000 + " =")  # in quadratic time, this would take minutes
