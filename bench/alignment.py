"""Whether a statement finds its place again in older versions of real scripts, and how long that takes.

    RELIVE_ALIGNMENT_CASES=cases.jsonl.gz RELIVE_ALIGNMENT_REPOS=FOLDER python -m bench alignment

Each line of the cases names a repository (`owner+name`), the blobs of an old and a new version of a script, the lines
of a statement in the new one and of its counterpart in the old one, and how many commits lie between.
The folder holds clones, bare or not, of those repositories: `git clone --bare <url> FOLDER/owner+name`.
Nothing of them is kept. `--every 10` takes each tenth case, `--tuned` the repositories that the weights were fitted to
instead of the others, `--unseen` only those that nothing was fitted to and whose failures nobody looked at.
`python -m bench.alignment_cases` finds cases of such repositories.

A statement is at its place in four senses, each reported on its own. `exact`: the same block and the same neighbours.
`equivalent`: another gap of the block, if the statements between commute with it by the names that they use; a method
call counts as a change of its object, so two calls of one logger don't commute. `equivalent_among_logs`: two statements
that only log commute too, because the order in which a logger gets values of different names changes no value.
`place`: `exact`, or a refusal that names the exact place.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.measuring import report

# The weights of relive.transplant.slot_scores were fitted to the repositories of these groups.
FITTED = frozenset("ptexamples karpathy yolo r9y9 fairseq aiayn clovaai qlora ssd cifar rosinality taco2".split())
# The rules for names were improved by looking at failures in the repositories of these groups too.
LOOKED_AT = frozenset(
    "kohya timm dalle gs nerf cifar100 rainbow alpaca open_clip cleanrl frcnn a2c tts deepspeech "
    "lucidgan tvision opennmt titan bertvits sovits yolov3 sb3 reid".split()
)
DISTANCES = (1, 5, 20, 100)
GOALS = {
    "exact": "log statements: >= 100, 100, 98, 88 % at 1, 5, 20, 100 commits; edited ones: >= 95, 93, 85, 78 %",
    "equivalent": ">= 100, 100, 98, 90 %",
    "wrong_with_high_confidence": "<= 1 %",
    "broken": "0",
    "unbound": "0",
    "ms_per_1000_lines": "< 50",
    "growth_per_doubling": "< 2.3",
}

LOG_CALL = re.compile(
    r"(?:[\w.]+\.)?(?:print|log|info|debug|warning|write|add_\w+|set_postfix|set_postfix_str|set_description)\("
)

Path_ = tuple[tuple[str, int], ...]  # the way from the module to a statement: fields and numbers


def main() -> None:
    """Measure on the cases that the weights have not seen, or say how to get cases."""
    options = _options()
    if options.cases is None or options.repos is None:
        print(__doc__, file=sys.stderr)
        return
    cases = [case for case in _read(options.cases) if _is_wanted(case["group"], options)][:: options.every]
    texts = _texts(cases, options.repos)
    warnings.simplefilter("ignore")
    judged = [(case, _judge(case, texts)) for case in cases if case["old_blob"] in texts and case["new_blob"] in texts]
    for sample in ("natlog", "natany", "over"):
        _tell(sample, [(case, found) for case, found in judged if case["sample"] == sample])
    times = sorted(found["ms"] for case, found in judged if 800 <= case["nl_new"] <= 1200)
    report("alignment speed", GOALS, ms_per_1000_lines=statistics.median(times or [0]), **_growth(texts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.alignment")
    parser.add_argument("--cases", type=Path, default=os.environ.get("RELIVE_ALIGNMENT_CASES"))
    parser.add_argument("--repos", type=Path, default=os.environ.get("RELIVE_ALIGNMENT_REPOS"))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--unseen", action="store_true")
    return parser.parse_args()


def _is_wanted(group: str, options: argparse.Namespace) -> bool:
    if options.unseen:
        return group not in FITTED | LOOKED_AT
    return (group in FITTED) == options.tuned


def _read(path: str | Path) -> list[dict[str, Any]]:
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _texts(cases: list[dict[str, Any]], repos: str | Path) -> dict[str, str]:
    """The texts of all blobs, read from the clones."""
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        wanted[case["repo"]] |= {case["old_blob"], case["new_blob"]}
    return {blob: text for repo, blobs in wanted.items() for blob, text in _blobs(Path(repos) / repo, sorted(blobs))}


def _blobs(folder: Path, blobs: list[str]) -> Iterator[tuple[str, str]]:
    places = [place for place in (folder / ".git", folder / "repo", folder) if (place / "objects").is_dir()]
    if not places:
        print(f"no clone in {folder}; its cases are left out", file=sys.stderr)
        return
    command = ["git", f"--git-dir={places[0]}", "cat-file", "--batch"]
    out = subprocess.run(command, input="\n".join(blobs).encode() + b"\n", capture_output=True, check=True).stdout
    at = 0
    for blob in blobs:
        end = out.index(b"\n", at)
        header = out[at:end].split()
        if header[1] == b"missing":
            at = end + 1
            continue
        yield blob, out[end + 1 : end + 1 + int(header[2])].decode("utf-8")
        at = end + 2 + int(header[2])


# --- judging one case ------------------------------------------------------------------------------------------------


def _judge(case: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Take the statement out of the old version, let it be put back, and compare the places."""
    from relive.transplant import transplant

    old, new = texts[case["old_blob"]], texts[case["new_blob"]]
    first, last = case["old_lines"]
    lines = re.findall(r"[^\n]*\n|[^\n]+", old)
    without = "".join(lines[: first - 1] + lines[last:])
    begun = time.process_time()
    done = transplant({"script.py": without}, {"script.py": new}, [("script.py", case["new_lines"][0])])
    found: dict[str, Any] = {"ms": 1000 * (time.process_time() - begun), "refused": not done.landings}
    if not done.landings:
        (refusal,) = done.refusals
        return {**found, "place": refusal.before == first}
    (landing,) = done.landings
    patched = done.files["script.py"]
    found["high"] = landing.confidence == "high"
    try:
        tree = ast.parse(patched)
    except SyntaxError:
        return {**found, "broken": True}
    added = set(done.added["script.py"])
    there, statement = _place(tree, landing.old_line, added)
    here, _ = _place(ast.parse(old), first, set())
    found["exact"] = there == here
    found["equivalent"] = found["exact"] or _commute(ast.parse(without), here, there, statement)
    found["equivalent_among_logs"] = found["equivalent"] or _commute(
        ast.parse(without), here, there, statement, among_logs=True
    )
    found["place"] = found["exact"]
    found["same_bytes"] = patched == old
    found["unbound"] = bool(_unknown(tree, statement))
    return found


