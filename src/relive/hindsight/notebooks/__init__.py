"""Runs of notebooks: their recorded cells as one file, today's notebook beside them, and a shell that runs them."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.notebooks.cell_file import (
        RecordedCell,
        cell_file_name,
        is_notebook_run,
        join_cells,
        place_of,
        read_cells,
    )
    from relive.hindsight.notebooks.cell_obstacles import find_interruption, find_obstacle
    from relive.hindsight.notebooks.cell_shell import run_cells
    from relive.hindsight.notebooks.plain_script import ScriptText, write_script
    from relive.hindsight.notebooks.todays_notebook import (
        NotebookCell,
        cells_of_notebook,
        cells_of_run,
        with_todays_cells,
    )

__getattr__ = lazy_names(__name__)
