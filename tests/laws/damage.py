"""A small home with every kind of file, ways to damage one of them, and what may come of it."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from relive.checkpoint.io import find_checkpoints, restore_first_intact
from relive.errors import ReliveError
from relive.hindsight.analysis.depth import Reach
from relive.hindsight.analysis.patch_cache import PatchCache, PatchFit
from relive.hindsight.analysis.patched_source import Patch
from relive.hindsight.analysis.pinned_patches import PinnedPatches
from relive.hindsight.plan.cost_model import CostModel
from relive.hindsight.self_check_result import Check, read_check
from relive.query import QueryEngine
from relive.record.provenance.fingerprint_cache import FileState, FingerprintCache
from relive.server.tokens import Tokens
from relive.store import Home, append_lines
from relive.store.catalog import Index
from relive.store.chunks import Chunks, artifact_files, drop_checkpoints, list_kept_checkpoints
from relive.store.gc import check_home
from relive.store.journal import parse_run
from relive.store.registry import Registry
from relive.store.versions import version_checkout

SCRIPT = """
import sys, time
import numpy as np
import relive

relive.arg("lr", float(sys.argv[1]))
weights = np.arange(2_000.0) * float(sys.argv[1])
history = ["begun"]
with relive.checkpointing(weights=weights, history=history):
    for epoch in relive.loop("epoch", range(3)):
        for step in relive.loop("step", range(4)):
            weights += 1
            relive.log("loss", 1 / (1 + epoch + step))
        relive.log("note", f"epoch {epoch} is over")
        relive.log("curve", weights[: 200 * (epoch + 1)])
        history.append(epoch)
        time.sleep(0.1)
