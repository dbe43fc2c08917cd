"""How many loops of public training scripts have their state completely kept.

    RELIVE_COMPLETENESS_REPOS=FOLDER python -m bench completeness

The folder holds clones, bare or not, of the repositories named in bench/public_scripts.py: `git clone --bare <url>
FOLDER/owner+name`, or `FOLDER/owner+name/repo`. Nothing of them is kept. Each script is made small and seeded, and run
hands-free with a checkpoint for each iteration; pictures are noise. Then its last iteration is replayed with one more
statement at its end: a number that holds every bit of all modules, optimizers and global generators. A run of the
script that had the statement tells what should come out.

The main loop is asked with further statements in all loops inside, so that the whole iteration runs from the checkpoint
before it. The inner loops are asked without, so that none of them runs: what they changed is restored. `complete`: the
replay used checkpoints, and its number is that one. `from_start`: relive knew that something is missing, and said so.
`cautious`: relive said that it may be wrong, and it is right. `flagged`: it came out differently, and relive said so.
`wrong`: it did not.

`right` are the complete ones and those from the start, `marked` the flagged ones; `relied_share` is the share of loops
whose answer is right, and is told as proven or reproduced. Scripts with libraries that keep state of their own follow
(bench/library_questions.py); they need no clones: `python -m bench completeness --only library/`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.library_questions import measure_libraries
from bench.measuring import clean_environment, report
from bench.public_scripts import SCRIPTS, Public
from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
from relive.hindsight.plan.run_history import read_history
from relive.instrument import reachable_files, survey_functions
from relive.instrument.loop_selection import LoopKind, choose_loops
from relive.store import Home
from relive.store.catalog import Index

PROBE = "probe_state"
INSIDE = "probe_inside"
STATEMENT = f'print("{PROBE}:", __import__("state_digest").now())'
INNER_STATEMENT = f'print("{INSIDE}:", 1)'
SEED = '__import__("torch").manual_seed(1); __import__("random").seed(1); __import__("numpy").random.seed(1)'
STAND_INS = Path(__file__).parent / "stand_ins"
GOALS = {"complete_share": ">= 0.9 of the main loops", "wrong": "0", "inner_wrong": "0", "library_wrong": "0",
         "relied_share": ">= 0.95", "library_relied_share": ">= 0.95"}  # fmt: skip
RELIED = ("exact", "proven", "reproduced")  # what a replay may say of values that a reader can rely on
_LIMIT_S = 900  # for a script; those that need longer do not count
WITHOUT_LOOP = ("does_not_run", "no_main_loop")


@dataclass(frozen=True)
class Outcome:
    """What became of one script."""

    script: str
    verdict: str  # complete, from_start, cautious, flagged, wrong, no_main_loop, does_not_run
    why: str = ""
    inner: dict[str, Inner] = field(default_factory=dict)  # the loops inside that were skipped
    says: str = ""  # the replay of itself


@dataclass(frozen=True)
class Inner:
    """What became of a loop inside the main loop."""

    verdict: str
    why: str = ""


def main() -> None:
    """Measure all scripts whose repository is there, or say how to get them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repos", type=Path, default=os.environ.get("RELIVE_COMPLETENESS_REPOS"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.repos is None:
        print(__doc__, file=sys.stderr)
    chosen = [one for one in SCRIPTS if options.only in f"{one.repository}/{one.folder}/{one.script}"]
    places = [(one, _clone(options.repos, one)) for one in chosen] if options.repos else []
    outcomes = [_tried(one, repository) for one, repository in places if repository is not None]
    report("completeness", GOALS, **_summary(outcomes), **measure_libraries(options.only))


def _summary(outcomes: list[Outcome]) -> dict[str, Any]:
    ran = [one for one in outcomes if one.verdict != "does_not_run"]
    loops = [one for one in ran if one.verdict not in WITHOUT_LOOP]
    inner = [loop for one in loops for loop in one.inner.values()]
    counts = Counter(one.verdict for one in outcomes)
    inner_counts = Counter(one.verdict for one in inner)
    return {
        "scripts": len(outcomes),
        "ran": len(ran),
        **{key: counts[key] for key in sorted({*counts, "wrong"})},
        "right": counts["complete"] + counts["from_start"],
        "marked": counts["flagged"],
        "relied_share": sum(_is_relied(one) for one in loops) / max(1, len(loops)),
        "complete_share": counts["complete"] / max(1, len(ran)),
        "inner_loops": len(inner),
        **{f"inner_{key}": inner_counts[key] for key in sorted({*inner_counts, "wrong"})},
        "inner_complete_share": inner_counts["complete"] / max(1, len(inner)),
    }


