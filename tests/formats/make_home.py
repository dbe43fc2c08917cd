"""Makes the home that is kept for a released format: run `python tests/formats/make_home.py` when the format changes.

The home goes to `tests/formats/<format>/home`, without what is derived, and with the names of this machine taken out.
Homes of earlier formats are never made again: they are what earlier releases wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from relive.store.journal.line_schema import JOURNAL_FORMAT, with_sum

TRAIN = """
import os, signal
import numpy as np
import relive

lr = relive.arg("lr", 0.1)
relive.arg("api_key", "abc")
relive.data("train", "train.csv")
open("config.yaml").read()
state = {"weights": np.zeros(300), "step": 0}
odd = {"none": None, "yes": True, "nan": float("nan"), "inf": float("-inf"), "big": 10**30, "nested": [1, {"a": (2,)}],
       "bytes": b"\\x00\\xff", "float32": np.float32(0.5), "int8": np.int8(-3), "text": "né", "long": "x" * 5_000,
       "array": np.arange(200.0).reshape(2, 100), "complex": 1 + 2j}
with relive.checkpointing(state=state, every=1):
    for epoch in relive.loop("epoch", range(1, 4)):
        for word in relive.loop("word", ["alpha", "beta"]):
            state["weights"] += lr * epoch
            state["step"] += 1
            relive.log("loss", lr * state["step"])
        relive.log("count", epoch)
for name, value in odd.items():
    relive.log(name, value)
relive.log("twice", 1), relive.log("twice", 2)
if os.fork() == 0:
    relive.log("child", 7)
    os._exit(0)
os.wait()
relive.artifact({"table": list(range(3)), "long": "y" * 5_000}, name="facts")
relive.artifact("train.csv")
with relive.run("inside", tags={"sweep": 4, "notes": "z" * 5_000}):
    relive.log("loss", 0.25)
if lr > 0.4:
    os.kill(os.getpid(), signal.SIGKILL)
"""
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "USER": "ada",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def main() -> None:
    """Two runs and the runs inside them: one that finished, one that was killed."""
    target = Path(__file__).parent / str(JOURNAL_FORMAT) / "home"
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "digits"
        project.mkdir()
        for name, text in {"train.py": TRAIN, "train.csv": "1,2\n3,4\n", "config.yaml": "depth: 3\n"}.items():
            (project / name).write_text(text)
        for args in ([], ["--kwargs", "lr=0.5"]):
            subprocess.run([sys.executable, "train.py", *args], cwd=project, env=ENVIRONMENT, check=not args)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(project / ".relive", target, ignore=shutil.ignore_patterns(*DERIVED))
        for lines in target.rglob("*.lines"):
            rows = [told_elsewhere(json.loads(row), project) for row in lines.read_text().splitlines()]
            lines.write_bytes(b"".join(with_sum(json.dumps(row, separators=(",", ":")).encode()) for row in rows))


DERIVED = ("index", ".gitignore", "fingerprints.sqlite*", "version-*", "*.lock")


def told_elsewhere(line: dict[str, Any], project: Path) -> dict[str, Any]:
    """The line as another machine would have written it."""
    if line["k"] == "run":
        line |= {"host": "elsewhere", "pid": 4711, "start": "boot:1"}
        line["environment"] |= {"executable": "/usr/bin/python3", "hostname": "elsewhere", "pid": 4711, "user": "ada"}
        line["environment"] |= {"platform": "Linux", "cpu": "a processor", "cpus": 8, "memory_bytes": 1 << 34}
        line["environment"]["command"][0] = "python"
    if line["k"] == "packages":
        line["packages"] = {"numpy": line["packages"]["numpy"], "relive": line["packages"]["relive"]}
    del line["sum"]
    told: dict[str, Any] = json.loads(json.dumps(line).replace(json.dumps(str(project))[1:-1], "/home/ada/digits"))
    return told


if __name__ == "__main__":
    main()
