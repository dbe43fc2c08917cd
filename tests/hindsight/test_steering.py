"""Options of a replay: where the statement goes, which guesses are allowed, and with which packages it runs."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

import relive
from tests.conftest import Script

SCRIPT = """
import relive
total = 0.0
with relive.checkpointing(every=1):
    for epoch in relive.loop("epoch", range(3)):
        total += 1.0
        relive.log("total", total)
        total += 0.5
relive.log("end", total)
"""
ASKED = SCRIPT + 'relive.log("x", total * 2)\n'


def column(script: Script, name: str) -> list[float]:
    return relive.dataframe(name, home=script.home)[name].tolist()


@pytest.mark.long
def test_a_statement_goes_where_the_user_puts_it_and_stays_there(script: Script):
    script(SCRIPT)
    script.write(ASKED)

    first = script.relive("replay", "x", "--run", "last", "--at", "train.py:6", "--yes")
    again = script.relive("replay", "--show-patch", "last", "x")

    assert column(script, "x") == [2.0, 5.0, 8.0]  # after `total += 1.0`, in every epoch
    assert "3 values added" in first.stdout
    assert '+        relive.log("x", total * 2)' in again.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("at", "words"),
    [("train.py:600", "has 8 lines in this version"), ("other.py:1", "is not `file:line` of this version")],
)
def test_a_place_that_does_not_exist_is_refused(script: Script, at: str, words: str):
    script(SCRIPT)
    script.write(ASKED)
    replayed = script.relive("replay", "x", "--run", "last", "--at", at, "--yes", check=False)

    assert words in replayed.stdout + replayed.stderr
    assert "x" not in relive.dataframe(home=script.home).columns


@pytest.mark.long
def test_a_patch_is_changed_in_the_users_editor_and_remembered(script: Script, tmp_path: Path):
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/total \\* 2/total * 10/' \"$1\"\n")
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    script(SCRIPT)
    script.write(ASKED)
    variables = {"EDITOR": str(editor), "VISUAL": str(editor)}
    script.relive("replay", "x", "--edit", "--yes", "--keep-going", env=variables)

    assert column(script, "x") == [45.0]
    assert "total * 10" in script.relive("replay", "--show-patch", "last", "x").stdout


@pytest.mark.long
def test_a_guess_is_left_out_and_reported_unless_it_is_allowed(script: Script):
    head = "import relive\n" + "".join(f"def f{n}(a):\n    return a * {n + 1}\n" for n in range(8))
    old = head + "v = 1\n" + "".join(f"v = f{n}(v)\n" for n in range(8)) + "relive.log('y', v)\n"
    new = head + "v = 3\nv = v + 2\nrelive.log('x', v)\nv = v - 4\nrelive.log('z', v)\n"
    script(old)
    script.write(new)
    replayed = script.relive("replay", "x", "--yes", check=False)
    explained = script.relive("replay", "x", "--explain").stdout

    assert "low" in explained
    assert "the place is a guess" in replayed.stderr
    assert replayed.returncode == 1
    assert relive.replay("x", home=script.home).runs == []
    assert relive.replay("x", home=script.home, guesses=True).added == 1


@pytest.mark.slow
def test_packages_that_the_run_had_are_installed_again(script: Script, tmp_path: Path):
    wheels, then = tmp_path / "wheels", tmp_path / "then"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        _wheel(wheels, version)
    with zipfile.ZipFile(wheels / "tinything-1.0-py3-none-any.whl") as wheel:
        wheel.extractall(then)
    source = SCRIPT.replace("import relive\n", "import relive, tinything\n", 1)
    script(source, env={"PYTHONPATH": str(then)})
    script.write(source + 'relive.log("x", tinything.VERSION)\n')
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}

    today = script.relive("replay", "x", "--yes", check=False, env=offline)
    script.relive("replay", "x", "--yes", "--env", "rebuild", env=offline)

    assert "install it to replay this version" in today.stderr
    assert column(script, "x") == ["1.0"]


def _wheel(folder: Path, version: str) -> None:
    info = f"tinything-{version}.dist-info"
    files = {
        "tinything.py": f'VERSION = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tinything\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"tinything-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