def _is_relied(one: Outcome) -> bool:
    return one.verdict in ("complete", "from_start") and one.says in RELIED


def _clone(folder: Path, one: Public) -> Path | None:
    options = [Path(folder) / one.repository / "repo", Path(folder) / one.repository]
    return next((path for path in options if path.is_dir()), None)


# --- one script -------------------------------------------------------------------------------------------------------


def _tried(one: Public, repository: Path) -> Outcome:
    name = f"{one.repository}/{one.folder}/{one.script}"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        known, given = list(sys.path), os.environ.get("PYTHONPATH", "")
        try:
            found = _measured(name, one, repository, place)
        except _Failed as error:
            found = Outcome(name, "does_not_run", why=str(error))
        finally:
            sys.path[:], os.environ["PYTHONPATH"] = known, given
    print(json.dumps(asdict(found)), file=sys.stderr, flush=True)
    return found


class _Failed(Exception):
    """A script does not run here."""


def _measured(name: str, one: Public, repository: Path, place: Path) -> Outcome:
    project = _laid_out(one, repository, place)
    started = project / one.folder
    home, reference = Home(place / "home"), Home(place / "reference")
    search = [str(place / "lib" / "site-packages"), *(str((started / path).resolve()) for path in one.search)]
    given = [path for path in [os.environ.get("PYTHONPATH")] if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(search + given)  # for the script, and for the workers that replay it
    sys.path += search  # as if this process had been started with it, too
    _run(one, started, home)
    (entry,) = Index(home).runs()
    profile = read_history(home, entry.record).profile
    mains = [loop for loop in profile.mains if loop.iteration_count > 1]
    if not mains:
        return Outcome(name, "no_main_loop", why="nothing that takes turns was seen to train")
    main = mains[-1]
    placed = _with_statements(project, started / one.script, main.name)
    if main.name not in placed:
        return Outcome(name, "no_main_loop", why=f"the loop {main.name} is not where it was looked for")
    _run(one, started, reference)
    untouched = Home(Path(shutil.copytree(home.path, place / "untouched")))
    os.environ["RELIVE_TRUST"] = str(untouched.path)  # a copy counts as somebody else's
    names = (PROBE, INSIDE) if _numbers(reference, INSIDE) else (PROBE,)
    verdict, why, _, says = _replayed(home, reference, main, names)
    return Outcome(name, verdict, why, _inner(untouched, reference, main, placed), says)


def _inner(home: Home, reference: Home, main: Any, placed: set[str]) -> dict[str, Inner]:
    """The loops inside the iteration that is asked for, all skipped at once."""
    verdict, why, skipped, _ = _replayed(home, reference, main, (PROBE,))
    if verdict == "complete" and not skipped:
        return {}  # there is nothing to skip
    nested = {loop.name for iteration in main.iterations for loop in iteration.nested} & placed
    return {name: Inner(verdict, why) for name in sorted(nested)}


def _laid_out(one: Public, repository: Path, place: Path) -> Path:
    project = place / "project"
    project.mkdir()
    for path in _git(repository, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines():
        if path.endswith(".py") and (path.startswith(one.folder) or one.search):
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_bytes(_git(repository, "show", f"HEAD:{path}"))
    started = project / one.folder
    for file in started.rglob("*.py"):
        text = file.read_text(encoding="utf-8", errors="replace")
        for old, new in one.edits:
            text = text.replace(old, new)
        file.write_text(_seeded(text) if file == started / one.script else text)
    for path, content in one.files.items():
        (started / path).parent.mkdir(parents=True, exist_ok=True)
        (started / path).write_bytes(content())
    shutil.copytree(STAND_INS, place / "lib" / "site-packages")
    _git(project, "init", "-q")  # as it is where people have it: the whole repository is the project
    return project


def _git(repository: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=False)
    if done.returncode:
        raise _Failed(done.stderr.decode(errors="replace")[:200])
    return done.stdout


def _seeded(text: str) -> str:
    """The script with its generators seeded, behind what must come first."""
    body = ast.parse(text).body
    first = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    doc = body[:1] if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else []
    after = max((node.end_lineno or 0 for node in [*doc, *first]), default=0)
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:after], SEED + "\n", *lines[after:]])