relive.log("long", "text " * 2_000)
open("model.bin", "wb").write(weights.tobytes())
relive.artifact("model.bin")
"""
# Kinds of files, by patterns inside the home. Add the patterns of further kinds to try them too.
KINDS: dict[str, tuple[str, ...]] = {
    "catalog": ("index/catalog.sqlite",),
    "segments": ("index/segments/*.parquet",),
    "registry": ("registry/*.lines", "registry/*.head"),
    "alerts": ("alerts.lines", "alerts.head"),
    "versions": ("versions.git/**/*",),
    "chunks": ("chunks/[0-9a-f][0-9a-f]/*",),
    "packs": ("chunks/packs/*.pack",),
    "tombstones": ("runs/*/*.dropped",),
    "pins": ("pins/*",),
    "fits": ("fits/*.json",),
    "costs": ("costs.json",),
    "fingerprints": ("fingerprints.sqlite",),
    "checks": ("runs/*/check.json",),
    "tokens": ("tokens.json",),
    "identity": ("id",),
    "journals": ("runs/*/*.slots", "runs/*/*.lines"),
}
UNINDEXED = ("journals",)  # the index is removed too: with it, everything would be answered from there
TREE = "5f" * 20
CHECK = Check("exact", "epoch", 2, 17)
STATE = FileState("/data/train.csv", 1_000, 1_700_000_000_000_000_000, 42)
PATCH = Patch({"train.py": "import relive\nrelive.log('norm', 1.0)\n"}, diff="+relive.log('norm', 1.0)\n")
FIT = PatchFit(
    PATCH, Reach(frozenset({("epoch",)}), False, True, ("why",), frozenset()), frozenset({"step"}), ("numpy",)
)
UNCHANGED, FAILED, MARKED, WRONG, BROKEN = "unchanged", "failed", "marked", "wrong", "broken"
Answer = Callable[[Home], Any]


def make_home(folder: Path) -> Path:
    """Records runs with a real script and adds whatever else a home may hold; returns the home."""
    project = folder / "recorded"
    project.mkdir(parents=True)
    (project / "train.py").write_text(textwrap.dedent(SCRIPT))
    env = {name: value for name, value in os.environ.items() if not name.startswith("RELIVE_")}
    env |= {"GIT_CEILING_DIRECTORIES": str(folder), "RELIVE_EVERY": "1", "RELIVE_OVERHEAD": "0.9"}
    for lr in ("0.5", "0.25"):
        subprocess.run([sys.executable, "train.py", lr], cwd=project, env=env, check=True, capture_output=True)
    home = Home(project / ".relive")
    subprocess.run([sys.executable, "-m", "relive", "promote", "last", "net", "--alias", "production", "--force"],
                   cwd=project, env=env, check=True, capture_output=True)  # fmt: skip
    index = Index(home)
    index.refresh()
    index.close()
    _add_other_files(home)
    moved = folder / "home"
    home.path.rename(moved)
    shutil.rmtree(project)  # or versions would be read from where they were recorded, instead of from a damaged copy
    return moved


def _add_other_files(home: Home) -> None:
    append_lines(home.path / "alerts.lines", lambda _: [{"t": 1, "kind": "skew", "text": "rank 3 drifts"}])
    PinnedPatches(home, ["norm"]).write(TREE, PATCH)
    FitCache(home).write()
    costs = CostModel()
    costs.add_reading("process_s", 0.25)
    costs.write(home)
    with FingerprintCache(home.path / "fingerprints.sqlite") as cache:
        cache.put(STATE, "ab" * 32, sampled=False)
    for run in home.run_ids():
        taken = list_kept_checkpoints(home.run_folder(run), parse_run(home, run))
        drop_checkpoints(home.run_folder(run), [row for row in taken if row.at == {"epoch": 1}])
        CHECK.write(home.run_folder(run))
    Tokens(home.path).create("ada", ["read"])
    home.identity()


class FitCache(PatchCache):
    """The cached patches of a home, with one for every question."""

    def __init__(self, home: Home) -> None:
        super().__init__(home, ["norm"])

    def _path(self, *_: Any) -> Path:
        return self._folder / "one.json"

    def write(self) -> None:
        self._write(self._path(), msgspec.json.encode(FIT))

    def read(self) -> PatchFit | None:
        return self.find("", {}, None)  # type: ignore[arg-type]


# --- answers ----------------------------------------------------------------------------------------------------------


def _table(home: Home) -> Any:
    engine = QueryEngine(home)
    return engine.dataframe(["loss", "note", "curve", "long", "lr"], where=None, ranks="canonical").to_json()


def _sql(home: Home) -> Any:
    return QueryEngine(home).sql("select * from logs order by run, seq").df().to_json()


def _records(home: Home) -> Any:
    with contextlib.closing(Index(home)) as index:
        return [entry.record for entry in index.runs()]


def _summaries(home: Home) -> Any:
    with contextlib.closing(Index(home)) as index:
        entries = index.runs()
        summaries = index.summaries(entries), index.summaries(entries, ["loss"])
        return summaries, index.names(entries), sorted(index.loops(entries))


def _model(home: Home) -> Any:
    version = Registry(home).find("net@production")
    return version, artifact_files.read_artifact(version.require_artifact(), Chunks(home.chunks))


def _code(home: Home) -> Any:
    found = {}
    with contextlib.closing(Index(home)) as index:
        records = [entry.record for entry in index.runs()]
    for record in records:
        with tempfile.TemporaryDirectory() as name:
            version_checkout.checkout(home, record.code, Path(name))
            found[record.run] = {path.name: path.read_bytes() for path in Path(name).rglob("*") if path.is_file()}
    return found


def _restored(home: Home) -> Any:
    import numpy as np

    found = []
    for run in sorted(home.run_ids()):
        into: dict[str, Any] = {"weights": np.zeros(2_000), "history": []}
        last = find_checkpoints(home, run, {})
        restore_first_intact(last, into, random=False, only_first=True)
        found.append(into)
    return found


def _checks(home: Home) -> Any:
    found = [read_check(home.run_folder(run)) or CHECK for run in sorted(home.run_ids())]  # none: it was not checked
    if any(check.verdict.startswith("unknown") for check in found):
        raise ReliveError("a check is damaged")
    return found


def _tokens(home: Home) -> Any:
    if not (found := Tokens(home.path).all()):
        raise ReliveError("every request is refused")
    return [(token.name, token.scopes, token.hash) for token in found]


def _fingerprint(home: Home) -> Any:
    with FingerprintCache(home.path / "fingerprints.sqlite") as cache:
        return cache.get(STATE, sampled=False) or "ab" * 32  # it is computed again


ANSWERS: Mapping[str, Answer] = {
    "table": _table, "sql": _sql, "records": _records, "summaries": _summaries, "model": _model, "code": _code,
    "restored": _restored, "checks": _checks, "fingerprint": _fingerprint,
    "pin": lambda home: PinnedPatches(home, ["norm"]).find(TREE),
    "fit": lambda home: FitCache(home).read() or FIT,
    "costs": lambda home: CostModel.read(home).readings or {"process_s": [0.25]},
    "tokens": _tokens,
}  # fmt: skip


def ask(home: Path) -> dict[str, Any]:
    """Returns every answer, or the error that was raised instead."""
    return {name: _ask_one(answer, Home(home)) for name, answer in ANSWERS.items()}


def _ask_one(answer: Answer, home: Home) -> Any:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _comparable(answer(home)), said.getvalue()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return error


def _comparable(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: _comparable(one) for key, one in value.items()}
    return [_comparable(one) for one in value] if isinstance(value, list | tuple) else value


# --- damage -----------------------------------------------------------------------------------------------------------


def list_files(home: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted(path for pattern in patterns for path in home.glob(pattern) if path.is_file())


def damage(path: Path, chance: random.Random) -> str:
    """Damages a file in one of six ways; returns which."""
    way = chance.choice(["flip", "overwrite", "truncate", "delete", "swap", "append"])
    raw = bytearray(path.read_bytes())
    at = chance.randrange(len(raw)) if raw else 0
    size = min(len(raw) - at, chance.choice([1, 8, 64, 512, 4096]))
    path.chmod(0o644)
    if way == "delete":
        path.unlink()
        return way
    if way == "append" or not raw:
        raw += chance.randbytes(chance.choice([1, 16, 4096]))
    elif way == "flip":
        raw[at] ^= 1 << chance.randrange(8)
    elif way == "overwrite":
        raw[at : at + size] = chance.randbytes(size)
    elif way == "truncate":
        del raw[at:]
    else:
        raw = _swapped(raw, chance.choice([16, 512, 4096]), chance)
    stat = path.stat()
    path.write_bytes(raw)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # a disk that loses bits does not tell the time
    return way


def _swapped(raw: bytearray, block: int, chance: random.Random) -> bytearray:
    blocks = [raw[at : at + block] for at in range(0, len(raw), block)]
    one, other = (chance.randrange(len(blocks)) for _ in range(2))
    blocks[one], blocks[other] = blocks[other], blocks[one]
    return bytearray(b"".join(blocks))


@dataclass(frozen=True)
class Outcome:
    """What came of one damage."""

    kind: str
    file: str
    way: str
    answers: dict[str, str]  # answer → UNCHANGED, FAILED, MARKED, WRONG or BROKEN
    errors: dict[str, str]
    doctor: list[str]  # what it reports as damage
    was_rebuilt: bool

    @property
    def verdict(self) -> str:
        """One of: silently wrong, broken, unreported, noticed, repaired, harmless."""
        found = set(self.answers.values())
        if WRONG in found:
            return "silently wrong"
        if BROKEN in found:
            return "broken"
        if found & {FAILED, MARKED}:
            return "noticed" if self.doctor else "unreported"
        if self.was_rebuilt:
            return "repaired"
        return "noticed" if self.doctor else "harmless"


def try_damage(home: Path, whole: Mapping[str, Any], kind: str, seed: int, scratch: Path) -> Outcome:
    """Damages a file of this kind in a copy of the home, runs the doctor, asks everything."""
    copy = scratch / f"copy-{seed}"
    shutil.copytree(home, copy, symlinks=True)
    try:
        chance = random.Random(seed)
        path = chance.choice(list_files(copy, KINDS[kind]))
        way = damage(path, chance)
        if kind in UNINDEXED:
            shutil.rmtree(copy / "index")
        return compare(copy, whole, kind, str(path.relative_to(copy)), way)
    finally:
        shutil.rmtree(copy)


def compare(home: Path, whole: Mapping[str, Any], kind: str, file: str, way: str) -> Outcome:
    doctor = [finding.text for finding in check_home(Home(home), deep=True) if finding.damage]
    found = ask(home)
    answers = {name: _judge(found[name], whole[name]) for name in ANSWERS}
    errors = {name: f"{type(one).__name__}: {one}" for name, one in found.items() if isinstance(one, Exception)}
    said = "".join(one[1] for one in found.values() if not isinstance(one, Exception))
    return Outcome(kind, file, way, answers, errors, doctor, "rebuilt" in said)


def _judge(found: Any, whole: Any) -> str:
    if isinstance(found, Exception):
        return FAILED if isinstance(found, ReliveError) else BROKEN
    if found[0] == whole[0]:
        return UNCHANGED
    # That the index was rebuilt is no excuse: the answer must be right then.
    marks = "".join(line for line in found[1].splitlines() if "rebuilt" not in line)
    return MARKED if any(word in marks for word in ("left out", "incomplete", "damaged")) else WRONG


@contextlib.contextmanager
def example_home() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields a home and its answers."""
    with tempfile.TemporaryDirectory(prefix="damage-") as name:
        home = make_home(Path(name))
        whole = ask(home)
        if failed := [one for one in whole.values() if isinstance(one, Exception)]:
            raise failed[0]
        yield home, whole
