"""Laws of today's notebook beside recorded cells: cells are recognised, and the file keeps the order of execution."""

from __future__ import annotations

from relive.hindsight.notebooks.cell_file import RecordedCell, join_cells, place_of, split_file
from relive.hindsight.notebooks.todays_notebook import NotebookCell, with_todays_cells


def cell(number: int, text: str, id: str = "") -> RecordedCell:
    return RecordedCell(number, text, text, id)


def test_the_text_of_today_is_in_every_execution_of_a_cell() -> None:
    recorded = [cell(1, "x = 1", "a"), cell(2, "f(x)", "b"), cell(3, "x = 2", "a")]
    today = [NotebookCell("x = 2\nlog(x)", "a"), NotebookCell("f(x)", "b")]

    text = with_todays_cells(recorded, today)

    assert text == "# %% In [1]\nx = 2\nlog(x)\n\n# %% In [2]\nf(x)\n\n# %% In [3]\nx = 2\nlog(x)\n"


def test_cells_without_ids_are_recognised_by_most_of_their_lines() -> None:
    recorded = [cell(4, "a = 1\nb = 2\nc = 3")]
    today = [NotebookCell("other()"), NotebookCell("a = 1\nb = 2\nlog(b)\nc = 3")]

    assert "log(b)" in with_todays_cells(recorded, today)


def test_a_new_cell_comes_after_the_one_above_it() -> None:
    recorded = [cell(1, "a()", "a"), cell(2, "b()", "b")]
    today = [NotebookCell("a()", "a"), NotebookCell("log(1)", "new"), NotebookCell("b()", "b")]

    lines = with_todays_cells(recorded, today).split("\n")

    assert lines.index("a()") < lines.index("log(1)") < lines.index("b()")


def test_a_file_is_split_where_it_was_joined_also_after_statements_were_added() -> None:
    cells = [cell(1, "# %% In [7]\nx = 1"), cell(2, "for in", "broken"), cell(7, "y = 2")]
    text = join_cells(cells)
    added = "import os\n" + text.replace("x = 1", "x = 1\nlog(x)")

    parts = {one.number: part for one, part in split_file(added, cells)}

    assert parts[1].python == "import os\n# %% In [1]\n#%% In [7]\nx = 1\nlog(x)\n\n"
    assert parts[7].python == "y = 2\n"
    assert added.splitlines()[parts[7].lines_before] == "y = 2"


def test_a_place_is_told_by_the_number_of_the_cell_and_its_line() -> None:
    text = join_cells([cell(1, "a()"), cell(3, "b()\nlog(1)")])

    assert place_of("look.ipynb.py", 6, text) == "look.ipynb In [3]:2"
    assert place_of("train.py", 6, text) == "train.py:6"
