"""Laws of cells that are executed again: their values are told apart, and outer values are still joined to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import relive
from relive.record.process.notebook_cells import NotebookCells
from relive.record.session import session


class Notebook:
    """What IPython's shell does around each cell, as far as cells are told apart."""

    def __init__(self) -> None:
        self.history_manager = SimpleNamespace(input_hist_raw=[""])
        self.before: Callable[[Any], None] = lambda _info: None
        self.cell_id: str | None = None

    def get_parent(self) -> dict[str, Any]:
        return {"metadata": {"cellId": self.cell_id} if self.cell_id else {}}

    def run(self, text: str, work: Callable[[], Any], *, cell_id: str | None = None) -> None:
        self.cell_id = cell_id
        self.before(SimpleNamespace(raw_cell=text, cell_id=cell_id))
        self.history_manager.input_hist_raw.append(text)
        work()


def train(start: float) -> None:
    for epoch in relive.loop("epoch", range(2)):
        relive.log("loss", start + epoch)


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_cell_that_is_executed_again_has_its_number(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, has_ids: bool
) -> None:
    monkeypatch.setenv("RELIVE_VERSIONS", "0")
    notebook = Notebook()

    def open_run() -> None:
        relive.log("params", 7)
        notebook.before = NotebookCells(session.driver, notebook).before_cell  # type: ignore[arg-type]

    with relive.run():
        monkeypatch.setattr(session, "driver", session._explicit[-1])
        notebook.run("a", lambda: in_cell(open_run), cell_id="1" if has_ids else None)
        for start in (0.0, 10.0, 20.0):
            text = f"train({start})" if has_ids else "train()"
            notebook.run(text, lambda start=start: in_cell(lambda: train(start)), cell_id="2" if has_ids else None)
        notebook.run("b", lambda: in_cell(lambda: relive.log("end", 1)), cell_id="3" if has_ids else None)

    frame = relive.dataframe("params", "loss", home=home)
    assert frame["cell"].astype(object).where(frame["cell"].notna(), None).tolist() == [None, None, 3, 3, 4, 4]
    assert frame["loss"].tolist() == [0.0, 1.0, 10.0, 11.0, 20.0, 21.0]
    assert set(frame["params"]) == {7}
    assert "cell" not in relive.dataframe("end", home=home)


def in_cell(work: Callable[[], Any]) -> None:
    """Does the work as a cell does: in a context of its own, outside of any block."""
    import contextvars

    contextvars.Context().run(work)


def test_a_shell_that_is_not_understood_does_no_harm() -> None:
    driver: Any = SimpleNamespace(root="the run")
    cells = NotebookCells(driver, shell=object())

    cells.before_cell(object())

    assert driver.root == "the run"
