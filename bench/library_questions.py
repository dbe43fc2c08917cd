"""Short trainings with libraries that keep state of their own, and what becomes of questions that are asked later.

The scripts are in bench/library_scripts; none knows of relive. Each is run hands-free with a checkpoint for each
iteration; `# probe NAME: EXPRESSION` are statements that are added afterwards: `late…` is asked for in the last
iteration, `after…` behind the loop. A run of the script that had them tells what should come out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.laws.awkward_programs import Outcome, ask
from tests.laws.awkward_source import Awkward

SCRIPTS = Path(__file__).parent / "library_scripts"
STAND_INS = Path(__file__).parent / "stand_ins"  # of torchvision, which timm imports
PATIENCE_S = 600
_IMPORTED = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)


def read_scripts(only: str = "") -> list[Awkward]:
    """All scripts whose name holds a text."""
    return [_as_program(path) for path in sorted(SCRIPTS.glob("*.py")) if only in f"library/{path.name}"]


def _as_program(path: Path) -> Awkward:
    source = path.read_text()
    length = re.search(r"for epoch in range\((\d+)\)", source)
    late = int(length[1]) - 1 if length else 0
    return Awkward(path.stem, source, late=late, is_hands_free=True)


def ask_script(one: Awkward) -> list[Outcome]:
    """What becomes of the questions to a script; `no library`, if what it imports is not installed."""
    needed = set(_IMPORTED.findall(one.source)) - {"torchvision"}
    absent = sorted(name for name in needed if importlib.util.find_spec(name) is None)
    if absent:
        return [Outcome(one.name, probe, "no library", f"install {absent[0]}") for probe in one.probes]
    before = os.environ.get("PYTHONPATH")
    if one.name.startswith("timm"):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STAND_INS), before]))
    try:
        return ask(one, PATIENCE_S)
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


def measure_libraries(only: str = "") -> dict[str, Any]:
    """The counts over all scripts; each outcome is told on standard error."""
    found: list[Outcome] = []
    for one in read_scripts(only):
        outcomes = ask_script(one)
        found += outcomes
        for outcome in outcomes:
            print(json.dumps(asdict(outcome)), file=sys.stderr, flush=True)
    kinds = Counter(one.kind for one in found)
    asked = sum(kinds.values()) - kinds["no library"]
    return {
        "library_scripts": len({one.program for one in found}),
        "library_questions": len(found),
        **{f"library_{kind}": kinds[kind] for kind in ("right", "cautious", "marked", "wrong", "hung", "broken")},
        "library_not_installed": kinds["no library"],
        "library_relied_share": kinds["right"] / max(1, asked),
        "library_failed": [one.question for one in found if one.kind in ("wrong", "hung", "broken")],
    }