def _place(tree: ast.Module, line: int, added: set[int]) -> tuple[Path_, ast.stmt]:
    """The way to the statement that starts on a line, not counting other statements that were added."""
    node: ast.AST = tree
    way: list[tuple[str, int]] = []
    while True:
        for field, number, child in _children(node, added, line):
            start, end = _span(child)
            if start <= line <= end:
                way.append((field, number))
                if start == line and isinstance(child, ast.stmt):
                    return tuple(way), child
                if start in added and isinstance(child, ast.stmt):
                    return tuple(way), child  # a block that came along with the statement
                node = child
                break
        else:
            raise LookupError(f"no statement on line {line}")


def _children(node: ast.AST, added: set[int], line: int) -> Iterator[tuple[str, int, ast.AST]]:
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        number = 0
        for child in getattr(node, field, ()):
            start, end = _span(child)
            if start in added and not start <= line <= end:
                continue
            yield field, number, child
            number += 1


def _span(node: Any) -> tuple[int, int]:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.body[-1].end_lineno or 0
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]), node.end_lineno


def _commute(tree: ast.Module, here: Path_, there: Path_, statement: ast.stmt, *, among_logs: bool = False) -> bool:
    """Whether both places are in one block and the statements between them commute with the statement."""
    if here[:-1] != there[:-1] or here[-1][0] != there[-1][0]:
        return False
    block: Any = tree
    for field, number in here[:-1]:
        block = getattr(block, field)[number]
    first, last = sorted((here[-1][1], there[-1][1]))
    reads, writes = _effects(statement)
    logs = among_logs and _only_logs(statement)
    for neighbour in getattr(block, here[-1][0])[first:last]:
        leaving = ast.Return | ast.Raise | ast.Break | ast.Continue | ast.Yield | ast.Delete
        if any(isinstance(node, leaving) for node in ast.walk(neighbour)):
            return False
        their_reads, their_writes = _effects(neighbour)
        if logs and _only_logs(neighbour):
            continue
        if their_writes & (reads | writes) or writes & their_reads:
            return False
    return True


