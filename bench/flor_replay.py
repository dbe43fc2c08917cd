"""The same training in FlorDB's idiom, and how long its replay of a statement takes: it runs the script again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.measuring import clean_environment, once_s, project, run_script


def flor_replays(script: str, args: tuple[str, ...], statements: Mapping[str, str], tenth: range) -> dict[str, float]:
    """Seconds of `flordb replay` by where the statement stands, and of recording the script.

    `script` is one for relive: loops and logs have the same form, and FlorDB 4 knows no checkpointing block.
    `statements` stand where a comment tells; `tenth` are the epochs that are asked for of the one in the inner loop.
    """
    with project(_in_flors_words(script, args), git=True) as folder:
        took = {"recorded": once_s(lambda: run_script(folder, OMP_NUM_THREADS="1"))}
        source = (folder / "train.py").read_text()
        for where, statement in statements.items():
            name = f"norm_{where}"
            text = source.replace(f"# {where}\n", statement.replace("relive", "flor").replace("norm", name, 1) + "\n")
            (folder / "train.py").write_text(text)
            asked = ["--iter", f"epoch={','.join(map(str, tenth))}", "--iter", "step=all"] if where == "inner" else []
            took[where] = once_s(lambda name=name, asked=asked: _replay(folder, name, asked))  # type: ignore[misc]
            (folder / "train.py").write_text(source)
    return took


def _in_flors_words(script: str, args: tuple[str, ...]) -> str:
    """Its replay starts the script without arguments, so they are written into it."""
    text = script.replace("sys.argv", repr(["train.py", *args])).replace("import relive", "import flordb as flor")
    lines = ["if True:" if line.startswith("with relive.checkpointing(") else line for line in text.splitlines()]
    return "\n".join(lines).replace("relive.", "flor.") + "\n"


def _replay(folder: Path, name: str, asked: list[str]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it starts what is called `python`
    done = subprocess.run(
        [sys.executable, "-m", "flordb", "replay", "--apply", name, *asked], cwd=folder, input="y\n", text=True,
        env={**clean_environment(), "PATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode or "exited with code" in done.stdout or f"{name}: " not in done.stdout:
        raise SystemExit(f"flordb replay of {name} failed\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
