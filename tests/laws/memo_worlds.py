"""Runs a mutation in two worlds, one remembered and one not, in a process of its own, and compares what they return."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.laws.memo_mutations import Mutation


@dataclass
class Verdict:
    """What became of one example. `stale`: another result than the truth; `needless`: computed without a reason."""

    name: str
    stale: bool = False
    needless: int = 0
    warned: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    error: str = ""


def judge(mutation: Mutation) -> Verdict:
    """Runs an example in a forked process, so that whatever it changes ends with it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reader)
            verdict = _judge_here(mutation)
        except BaseException:  # noqa: BLE001 - reported to the parent
            verdict = Verdict(mutation.name, error=traceback.format_exc()[-1500:])
        with os.fdopen(writer, "w") as pipe:
            json.dump(asdict(verdict), pipe, default=repr)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return Verdict(**json.loads(text)) if text else Verdict(mutation.name, error="it ended without a word")


class World:
    """A copy of the module, in a folder of its own."""

    def __init__(self, folder: Path, mutation: Mutation, decorate: Callable[[Any], Any]) -> None:
        folder = folder / "project"
        folder.mkdir(parents=True)
        self.cwd = str(folder)
        self.modules: dict[str, ModuleType] = {}
        self.path = [str(folder), *sys.path]
        (folder / "other.py").write_text(mutation.other)
        (folder / "steps.py").write_text(mutation.source)
        self.enter()
        self.module = self._load("steps", folder)
        self.f = decorate(self.module.f)
        self.leave()

    def enter(self) -> None:
        os.chdir(self.cwd)
        sys.path[:] = self.path
        for name in ("steps", "other"):
            sys.modules.pop(name, None)
        sys.modules.update(self.modules)

    def leave(self) -> None:
        self.cwd = os.getcwd()
        self.modules = {name: sys.modules[name] for name in ("steps", "other") if name in sys.modules}

    def _load(self, name: str, folder: Path) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def call(self, x: int) -> str:
        self.enter()
        try:
            return repr(self.f(x))
        finally:
            self.leave()

    def run(self, statements: str) -> None:
        self.enter()
        exec(statements, {"m": self.module, "torch": sys.modules.get("torch")})
        self.leave()


def _judge_here(mutation: Mutation) -> Verdict:
    import relive

    folder = Path(tempfile.mkdtemp())
    os.environ["RELIVE_HOME"] = str(folder / "home")
    computed: list[int] = []

    def remember(function: Any) -> Any:
        wrapper = relive.memo(function)
        memoised = wrapper.__relive_memo__
        memoised.function = lambda *args: computed.append(1) or function(*args)
        return wrapper

    sys.dont_write_bytecode = True
    verdict = Verdict(mutation.name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        truth = World(folder / "truth", mutation, lambda f: f)
        memo = World(folder / "memo", mutation, remember)
        _compare(verdict, mutation, truth, memo, computed)
        verdict.warned = [str(one.message)[:300] for one in caught if "[memo-" in str(one.message)]
    return verdict


def _compare(verdict: Verdict, mutation: Mutation, truth: World, memo: World, computed: list[int]) -> None:
    unrelated = "m.UNRELATED = 1; open('unrelated.txt', 'w').close()"
    for at, change in enumerate(["", "", unrelated, mutation.change]):
        if change:
            truth.run(change)
            memo.run(change)
        expected, before = truth.call(1), len(computed)
        found = memo.call(1)
        verdict.seen.append(f"{expected} / {found}")
        verdict.stale |= expected != found
        if at in (1, 2):
            verdict.needless += len(computed) - before
