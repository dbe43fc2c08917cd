"""The older route of one series, over HTTP."""

from __future__ import annotations

import pytest


@pytest.mark.long
def test_ten_thousand_values_are_a_short_answer(script, serve):
    server = serve()
    source = (
        "import relive\nfor n in relive.loop('n', range(20000)):\n    relive.log('v', float('nan') if n == 7 else n)\n"
    )
    script(source, env={"RELIVE_SERVER": server.url, "RELIVE_VERSIONS": "0"})
    import json
    import urllib.request

    run = json.load(urllib.request.urlopen(f"{server.url}/api/runs", timeout=10))["runs"][0]["run"]
    with urllib.request.urlopen(f"{server.url}/api/runs/{run}/series?name=v&points=100", timeout=10) as answer:
        line = json.load(answer)

    assert line["count"] == 20_000
    assert line["nan"] == 1
    assert len(line["at"]) == len(line["last"]) == 100
    assert line["lowest"][0] == 0
    assert line["highest"][-1] == line["last"][-1] == 19_999
    assert line["at"][-1] == 19_999
