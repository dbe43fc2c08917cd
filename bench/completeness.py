"""How many main loops of public training scripts have their state completely kept: by relive, and by six static rules.

    RELIVE_COMPLETENESS_REPOS=FOLDER python -m bench completeness

The folder holds clones, bare or not, of the repositories named in bench/public_scripts.py: `git clone --bare <url>
FOLDER/owner+name`, or `FOLDER/owner+name/repo`. Nothing of them is kept. Each script is made small and seeded, and run
hands-free with a checkpoint for each turn; pictures are noise. Then its last turn is replayed from the checkpoint
before it with one statement more at the turn's end: a number that holds every bit of all modules, optimizers and global
generators. A run of the script that had the statement tells what should come out. `complete`: the replay began at a
checkpoint, and its number is that one. `from_start`: relive knew that something is missing, and said so. `flagged`: it
came out differently, and relive said so. `wrong`: it did not. For the six rules of the Flor paper, a loop is complete
if they give an estimate and everything that changed between two checkpoints is in it, models and optimizers added by
the paper's two facts; random generators are not asked of them.
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

from bench.measuring import clean_environment, report
from bench.public_scripts import SCRIPTS, Public
from bench.six_rules import estimate
from relive.checkpoint.liveouts import of_loop
from relive.checkpoint.restoring import RANDOM, UNKEPT, VARIABLES
from relive.hindsight import Question, answer, planned
from relive.hindsight.asking import read_course
from relive.instrument import instrument, survey
from relive.store import Chunks, Home, Index

PROBE = "probe_state"
STATEMENT = f'print("{PROBE}:", __import__("state_digest").now())'
SEED = '__import__("torch").manual_seed(1); __import__("random").seed(1); __import__("numpy").random.seed(1)'
STAND_INS = Path(__file__).parent / "stand_ins"
GOALS = {"complete_share": ">= 0.9 of the main loops", "wrong": "0"}


@dataclass(frozen=True)
class Outcome:
    """What became of one script."""

    script: str
    verdict: str  # complete, from_start, flagged, wrong, no_main_loop, does_not_run
    by_six_rules: bool = False
    has_estimate: bool = False
    why: str = ""
    missed: list[str] = field(default_factory=list)  # by the six rules


def main() -> None:
    """Measure all scripts whose repository is there, or say how to get them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repos", type=Path, default=os.environ.get("RELIVE_COMPLETENESS_REPOS"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.repos is None:
        print(__doc__, file=sys.stderr)
        return
    chosen = [one for one in SCRIPTS if options.only in f"{one.repository}/{one.folder}/{one.script}"]
    outcomes = [_tried(one, repository) for one in chosen if (repository := _clone(options.repos, one)) is not None]
    ran = [one for one in outcomes if one.verdict != "does_not_run"]
    loops = [one for one in ran if one.verdict != "no_main_loop"]
    counts = Counter(one.verdict for one in outcomes)
    report(
        "completeness", GOALS, scripts=len(outcomes), ran=len(ran), **{key: counts[key] for key in sorted(counts)},
        complete_share=counts["complete"] / max(1, len(ran)),
        six_rules_estimate=sum(one.has_estimate for one in loops),
        six_rules_complete_share=sum(one.by_six_rules for one in loops) / max(1, len(ran)),
    )  # fmt: skip


def _clone(folder: Path, one: Public) -> Path | None:
    options = [Path(folder) / one.repository / "repo", Path(folder) / one.repository]
    return next((path for path in options if path.is_dir()), None)


# --- one script -------------------------------------------------------------------------------------------------------


def _tried(one: Public, repository: Path) -> Outcome:
    name = f"{one.repository}/{one.folder}/{one.script}"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            found = _measured(name, one, repository, place)
        except _Failed as error:
            found = Outcome(name, "does_not_run", why=str(error))
    print(json.dumps(asdict(found)), file=sys.stderr, flush=True)
    return found


class _Failed(Exception):
    """A script does not run here."""


def _measured(name: str, one: Public, repository: Path, place: Path) -> Outcome:
    project = _laid_out(one, repository, place)
    started = project / one.folder
    home, reference = Home(place / "home"), Home(place / "reference")
    search = [str(place / "lib" / "site-packages"), *(str((started / path).resolve()) for path in one.search)]
    os.environ["PYTHONPATH"] = os.pathsep.join(search)  # for the script, and for the workers that replay it
    _run(one, started, home)
    (entry,) = Index(home).runs()
    _, _, profile = read_course(home, entry)
    mains = [loop for loop in profile.mains if loop.iterations > 1]
    if not mains:
        return Outcome(name, "no_main_loop", why="nothing that takes turns was seen to train")
    main = mains[-1]
    found = _with_statement(started, one.script, main.name)
    if found is None:
        return Outcome(name, "no_main_loop", why=f"the loop {main.name} is not where it was looked for")
    known, missed = _six_rules(*found, home, main)
    _run(one, started, reference)
    verdict, why = _replayed(home, reference, main)
    return Outcome(name, verdict, known is not None and not missed, known is not None, why, missed)


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
           "OMP_NUM_THREADS": "1"}  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-m", "relive", "run", one.script, *one.args], cwd=started, env=env, capture_output=True,
            text=True, check=False, timeout=180,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _Failed("it takes longer than three minutes") from error
    if done.returncode:
        raise _Failed(done.stderr.strip().rpartition("\n")[2][:200])


