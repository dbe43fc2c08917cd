"""Laws of `--kwargs` and `relive.arg`: what is removed from argv, which type it gets, how mistakes are reported."""

from __future__ import annotations

import enum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import relive
from relive.errors import ArgError
from relive.record.args import convert, pop_kwargs


class Colour(enum.Enum):
    RED = 1
    BLUE = "sky"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def journal_bytes(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (home / "runs").rglob("*") if path.is_file())


# Taking it out of argv


@pytest.mark.parametrize(
    ("argv", "rest", "found"),
    [
        (["t.py", "--kwargs", "lr=0.1"], ["t.py"], {"lr": "0.1"}),
        (["t.py", "--kwargs", "a=1", "b=2", "--other", "x"], ["t.py", "--other", "x"], {"a": "1", "b": "2"}),
        (["t.py", "--other", "x", "--kwargs", "a=1"], ["t.py", "--other", "x"], {"a": "1"}),
        (["t.py", "--kwargs", "a=1", "-v", "--kwargs", "b=2"], ["t.py", "-v"], {"a": "1", "b": "2"}),
        (["t.py", "--kwargs", "a=1", "--kwargs", "a=2"], ["t.py"], {"a": "2"}),
        (["t.py", "--kwargs", "a=b=c"], ["t.py"], {"a": "b=c"}),
        (["t.py", "--kwargs", "a=-1", "b=-1e-3"], ["t.py"], {"a": "-1", "b": "-1e-3"}),
        (["t.py", "--kwargs", "a=", "file.csv"], ["t.py", "file.csv"], {"a": ""}),
        (["t.py", "--kwargs", "a=1", "--x=y"], ["t.py", "--x=y"], {"a": "1"}),
        (["t.py", "--kwargs", "a=two words", 'b={"c": 1}'], ["t.py"], {"a": "two words", "b": '{"c": 1}'}),
    ],
)
def test_only_the_pairs_after_kwargs_are_removed(argv: list[str], rest: list[str], found: dict[str, str]) -> None:
    taken = pop_kwargs(argv)

    assert taken == found
    assert argv == rest


@pytest.mark.parametrize("argv", [["t.py", "--kwargs"], ["t.py", "--kwargs", "--lr=1"], ["t.py", "--kwargs", "=1"]])
def test_kwargs_without_a_pair_is_an_error_that_shows_how_to_write_it(argv: list[str]) -> None:
    with pytest.raises(ArgError, match=r"--kwargs lr=0\.01"):
        pop_kwargs(argv)


@given(st.dictionaries(st.text(min_size=1).filter(lambda n: "=" not in n and n[0] != "-"), st.text()))
def test_any_text_survives_argv(pairs: dict[str, str]) -> None:
    argv = ["t.py", "--kwargs", *(f"{name}={value}" for name, value in pairs.items()), "--end"]

    if pairs:
        assert pop_kwargs(argv) == pairs
        assert argv == ["t.py", "--end"]


# Types


