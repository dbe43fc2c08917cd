"""Laws of printed tables: JSON has every bit of every number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import relive
from relive.cli.main import main
from tests.conftest import Script

NUMBERS = {
    "sum": 0.1 + 0.2, "tiny": 5e-324, "third": 1 / 3, "large": 2**60 + 1, "huge": 2**70 + 1, "negative": -(2**63),
    "single": float(np.float32(0.1)),
}  # fmt: skip


def test_json_has_all_bits_of_all_numbers(home: Path) -> None:
    with relive.run():
        for epoch in relive.loop("epoch", range(2)):
            for name, value in NUMBERS.items():
                relive.log(name, np.float32(value) if name == "single" else value)
            relive.log("unsigned", np.uint64(2**64 - 1))
            relive.log("list", [0.1 + 0.2, 2**60 + 1, float("nan"), {"a": 1 / 3}])
            if epoch:
                relive.log("sparse", 2**60 + 1)
    names = [*NUMBERS, "unsigned", "list", "sparse"]

    found = CliRunner().invoke(main, ["dataframe", *names, "--json"], catch_exceptions=False)

    first, second = map(json.loads, found.stdout.splitlines())
    assert {name: first[name] for name in NUMBERS} == NUMBERS
    assert first["unsigned"] == 2**64 - 1
    assert first["list"] == [0.1 + 0.2, 2**60 + 1, None, {"a": 1 / 3}]
    assert (first["sparse"], second["sparse"]) == (None, 2**60 + 1)


def test_lists_of_runs_have_all_bits_of_last_values(home: Path) -> None:
    with relive.run():
        relive.log("large", 2**60 + 1)

    found = CliRunner().invoke(main, ["runs", "--json"], catch_exceptions=False)

    assert json.loads(found.stdout)["last"] == {"large": 2**60 + 1}


@pytest.mark.parametrize(
    "words", [["sql", "select 1 one"], ["sql", "select 1 one", "--json"], ["dataframe", "loss"], ["runs"]]
)
def test_what_is_printed_needs_no_pandas_which_takes_long_to_load(script: Script, words: list[str]) -> None:
    script("import relive\nrelive.log('loss', 1.0)\n")
    program = "import sys; from relive.cli import main; main(standalone_mode=False); assert 'pandas' not in sys.modules"

    done = script._finish(["-c", program, *words], check=True, timeout=60)

    assert "1" in done.stdout


def test_a_missing_number_is_blank_and_a_logged_nan_is_not(script: Script) -> None:
    script("""
        import relive

        for epoch in relive.loop("epoch", range(2)):
            relive.log("loss", float("nan") if epoch else 0.5)
        relive.log("end", 1.0)
    """)

    rows = script.relive("dataframe", "loss", "end", "--columns", "epoch,loss").stdout.splitlines()
    plain = [json.loads(row) for row in script.relive("dataframe", "loss", "--json").stdout.splitlines()]

    assert [row.split() for row in rows] == [["epoch", "loss"], ["0", "0.5"], ["1", "nan"]]
    assert [row["loss"] for row in plain] == [0.5, None]
    assert plain[0]["tstamp"][10] == "T"
