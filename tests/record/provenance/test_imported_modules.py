"""Laws of the list of imported modules: the project's own files, each once, also of runs that were killed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from relive.record.provenance.imported_modules import ImportedModules
from relive.store.journal import line_schema, read_lines
from tests.conftest import Script

SCRIPT = """
    import json, os, sys
    import models.net
    import relive
    relive.log("x", 1)
    {later}
"""


def imported(script: Script) -> list[list[str]]:
    (path,) = script.home.glob("runs/*/0.lines")
    return [
        line.files for line in line_schema.lines_of(line_schema.ModulesImported, read_lines(path.with_suffix("")).lines)
    ]


@pytest.fixture
def project(script: Script) -> Script:
    for name in ("models/__init__.py", "models/net.py", "late.py", "never.py", "site-packages/library.py"):
        script.write("", name)
    return script


def test_the_files_of_the_project_that_were_imported_are_recorded(project: Script) -> None:
    project(SCRIPT.format(later="sys.path.append('site-packages'); import late, library"))

    assert sorted(file for files in imported(project) for file in files) == [
        "late.py", "models/__init__.py", "models/net.py"
    ]  # fmt: skip


def test_a_run_that_is_killed_has_what_was_imported_before_its_last_sync(project: Script) -> None:
    process = project.start(
        SCRIPT.format(later="import late; print('begun', flush=True); sys.stdin.read(); import time; time.sleep(99)"),
        env={"RELIVE_SYNC_SECONDS": "0.05"},
    )
    while not (
        found := [f for files in imported(project) for f in files] if list(project.home.glob("runs/*/0.lines")) else []
    ):
        assert process.poll() is None
    process.kill()

    assert "models/net.py" in found


def test_modules_that_load_themselves_later_do_not_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was used")

    lazy = Lazy("lazy")
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    monkeypatch.setitem(sys.modules, "number", 5)  # type: ignore[arg-type]

    assert ImportedModules(str(tmp_path)).new_files() == []


def test_a_file_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = ImportedModules(str(tmp_path))
    for name in ("first", "again"):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / "inner" / "one.py")
        monkeypatch.setitem(sys.modules, name, module)

    assert modules.new_files() == ["inner/one.py"]
    assert modules.new_files(is_last=True) == []
