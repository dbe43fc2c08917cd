"""Laws of exported notebooks: the script is plain Python, and computes what the cells computed."""

from __future__ import annotations

import ast

import pytest

import relive
from relive.hindsight.notebooks.cell_file import RecordedCell
from relive.hindsight.notebooks.plain_script import write_script
from tests.conftest import Script
from tests.kernels import Kernel


def script_of(*cells: str, error: str = "") -> tuple[str, list[str]]:
    made = write_script(
        [RecordedCell(at, text, text, error=error) for at, text in enumerate(cells, 1)], "A look at the data."
    )
    ast.parse(made.text)
    compile(made.text, "look.py", "exec")
    return made.text, made.left_out


def test_magics_become_python_or_comments_and_what_is_lost_is_named() -> None:
    text, left_out = script_of(
        "get_ipython().run_line_magic('matplotlib', 'inline')",
        "get_ipython().run_line_magic('env', 'A=1')\nget_ipython().system('ls {folder}')",
        "get_ipython().run_line_magic('run', 'other.py')",
        "x = get_ipython().run_line_magic('time', 'f(1)')",
    )

    assert "pass  # %matplotlib inline" in text
    assert "os.environ.update({'A': '1'})" in text
    assert "subprocess.run(f'ls {folder}', shell=True)" in text
    assert "x = f(1)" in text
    assert left_out == ["In [3]: %run other.py"]


def test_imports_of_the_future_stay_first_and_failed_cells_do_not_end_the_script() -> None:
    text, _ = script_of("from __future__ import annotations\n1 / 0", error="ZeroDivisionError")

    assert text.splitlines()[1] == "from __future__ import annotations"
    assert "contextlib.suppress(ZeroDivisionError)" in text


@pytest.mark.long
def test_an_exported_notebook_runs_as_a_script_and_logs_the_same(script: Script) -> None:
    cells = {
        "a": "%matplotlib is_not_installed",
        "b": "import asyncio\nimport relive\n%env RATE=0.5\nwords = !echo one two",
        "c": "async def fetch():\n    await asyncio.sleep(0)\n    return 3.0\n\nscale = [await fetch(), 1][0]",
        "d": "display(scale)\n1 / 0",
        "e": "%%time\nimport os\nwith relive.run('first'):\n    for epoch in relive.loop('epoch', range(3)):\n"
        "        relive.log('loss', scale * epoch * float(os.environ['RATE']) + len(words[0]))",
    }
    with Kernel(script.project, cells) as kernel:
        for cell in cells:
            kernel.run(cell)

    told = script.relive("export", "last", "plain.py", "--script").stdout
    text = (script.project / "plain.py").read_text()
    script(None, name="plain.py")

    assert told.startswith("plain.py: ")
    assert "IPython" not in text
    assert "get_ipython" not in text
    frame = relive.dataframe("loss", home=script.home)
    assert frame["run"].nunique() == 2
    assert frame["loss"].tolist() == [7.0, 8.5, 10.0] * 2
