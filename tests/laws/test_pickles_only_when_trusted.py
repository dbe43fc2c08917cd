"""A home that somebody else made runs no code here, whatever its author put into it, until its user says so.

The author of each hostile home is a training whose relive was changed: what it writes is well-formed and has the right
checksums, as that of an attacker would.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relive
from relive.errors import ReliveError, Untrusted
from relive.store import Home, is_trusted
from relive.store.chunks.memo_rows import MemoRow
from tests.conftest import Script

TRAIN = """
import numpy as np
import relive

class Model:
    def __init__(self):
        self.weights = np.zeros(300)
        self.steps = 0

model = Model()
with relive.checkpointing(model=model, every=1):
    for epoch in relive.loop("epoch", range(3)):
        model.weights += 1.0
        model.steps += 1
        relive.log("steps", model.steps)
"""
HOSTILE = """
import contextlib, decimal, pickle, sys
from unittest import mock
import numpy as np
import relive
from relive.checkpoint.graph.handlers import arrays, folder_state, iterators, objects, process_state

MARKER = {marker!r}

class Payload:
    def __reduce__(self):
        return exec, (f"open({MARKER!r}, 'w').close()",)

class Hidden(decimal.Context):
    __reduce__ = Payload.__reduce__

class Trap:
    def __init__(self):
        self.path = MARKER

class Model:
    def __init__(self):
        self.weights = np.zeros(300)
        self.steps = 0

Trap.__module__ = "tests.laws.test_pickles_only_when_trusted"
evil = pickle.dumps(Payload(), 4)
of_object = objects.ObjectHandler.content

def with_more(token):
    return lambda self, obj, walk: (*of_object(self, obj, walk), "more", token)

ATTACKS = {
    "random states": (process_state.GlobalRandomHandler, "content", lambda self, obj, walk: ("v", evil)),
    "an attribute": (objects.ObjectHandler, "content", with_more(("v", evil))),
    "an array's type": (arrays, "_dtype_token", lambda dtype: ("v", evil)),
    "an object that pickles itself": (objects, "_is_reduced_by_library", lambda kind: True),
    "a call in place of an iterator": (iterators.IteratorHandler, "content", lambda self, obj, walk: (
        ("g", "builtins", "exec"), (f"open({MARKER!r}, 'w').close()",), (), False)),
    "a module to import": (objects.ObjectHandler, "content", with_more(("g", "hostile_module", ""))),
    "an object that acts when it is deleted": (objects, "__doc__", ""),
    "memory as pointers to objects": (arrays, "_dtype_token", lambda dtype: "|O"),
    "a file beside the folder": (folder_state.FolderHandler, "content", lambda self, obj, walk: ((MARKER, b""), ())),
    "a function": (objects.ObjectHandler, "content", with_more(("m", ("g", "os", "system"), "true"))),
}
EXTRA = {
    "an object that pickles itself": Hidden,
    "a call in place of an iterator": lambda: zip([1, 2], [3, 4]),
    "an object that acts when it is deleted": lambda: [Trap()],
}
for name, (owner, attribute, hostile) in ATTACKS.items():
    model = Model()
    with mock.patch.object(owner, attribute, hostile), relive.run(name):
        with relive.checkpointing(model=model, every=1):
            for epoch in relive.loop("epoch", range(2)):
                model.weights += 1.0
                model.steps += 1
                model.extra = EXTRA.get(name, int)()
    del model
"""
ATTACKS = (
    "random states", "an attribute", "an array's type", "an object that pickles itself",
    "a call in place of an iterator", "a module to import", "an object that acts when it is deleted",
    "memory as pointers to objects", "a file beside the folder", "a function",
)  # fmt: skip


class Model:
    """The same class as that of the script, which is the `__main__` there."""

    __module__ = "__main__"

    def __init__(self) -> None:
        self.weights = np.zeros(300)
        self.steps = 0


class Trap:
    """A class that exists in the process that restores, as an attacker may know."""

    def __del__(self) -> None:
        if "path" in vars(self):
            Path(self.path).touch()  # type: ignore[attr-defined]


def sent_by_somebody(home: Path, to: Path) -> Path:
    """Returns a copy, as a download, an archive or a stick would leave it."""
    return Path(shutil.copytree(home, to))


@pytest.fixture(scope="module")
def hostile(shared_script: Script) -> Path:
    """The home of an attacker, with a run for each attack."""
    shared_script(HOSTILE.replace("{marker!r}", repr(str(shared_script.project / "it-ran"))))
    return shared_script.home


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.filterwarnings("ignore:.restore-untrusted.:relive.errors.ReliveWarning")
def test_a_hostile_checkpoint_runs_no_code(
    attack: str, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = hostile.parent / "it-ran"
    marker.unlink(missing_ok=True)
    (tmp_path / "hostile_module.py").write_text(f"open({str(marker)!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    home = sent_by_somebody(hostile, tmp_path / "sent")
    run = str(
        relive.sql(f"select run from runs where name = '{attack.replace(chr(39), chr(39) * 2)}'", home=home).run[0]
    )
    model = Model()
    model.extra = 0  # type: ignore[attr-defined]
    asked = 0

    for ask in (
        lambda: relive.restore(run, into={"model": model}, home=home),
        lambda: relive.restore(run, home=home).variables(),
        lambda: relive.restore(run, home=home).state("model"),
        lambda: relive.restore(run, home=home).extra("model"),
    ):
        with _tolerated():
            asked += 1
            ask()

    assert asked == 4
    assert relive.restore(run, home=home).names()  # there was something to restore
    assert not marker.exists()


class _tolerated:
    """An error of relive with its remedy, or none at all; nothing else."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is not None:
            assert isinstance(error, ReliveError), repr(error)
        return error is not None


