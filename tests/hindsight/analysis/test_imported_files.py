"""Laws of the files that matter for a replay: those that ran, and no file that could have run is missing."""

from __future__ import annotations

import pytest

from relive.hindsight.analysis.imported_files import ImportRecord, choose_imported

FILES = {
    "train.py": "import net\nif late:\n    import tools.late\n",
    "net.py": "",
    "tools/__init__.py": "",
    "tools/late.py": "from . import inner\n",
    "tools/inner.py": "",
    "plugin.py": "import helper\n",
    "helper.py": "",
    "train_other.py": "import net\n",
}


def chosen(
    *imported: str, is_complete: bool = True, patched: dict[str, str] | None = None, known: bool = True
) -> set[str]:
    imports = ImportRecord(frozenset(imported), is_complete) if known else None
    return {*choose_imported({**FILES, **(patched or {})}, FILES, "train.py", imports)}


def test_what_was_imported_and_the_script_matter() -> None:
    assert chosen("net.py", "not/stored.py") == {"train.py", "net.py"}


def test_without_a_record_of_imports_all_files_matter() -> None:
    assert chosen(known=False) == {*FILES}


def test_a_run_that_was_killed_may_have_imported_what_its_files_name() -> None:
    assert chosen("net.py", is_complete=False) == {
        "train.py", "net.py", "tools/__init__.py", "tools/late.py", "tools/inner.py"
    }  # fmt: skip
    assert "helper.py" in chosen("net.py", "plugin.py", is_complete=False)


def test_what_the_patch_imports_matters() -> None:
    assert chosen("net.py", patched={"net.py": "import plugin\n"}) == {"train.py", "net.py", "plugin.py", "helper.py"}
    assert chosen("net.py", patched={"net.py": "x = 1\n"}) == {"train.py", "net.py"}
    assert chosen("net.py", patched={"train_other.py": "import plugin\n"}) == {"train.py", "net.py"}


@pytest.mark.parametrize("way", ["exec(open('plugin.py').read())", "runpy.run_path(p)", "spec.loader.exec_module(m)"])
def test_if_files_are_run_without_an_import_all_matter(way: str) -> None:
    assert chosen("net.py", patched={"net.py": way}) == {*FILES}
