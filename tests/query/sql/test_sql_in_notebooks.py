"""SQL and where clauses in a real kernel that has no ipywidgets, where DuckDB's progress bar can't be set."""

from __future__ import annotations

import pytest

from tests.conftest import Script
from tests.kernels import Kernel


@pytest.mark.long
def test_sql_and_where_clauses_work_in_a_bare_jupyter(script: Script) -> None:
    record = """
        import relive
        with relive.run():
            for epoch in relive.loop("epoch", range(5)):
                relive.log("loss", 1.0 / (epoch + 1))
    """
    questions = {
        "sql": "print(relive.sql('select count(*) as n from logs')['n'].tolist())",
        "where": "print(relive.dataframe('loss', where='epoch < 2 and loss > 0')['loss'].tolist())",
        "frame": "print(relive.sql(\"select min(loss) as low from frame('loss')\")['low'].tolist())",
        "widgets": "import importlib.util; print(importlib.util.find_spec('ipywidgets'))",
    }

    with Kernel(script.project, {"record": record, **questions}) as kernel:
        told = [kernel.run(cell) for cell in kernel.cells]

    assert [reply.error for reply in told] == [""] * 5
    assert [reply.stdout for reply in told[1:]] == ["[5]\n", "[1.0, 0.5]\n", "[0.2]\n", "None\n"]