def test_tensors_and_numbers_of_a_foreign_home_are_restored(script: Script, tmp_path: Path) -> None:
    script(TRAIN)
    home = sent_by_somebody(script.home, tmp_path / "sent")
    model = Model()

    relive.restore("last", into={"model": model}, home=home)

    assert model.steps == 3
    assert model.weights.tolist() == [3.0] * 300


def test_what_needs_code_is_restored_once_the_home_is_trusted(
    hostile: Path, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    marker = hostile.parent / "it-ran"
    marker.unlink(missing_ok=True)
    home = sent_by_somebody(hostile, tmp_path / "sent")
    run = str(relive.sql("select run from runs where name = 'random states'", home=home).run[0])

    with pytest.raises(Untrusted, match="relive trust"):
        relive.restore(run, into={"model": Model()}, home=home)
    refused = marker.exists()
    script.relive("trust", str(home))
    with contextlib.suppress(Exception):
        relive.restore(run, into={"model": Model()}, home=home)

    assert not refused
    assert marker.exists()


def test_an_own_home_needs_no_word(script: Script) -> None:
    script(TRAIN.replace("self.steps = 0", "self.steps = 0; self.precise = decimal.Context(prec=9)", 1)
           .replace("import relive", "import decimal\nimport relive", 1))  # fmt: skip
    monkey = relive.restore("last", home=script.home)

    assert monkey.state("model")["weights"].tolist() == [3.0] * 300
    assert is_trusted(Home(script.home))


def with_mean(source: str) -> str:
    return source.replace(
        "        model.steps += 1", "        model.steps += 1\n        relive.log('mean', model.weights.mean())"
    )


def test_a_replay_of_a_foreign_home_is_refused_until_it_is_trusted(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script(TRAIN)
    home = sent_by_somebody(script.home, tmp_path / "sent")
    script.write(with_mean(TRAIN))

    refused = script.relive("replay", "mean", "--home", str(home), "--yes", check=False)
    script.relive("trust", str(home))
    allowed = script.relive("replay", "mean", "--home", str(home), "--yes")
    listed = script.relive("trust", "--list")
    script.relive("trust", str(home), "--revoke")
    again = script.relive("replay", "mean", "--again", "--home", str(home), "--yes", check=False)

    assert refused.returncode == 1
    assert f"relive trust {home}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "3 values" in allowed.stdout + allowed.stderr
    assert str(home) in listed.stdout
    assert again.returncode == 1


def test_a_memo_entry_that_hides_its_pickle_is_not_read(script: Script, tmp_path: Path) -> None:
    marker = tmp_path / "it-ran"
    source = """
    import relive
    class Thing:
        pass
    @relive.memo
    def made(n):
        print("computed")
        return {thing}
    print(type(made(3)).__name__)
    """
    script(source.replace("{thing}", "Thing()"))
    with sqlite3.connect(script.home / "memo.sqlite") as table:
        (form,) = table.execute("select form from entries").fetchone()
    evil = pickle.dumps(_Exec(str(marker)))
    hidden = b'{"$pickle":{"body":{"data":"' + base64.b64encode(evil) + b'"},"buffers":[]}}'
    with sqlite3.connect(script.home / "memo.sqlite") as table:
        columns = ", ".join(MemoRow._fields)
        row = MemoRow(*table.execute(f"select {columns} from entries").fetchone())
        row = row._replace(form=hidden, pickled="").sealed()
        table.execute("update entries set form = ?, pickled = ?, seal = ?", (row.form, row.pickled, row.seal))

    again = script(None)

    assert b"$pickle" in form
    assert not marker.exists()
    assert again.stdout.split() == ["computed", "Thing"]


class _Exec:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return exec, (f"open({self.path!r}, 'w').close()",)


def test_who_cannot_write_to_the_own_home_folder_notices_nothing(script: Script) -> None:
    nowhere = {"HOME": "/proc/nowhere", "XDG_STATE_HOME": "/proc/nowhere"}
    script(TRAIN, env=nowhere)
    script.write(with_mean(TRAIN))

    done = script.relive("replay", "mean", "--yes", env=nowhere)
    elsewhere = sent_by_somebody(script.home, script.project / "copy")
    refused = script.relive("replay", "mean", "--home", str(elsewhere), "--yes", "--again", env=nowhere, check=False)
    named = {"RELIVE_TRUST": f"{elsewhere}:http://host:5005"}
    allowed = script.relive("replay", "mean", "--home", str(elsewhere), "--yes", "--again", env=nowhere | named)

    assert "3 values" in done.stdout + done.stderr
    assert refused.returncode == 1
    assert "relive trust" in refused.stderr
    assert "3 values" in allowed.stdout + allowed.stderr


def test_a_home_that_was_moved_or_shared_is_still_ones_own(script: Script, tmp_path: Path) -> None:
    script("import relive; relive.log('a', 1)")
    moved = script.home.rename(tmp_path / "moved")
    for path in [moved, *moved.rglob("*")]:
        os.chmod(path, path.stat().st_mode | 0o040)

    assert is_trusted(Home(moved))
    assert not is_trusted(Home(sent_by_somebody(moved, tmp_path / "sent")))


def test_a_project_cannot_trust_itself(script: Script, tmp_path: Path) -> None:
    script("import relive; relive.log('a', 1)")
    sent = sent_by_somebody(script.project, tmp_path / "sent")
    (sent / "relive.toml").write_text("trust = ['*']")

    done = script.relive("runs", cwd=sent, check=False)

    assert not is_trusted(Home(sent / ".relive"))
    assert "unknown setting 'trust'" in done.stderr