@pytest.mark.parametrize(
    ("default", "raw", "value"),
    [
        (1, "1e6", 1_000_000), (1, "-3", -3), (1, "0x10", 16), (1, "1_000", 1_000), (1, "010", 10),
        (1, str(10**30), 10**30), (1, "1e23", 10**23), (1, "12345678901234567890.0", 12345678901234567890),
        (0.1, "3", 3.0), (0.1, "-1e-3", -0.001), (0.1, "inf", float("inf")),
        (True, "false", False), (True, "No", False), (False, "1", True), (False, "on", True),
        (None, "0.5", 0.5), (None, "none", None), (None, "None", None), (None, "false", False),
        (None, "[1, 2]", [1, 2]), (None, "text", "text"), (None, "0.10.1", "0.10.1"),
        ("adam", "5", "5"), ("adam", "1e-3", "1e-3"), ("adam", "true", "true"), ("adam", "", ""), ("adam", "é", "é"),
        ([1], "1,2,3", [1, 2, 3]), ([1], "[1, 2]", [1, 2]), ([1], "", []), ([1], "a,b", ["a", "b"]), ([1], "7", [7]),
        ((1, 2), "(3, 4)", (3, 4)), ((1, 2), "3,4", (3, 4)), ((0.9, 0.99), "0.5,0.9", (0.5, 0.9)),
        ({}, '{"a": 1}', {"a": 1}), ({}, "{'a': (1, 2)}", {"a": (1, 2)}),
        (Path("a"), "b/c", Path("b/c")), (PurePosixPath("a"), "b", PurePosixPath("b")),
        (Colour.RED, "BLUE", Colour.BLUE), (Colour.RED, "sky", Colour.BLUE), (Colour.BLUE, "1", Colour.RED),
        (Level.LOW, "HIGH", Level.HIGH), (Level.LOW, "2", Level.HIGH),
        (np.float32(0.1), "0.25", np.float32(0.25)), (np.int64(1), "1e3", np.int64(1000)),
        (np.bool_(True), "no", np.bool_(False)),
    ],
)  # fmt: skip
def test_a_value_gets_the_type_of_its_default(default: Any, raw: str, value: Any) -> None:
    converted = convert("x", raw, default)

    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(
    ("default", "raw"),
    [
        (1, "1.5"), (1, "ten"), (1, "1e400"), (1, "inf"), (1, "nan"), (1, ""), (0.1, "a"), (0.1, ""), (True, "perhaps"),
        ({}, "[1]"), ({}, "a"), ([1], "[1"), (Colour.RED, "GREEN"), (Level.LOW, "3"), (np.int8(1), "300"),
        (np.float32(1), "a"), (1, "9" * 5_000),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_an_error_with_an_example(default: Any, raw: str) -> None:
    with pytest.raises(ArgError, match="--kwargs x=") as caught:
        convert("x", raw, default)

    assert repr(raw) in str(caught.value)
    assert "for example --kwargs x=" in str(caught.value)


def test_a_default_of_an_unknown_type_parses_the_text_as_a_literal() -> None:
    assert convert("x", "0.5", Fraction(1, 3)) == 0.5
    assert convert("x", "word", object()) == "word"


# In a script


def test_argument_parsers_of_the_script_never_see_kwargs(script) -> None:
    done = script(
        """
        import argparse, sys
        import relive
        def parse():
            parser = argparse.ArgumentParser()
            parser.add_argument("--other")
            parser.add_argument("files", nargs="*")
            return parser.parse_args()
        before = parse()
        lr = relive.arg("lr", 0.1)
        after = parse()
        print(before == after, after.other, after.files, lr, sys.argv[1:])
        """,
        "a.csv", "--kwargs", "lr=0.5", "--other", "x", "--kwargs", "seed=-1",
        check=False,
    )  # fmt: skip

    assert done.returncode == 0
    assert done.stdout == "True x ['a.csv'] 0.5 ['a.csv', '--other', 'x']\n"
    assert "--kwargs seed: no relive.arg of that name; known are lr" in done.stderr


def test_args_come_back_with_their_types(script) -> None:
    script(
        """
        import enum
        from pathlib import Path
        import numpy as np
        import relive
        class Mode(enum.Enum):
            FAST = 1
            SLOW = 2
        relive.arg("lr", 1e-3), relive.arg("steps", 10), relive.arg("name", "a"), relive.arg("on", False)
        relive.arg("none", None), relive.arg("betas", (0.9, 0.99)), relive.arg("sizes", [1]), relive.arg("opt", {})
        relive.arg("path", Path("x")), relive.arg("mode", Mode.FAST), relive.arg("eps", np.float32(1))
        relive.arg("big", 10**30), relive.arg("kept", "default")
        """,
        "--kwargs", "lr=3", "steps=1e6", "name=7", "on=true", "none=0.5", "betas=0.5,0.9", "sizes=[2,3]",
        'opt={"a": 1}', "path=y/z", "mode=SLOW", "eps=0.25",
    )  # fmt: skip
    names = "lr steps name on none betas sizes opt path eps big kept".split()

    frame = relive.dataframe(*names, home=script.home)

    row = frame.iloc[0]
    assert (row.lr, row.steps, row["name"], row.on, row.none) == (3.0, 1_000_000, "7", True, 0.5)
    assert (row.betas, row.sizes, row.opt, str(row.path)) == ((0.5, 0.9), [2, 3], {"a": 1}, "y/z")
    assert (row.eps, row.big, row.kept) == (np.float32(0.25), 10**30, "default")
    assert [str(frame[name].dtype) for name in ("lr", "steps", "on", "eps")] == ["float64", "int64", "bool", "float32"]
    args = relive.sql("select name, origin from args where name in ('lr', 'kept') order by name", home=script.home)
    assert args.origin.tolist() == ["default", "kwargs"]


def test_a_wrong_value_ends_the_script_at_once_with_the_reason(script) -> None:
    done = script(
        """
        import relive
        steps = relive.arg("steps", 10)
        print("went on")
        """,
        "--kwargs", "steps=ten",
        check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stdout == ""
    assert "'ten' is not a valid int (the default is 10); write for example --kwargs steps=10" in done.stderr
    assert "no relive.arg of that name" not in done.stderr


def test_an_unknown_kwarg_is_an_error_at_the_first_loop_that_lists_the_known(script) -> None:
    done = script(
        """
        import relive
        lr, seed = relive.arg("lr", 0.1), relive.arg("seed", 0)
        print("set up")
        for epoch in relive.loop("epoch", range(3)):
            print("trained")
        """,
        "--kwargs", "lrr=0.5", "seed=1",
        check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stdout == "set up\n"
    assert done.stderr.count("--kwargs lrr: no relive.arg of that name; known are lr, seed") == 1


def test_a_kwarg_requested_after_the_loop_is_fine(script) -> None:
    done = script(
        """
        import relive
        for epoch in relive.loop("epoch", range(1)):
            pass
        print(relive.arg("after", 1))
        """,
        "--kwargs", "after=2",
    )  # fmt: skip

    assert done.stdout == "2\n"
    assert done.stderr == ""


def test_a_kwarg_requested_in_one_run_of_the_process_is_known_in_all(script) -> None:
    done = script(
        """
        import relive
        name = "".join(["l", "r"])
        lr = relive.arg(name, 0.1)
        for n in range(2):
            with relive.run():
                for epoch in relive.loop("epoch", range(1)):
                    relive.log("loss", lr)
        """,
        "--kwargs", "lr=2",
    )  # fmt: skip

    assert done.stderr == ""
    assert relive.dataframe("loss", home=script.home).loss.tolist() == [2.0, 2.0]


def test_unused_kwargs_are_reported_at_exit_and_the_exit_code_stays(script) -> None:
    done = script("import relive\nrelive.log('a', 1)\n", "--kwargs", "lr=1", check=False)

    assert done.returncode == 0
    assert done.stderr == "relive: error: --kwargs lr: no relive.arg of that name; known are none: " + (
        "the script calls no relive.arg\n"
    )


def test_args_work_when_recording_is_off(script) -> None:
    done = script(
        """
        import relive
        print(relive.arg("lr", 0.1), relive.arg("seed", 3))
        """,
        "--kwargs", "lr=2",
        env={"RELIVE_OFF": "1"},
    )  # fmt: skip

    assert done.stdout == "2.0 3\n"
    assert not script.home.exists()


def test_secrets_reach_the_script_but_not_the_record(script) -> None:
    done = script(
        """
        import relive
        print(relive.arg("api_key", "none"), relive.arg("wandb_token", ""), relive.arg("num_tokens", 5))
        """,
        "--kwargs", "api_key=hunter2", "wandb_token=correct-horse", "num_tokens=17",
    )  # fmt: skip

    kept = journal_bytes(script.home)
    assert done.stdout == "hunter2 correct-horse 17\n"
    assert b"hunter2" not in kept
    assert b"correct-horse" not in kept
    assert relive.dataframe("api_key", "num_tokens", home=script.home).iloc[0].tolist()[-2:] == ["<redacted>", 17]


def test_a_secret_of_the_wrong_type_is_not_recorded_in_the_error(script) -> None:
    done = script("import relive\nrelive.arg('api_key', 0)\n", "--kwargs", "api_key=hunter2", check=False)

    assert done.returncode == 1
    assert "--kwargs api_key: the value is not a valid int" in done.stderr
    assert b"hunter2" not in journal_bytes(script.home)


PARSED = """
    import argparse
    import relive

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()
    {call}
    relive.log("used", options.lr)
"""


@pytest.mark.parametrize(
    ("call", "recorded"),
    [('relive.arg("lr", options.lr)', 0.1), ('options.lr = relive.arg("lr", options.lr)', 0.5)],
)
def test_an_arg_whose_value_is_dropped_is_recorded_as_the_script_has_it(
    script: Any, call: str, recorded: float
) -> None:
    done = script(PARSED.format(call=call), "--kwargs", "lr=0.5")

    frame = relive.dataframe("lr", "used", home=done.home)
    assert (frame["lr"].item(), frame["used"].item()) == (recorded, recorded)
    assert ("[arg-unused]" in done.stderr) == (recorded == 0.1)
    assert "--kwargs lr=… changes nothing" in done.stderr or recorded == 0.5


def test_an_arg_whose_value_is_dropped_is_fine_without_kwargs(script: Any) -> None:
    done = script(PARSED.format(call='relive.arg("lr", options.lr)'), "--lr", "0.3")

    assert done.stderr == ""
    assert relive.dataframe("lr", home=done.home)["lr"].item() == 0.3
