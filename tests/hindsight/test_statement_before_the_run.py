"""A statement that is added before the script's first verb does not begin the run: what follows is as it was."""

from __future__ import annotations

import json

TRAIN = """
    import random
    import relive

    random.seed(5)
    for n in range(4):  # a preview of the data, or a search for a learning rate
        drawn = random.random()
        print(drawn)
    random.seed(1)
    total = 0.0
    for epoch in relive.loop("epoch", range(3)):
        total += random.random()
        relive.log("total", total)
"""


def test_draws_after_a_statement_before_the_run_are_those_that_happened(script):
    drawn = [float(line) for line in script(TRAIN).stdout.split()]
    script.write(TRAIN.replace("print(drawn)", 'print(drawn)\n        relive.log("drawn", drawn)'))

    script.relive("replay", "drawn", "--yes")

    rows = [json.loads(line) for line in script.relive("dataframe", "drawn", "--sources", "--json").stdout.splitlines()]
    assert [row["drawn"] for row in rows] == drawn
    assert all("replay" in row["drawn_source"] for row in rows)