def _only_logs(statement: ast.stmt) -> bool:
    """Whether a statement is a call of a logger, or an `if` with nothing but such calls."""
    if isinstance(statement, ast.If):
        return all(_only_logs(inner) for inner in (*statement.body, *statement.orelse))
    return isinstance(statement, ast.Expr) and bool(LOG_CALL.match(ast.unparse(statement)))


def _effects(statement: ast.AST) -> tuple[set[str], set[str]]:
    """Names that are read; names that are bound, or whose objects' methods are called."""
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    reads = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    writes = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(statement):
        base = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
        if isinstance(base, ast.Attribute | ast.Subscript) and (base is not node or not isinstance(base.ctx, ast.Load)):
            inner: ast.AST = base
            while isinstance(inner, ast.Attribute | ast.Subscript | ast.Call):
                inner = inner.func if isinstance(inner, ast.Call) else inner.value
            writes |= {inner.id} if isinstance(inner, ast.Name) else set()
        if isinstance(node, ast.Import | ast.ImportFrom):
            writes |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            writes.add(node.name)
    return reads, writes


def _unknown(tree: ast.Module, statement: ast.stmt) -> set[str]:
    """Names that a statement reads and that nothing in the whole file binds."""
    bound = set(dir(builtins)) | {"__file__", "__name__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return set()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exec":
            return set()
        bound |= _effects(node)[1] if isinstance(node, ast.stmt) and not hasattr(node, "body") else set()
        bound |= {node.arg} if isinstance(node, ast.arg) else set()
        bound |= {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler)
        bound |= {str(node.name)} if named else set()
        bound |= set(node.names) if isinstance(node, ast.Global) else set()
    return _effects(statement)[0] - bound


# --- telling ---------------------------------------------------------------------------------------------------------


def _tell(sample: str, judged: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for distance in DISTANCES:
        found = [result for case, result in judged if case["dist"] == distance]
        if not found:
            continue
        high = [result for result in found if result.get("high")]
        unedited = [
            result for case, result in judged if case["dist"] == distance and case["kind"] in ("exact", "repeat")
        ]
        numbers = {
            key: _percent(found, key)
            for key in (
                "exact",
                "equivalent",
                "equivalent_among_logs",
                "place",
                "refused",
                "high",
                "broken",
                "unbound",
            )
        }
        wrong = 100 - _percent(high, "equivalent")
        same = _percent(unedited, "same_bytes")
        report(
            f"alignment {sample} {distance}", GOALS, cases=len(found), **numbers,
            wrong_with_high_confidence=wrong, same_bytes_if_unedited=same,
        )  # fmt: skip


def _percent(results: list[dict[str, Any]], key: str) -> float:
    return 100 * sum(bool(result.get(key)) for result in results) / len(results) if results else 100.0


def _growth(texts: Mapping[str, str]) -> dict[str, float]:
    """How much longer a file of twice the length takes, from 1,000 to 8,000 lines of real code."""
    from relive.transplant import transplant

    parts = [text for _, text in sorted(texts.items()) if text.count("\n") > 100 and "\r" not in text][:80]
    took = []
    for length in (1000, 2000, 4000, 8000):
        text = ""
        for number, part in enumerate(parts):
            text += f"def part_{number}():\n" + "".join(
                f"    {line}\n" for line in part.splitlines() if '"""' not in line
            )
            if text.count("\n") > length:
                break
        lines = text.splitlines(keepends=True)
        changed = "".join(
            line.replace("loss", "cost") if number % 7 == 0 else line for number, line in enumerate(lines)
        )
        middle = next(number for number in range(length // 2, length) if lines[number].strip().endswith(")"))
        begun = time.process_time()
        transplant({"a.py": changed}, {"a.py": text}, [("a.py", middle + 1)])
        took.append(time.process_time() - begun)
    return {"ms_8000_lines": 1000 * took[-1], "growth_per_doubling": (took[-1] / took[0]) ** (1 / 3)}


if __name__ == "__main__":
    main()