def _run(one: Public, started: Path, home: Home) -> None:
    env = {**clean_environment(), "RELIVE_HOME": str(home.path), "RELIVE_EVERY": "1", "RELIVE_SELF_CHECK": "never",
           "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-m", "relive", "run", one.script, *one.args], cwd=started, env=env, capture_output=True,
            text=True, check=False, timeout=_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _Failed("it takes longer than five minutes") from error
    if done.returncode:
        raise _Failed(done.stderr.strip().rpartition("\n")[2][:200])


def _with_statements(project: Path, script: Path, main: str) -> set[str]:
    """Puts the statements at the end of the main loop's iterations and into all other loops; returns their names."""
    files = reachable_files(script.relative_to(project).as_posix(), lambda path: _text(project / path))
    known = survey_functions(files.values())
    found: set[str] = set()
    for path, text in files.items():
        tree = ast.parse(text)
        lines: dict[int, list[str]] = {}  # before which line
        for choice in choose_loops(tree, known):
            if choice.name in found or choice.kind is LoopKind.TRIALS:
                continue
            found.add(choice.name)
            at, statement = _end_of(choice.node) if choice.name == main else _start_of(choice.node)
            if at is not None:
                lines.setdefault(at, []).append(" " * choice.node.body[0].col_offset + statement)
        (project / path).write_text(_with_lines(text, lines))
    return found


def _text(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None


def _end_of(loop: ast.For | ast.While) -> tuple[int, str]:
    last = loop.body[-1]
    ends = isinstance(last, ast.Break | ast.Continue | ast.Return | ast.Raise)
    return (last.lineno if ends else (last.end_lineno or last.lineno) + 1), STATEMENT


def _start_of(loop: ast.For | ast.While) -> tuple[int | None, str]:
    first = loop.body[0]
    is_apart = first.lineno > loop.lineno and not isinstance(first, ast.FunctionDef | ast.ClassDef)
    return (first.lineno if is_apart else None), INNER_STATEMENT


def _with_lines(text: str, before: dict[int, list[str]]) -> str:
    lines = text.splitlines()
    for at in sorted(before, reverse=True):
        lines[at - 1 : at - 1] = before[at]
    return "\n".join(lines) + "\n"


# --- relive -----------------------------------------------------------------------------------------------------------


def _replayed(home: Home, reference: Home, main: Any, names: tuple[str, ...]) -> tuple[str, str, int, str]:
    """Ask for the last iteration that came to the statement, and compare its number with that of the run which had it.

    Gives the verdict, why, how many loops were skipped, and what the replay says of itself.
    """
    wanted = _numbers(reference, PROBE)
    if not wanted:
        return "flagged", "no turn comes to its end", 0, ""
    at = len(main.path) - 1
    question = Question(names, f"{main.name} = {wanted[-1][0][at]}", workers=1)
    with ReplaySession(home) as session:
        plan = plan_replay(session, question)
        if not plan.cases:
            return "flagged", str(plan.refusals), 0, ""
        (case,) = plan.cases
        found = execute_plan(session, plan, watch=lambda _tasks: None)
    (told,) = found.runs
    came = [one for one in _numbers(home, PROBE) if one[0] == wanted[-1][0]]
    skipped = sum(len(segment.skips) for segment in case.plan.segments)
    if told.missing:
        return "flagged", told.missing[0], skipped, told.verdict
    if not told.is_verified:
        first = next(iter([*told.mismatches, *told.causes, *told.notes]), "it is not said why")
        is_right = came[-1:] == wanted[-1:]
        return "cautious" if is_right else "flagged", str(first), skipped, told.verdict
    if came[-1:] != wanted[-1:]:
        return "wrong", f"{came[-1:]} instead of {wanted[-1:]}", skipped, told.verdict
    jumped = any(visit.restore or visit.warm for segment in case.plan.segments for visit in segment.visits)
    how = ("complete", case.plan.resume) if jumped else ("from_start", "; ".join(case.plan.reasons))
    return *how, skipped, told.verdict


def _numbers(home: Home, name: str) -> list[tuple[tuple[int, ...], str]]:
    """What the statement told, and in which iterations."""
    index = Index(home)
    points = index.points(index.runs(), [name])
    index.close()
    rows = zip(points.path.tolist(), points.dims.tolist(), points.value.tolist(), strict=True)
    return [(tuple(dims[: len(points.paths[path])]), value.hex()) for path, dims, value in rows]


if __name__ == "__main__":
    main()