def _with_statement(started: Path, script: str, loop: str) -> tuple[ast.Module, ast.For | ast.While] | None:
    """Put the statement at the end of a turn of the main loop; gives its file and the loop as they were."""
    files = {file: file.read_text() for file in started.rglob("*.py")}
    known = survey(files.values())
    for file in sorted(files, key=lambda path: path.name != script):
        tree = ast.parse(files[file])
        choice = next((one for one in instrument(ast.parse(files[file]), known) if one.name == loop), None)
        if choice is None:
            continue
        whole = next(node for node in ast.walk(tree) if isinstance(node, type(choice.node)) and
                     (node.lineno, node.col_offset) == (choice.node.lineno, choice.node.col_offset))  # fmt: skip
        last = whole.body[-1]
        lines = files[file].splitlines(keepends=True)
        ends = isinstance(last, ast.Break | ast.Continue | ast.Return | ast.Raise)
        at = (last.lineno - 1) if ends else (last.end_lineno or last.lineno)
        indent = lines[whole.body[0].lineno - 1][: whole.body[0].col_offset]
        file.write_text("".join([*lines[:at], f"{indent}{STATEMENT}\n", *lines[at:]]))
        return tree, whole
    return None


# --- relive -----------------------------------------------------------------------------------------------------------


def _replayed(home: Home, reference: Home, main: Any) -> tuple[str, str]:
    """Ask for the last turn that came to the statement, and compare its number with that of the run which had it."""
    wanted = _numbers(reference)
    if not wanted:
        return "flagged", "no turn comes to its end"
    at = len(main.path) - 1
    question = Question((PROBE,), f"{main.name} = {wanted[-1][0][at]}", workers=1)
    with planned(home, question) as plan:
        if not plan.cases:
            return "flagged", str(plan.refusals)
        (case,) = plan.cases
        found = answer(home, plan, watch=lambda _tasks: None)
    (told,) = found.runs
    came = [one for one in _numbers(home) if one[0] == wanted[-1][0]]
    if told.missing:
        return "flagged", told.missing[0]
    if told.verdict == "unverified":
        first = told.mismatches[0] if told.mismatches else told.unrestored[0]
        return "flagged", str(first)
    if came[-1:] != wanted[-1:]:
        return "wrong", f"{came[-1:]} instead of {wanted[-1:]}"
    jumped = any(visit.restore or visit.warm for segment in case.plan.segments for visit in segment.visits)
    return ("complete", case.plan.resume) if jumped else ("from_start", "; ".join(case.plan.reasons))


def _numbers(home: Home) -> list[tuple[tuple[int, ...], str]]:
    """What the statement told, and in which turns."""
    index = Index(home)
    points = index.points(index.runs(), [PROBE])
    index.close()
    rows = zip(points.path.tolist(), points.dims.tolist(), points.value.tolist(), strict=True)
    return [(tuple(dims[: len(points.paths[path])]), value.hex()) for path, dims, value in rows]


# --- the six rules ----------------------------------------------------------------------------------------------------


def _six_rules(
    tree: ast.Module, loop: ast.For | ast.While, home: Home, main: Any
) -> tuple[frozenset[str] | None, list[str]]:
    """What they estimate, and what of that which changed between two checkpoints is not in it."""
    known = estimate(loop.body)
    if known is None:
        return None, []
    ends = [turn.end.manifest for turn in main.turns if turn.end is not None]
    if len(ends) < 2:
        return known, ["no two checkpoints to compare"]
    before, after = (_contents(home, manifest) for manifest in (ends[0], ends[-1]))
    # A variable that each turn sets anew, and nobody else reads, is no state.
    left = {f"{VARIABLES}:{name}" for name in of_loop(tree, loop.lineno)}
    changed = {
        name
        for name in after
        if name not in (RANDOM, UNKEPT)
        and before.get(name) != after[name]
        and (name in left or not name.startswith(f"{VARIABLES}:"))
    }
    kinds = json.loads(Chunks(home.chunks).get(ends[-1]))["subjects"]
    bare = {name: _bare(name) for name in changed}
    optimizes = any(kinds[name]["kind"] in ("optimizer", "state_dict") and bare[name] in known for name in kinds
                    if name in bare)  # fmt: skip
    covered = ("module", "optimizer") if optimizes else ()
    missed = [name for name in sorted(changed) if bare[name] not in known and kinds[name]["kind"] not in covered]
    return known, missed


def _bare(subject: str) -> str:
    """`model` of `near:model`, `near:__main__.model` and `variables:model`."""
    name = subject.partition(":")[2] or subject
    return name.removeprefix("__main__.").partition(".")[0].partition("[")[0]


def _contents(home: Home, manifest: str) -> dict[str, str]:
    told = json.loads(Chunks(home.chunks).get(manifest))
    digests = [piece[-1] for piece in told["pieces"]]
    leaves = [[digests[number] for number in leaf[1]] for leaf in told["leaves"]]
    blobs = [[digests[number] for number in blob] for blob in told["blobs"]]
    return {
        name: json.dumps([{key: leaves[at] for key, at in subject["leaves"].items()},
                          _resolved(subject["rest"], leaves, blobs)])
        for name, subject in told["subjects"].items()
    }  # fmt: skip


def _resolved(tree: Any, leaves: list[Any], blobs: list[Any]) -> Any:
    """A tree with the content of its leaves and pickles, rather than their numbers."""
    if isinstance(tree, list):
        return [_resolved(item, leaves, blobs) for item in tree]
    if isinstance(tree, dict):
        known = {"$leaf": leaves, "$pickle": blobs, "$bytes_at": blobs}
        return {key: known[key][item] if key in known else _resolved(item, leaves, blobs) for key, item in tree.items()}
    return tree


if __name__ == "__main__":
    main()
