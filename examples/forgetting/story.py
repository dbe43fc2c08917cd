"""Finds when a class was forgotten: ten versions of a detector, a question on the last day, and its answer.

python examples/forgetting/story.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import history

HERE = Path(__file__).parent


def record(folder: Path) -> str:
    """Records ten days, each with its version of the code and a run. Returns the newest version."""
    history.make_data(folder / "data")
    (folder / ".gitignore").write_text("data/\n*.npy\n")
    text = ""
    for day, text in enumerate(history.versions((HERE / "train.py").read_text(encoding="utf-8"))):
        (folder / "train.py").write_text(text, encoding="utf-8")
        run(folder, "train.py", "--kwargs", f"day={day}")
    return text


def ask(folder: Path, newest: str) -> None:
    """Adds log statements to the newest version; a replay carries them into all others."""
    (folder / "train.py").write_text(history.asked(newest), encoding="utf-8")
    run(folder, "-m", "relive", "replay", "f1_ped", "f1_alert", "tstamp >= '2026-01-01'", "--yes")


def go_back(folder: Path) -> str:
    """Promotes the newest run that had not forgotten the class to production, and returns its id."""
    import relive

    query = "select run, day from frame('day', 'f1_ped') where f1_ped > 0.9 and day < 8 order by day desc limit 1"
    best = str(relive.sql(query, home=folder / ".relive")["run"][0])
    run(folder, "-m", "relive", "promote", best, "detector", "--alias", "production")
    return best


def run(folder: Path, *command: str) -> None:
    subprocess.run([sys.executable, *command], cwd=folder, check=True)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    ask(folder, record(folder))
    run(folder, "-m", "relive", "dataframe", "day", "acc", "f1_ped", "f1_alert", "--where", "epoch = 5")
    print(f"the newest run before pedestrians were forgotten is {go_back(folder)}; it is detector@production now")
    run(folder, "-m", "relive", "registry", "detector")


if __name__ == "__main__":
    main()
