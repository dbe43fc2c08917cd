"""Runs scripts that do not import relive; comments such as `# probe inside: EXPRESSION` become questions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import relive
from relive.store import Home
from relive.store.catalog import Index

SCRIPTS = Path(__file__).parent / "scripts"
DEPTHS = ("before", "epoch", "inside", "after")
_PROBE = re.compile(r"^(\s*)# probe (\w+): (.*)$", re.MULTILINE)
Value = tuple[tuple[str, ...], tuple[int, ...], str]


@dataclass(frozen=True)
class Style:
    """A script, or a package with several files, and the command line that starts it."""

    name: str
    start: tuple[str, ...] = ("train.py",)
    settings: tuple[tuple[str, str], ...] = (("RELIVE_EVERY", "1"),)

    def put(self, project: Path, *, with_probes: bool) -> None:
        source = SCRIPTS / self.name
        if source.is_dir():
            shutil.copytree(source, project / source.name, dirs_exist_ok=True, ignore=lambda *_: {"__pycache__"})
            files = list((project / source.name).glob("*.py"))
        else:
            files = [Path(shutil.copy(source, project / "train.py"))]
        if with_probes:
            for file in files:
                file.write_text(_PROBE.sub(r'\1print("probe_\2:", \3)', file.read_text()))


def record(style: Style, project: Path, home: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RELIVE_", "PYTHONWARNINGS"))}
    env |= {"RELIVE_HOME": str(home), "OMP_NUM_THREADS": "1", **dict(style.settings)}
    done = subprocess.run(
        [sys.executable, "-m", "relive", "run", *style.start], cwd=project, env=env, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def values(home: Path, name: str) -> list[Value]:
    """Everything logged under a name, with its context, in order."""
    index = Index(Home(home))
    points = index.points(index.runs(), [name])
    index.close()
    return [
        (points.paths[p], tuple(d[: len(points.paths[p])]), v.hex() if v == v else "nan")
        for p, d, v in zip(points.path.tolist(), points.dims.tolist(), points.value.tolist(), strict=True)
    ]


def check(style: Style, folder: Path, depths: tuple[str, ...] = DEPTHS, workers: int = 1) -> dict[str, str]:
    """Records the script, asks each question later, compares with a run that has the probes; returns the verdicts."""
    project, home = folder / "project", folder / "home"
    project.mkdir()
    style.put(project, with_probes=False)
    done = record(style, project, home)
    assert "[state-left-out]" not in done.stderr, done.stderr
    style.put(project, with_probes=True)
    record(style, project, folder / "reference")
    found: dict[str, str] = {}
    for depth in depths:
        name = f"probe_{depth}"
        expected = values(folder / "reference", name)
        answers = relive.replay(name, workers=workers, home=home)
        assert expected, f"{style.name} never comes to {name}"
        assert answers.runs, (depth, answers.refusals)
        (answer,) = answers.runs
        assert not answer.missing, (depth, answer)
        is_flagged = not answer.is_verified
        assert values(home, name) == expected or is_flagged, (depth, answer, values(home, name), expected)
        found[depth] = answer.verdict
    return found
