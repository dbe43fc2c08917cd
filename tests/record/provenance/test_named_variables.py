"""Laws of recorded environment variables: those that the project's code names, as the process was started with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.record.provenance import SecretFilter
from relive.record.provenance.named_variables import NamedVariables
from relive.store.journal import line_schema, read_lines, recorded_variables
from tests.conftest import Script

SCRIPT = """
    import os
    import config
    import relive
    lr = float(os.environ["MY_LR"])
    os.environ["MY_LR"] = "9"
    relive.log("x", lr)
"""


def recorded(script: Script) -> dict[str, str]:
    (path,) = script.home.glob("runs/*/0.lines")
    lines = read_lines(path.with_suffix("")).lines
    return recorded_variables(line_schema.lines_of(line_schema.RunStarted, lines)[0], lines)


def test_variables_that_the_code_names_are_recorded(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MY_LR": "0.25", "DECAY": "0.5", "UNNAMED": "1", "API_TOKEN": "abc"}.items():
        monkeypatch.setenv(name, value)
    script.write(
        "import os\nDECAY = os.getenv('DECAY')\nTOKEN = os.getenv('API_TOKEN')\nHOME = os.getenv('HOME')", "config.py"
    )
    script(SCRIPT)

    found = recorded(script)

    assert (found["MY_LR"], found["DECAY"]) == ("0.25", "0.5")
    assert not {"UNNAMED", "API_TOKEN", "HOME"} & {*found}


def test_each_variable_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 'ONE', \"TWO\"")
    (tmp_path / "b.py").write_text("y = 'ONE', 'THREE'")
    variables = NamedVariables(str(tmp_path), {"ONE": "1", "TWO": "2"}, SecretFilter())

    assert variables.new(["a.py", "gone.py"]) == {"ONE": "1", "TWO": "2"}
    assert variables.new(["b.py"]) == {}
