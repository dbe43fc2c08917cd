"""Laws of the home that a script reads: that of its project, else that of the folder it runs in, and it says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Script

RECORD = """
    import relive

    relive.log("loss", 1.0)
"""
READ = """
    import relive

    print(len(relive.dataframe("loss")), len(relive.sql("select run from runs")))
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Script:
    """A repository of analysis scripts, without runs."""
    folder = tmp_path / "elsewhere"
    (folder / ".git").mkdir(parents=True)
    return Script(folder)


def test_a_script_of_another_repository_reads_the_home_of_the_folder_it_runs_in(
    script: Script, elsewhere: Script
) -> None:
    script(RECORD)

    done = elsewhere(READ, cwd=script.project)

    assert (done.stdout, done.stderr) == ("1 1\n", "")
    assert not (elsewhere.project / ".relive").exists()


def test_a_script_whose_project_has_runs_says_so_once_where_the_folder_has_others(
    script: Script, elsewhere: Script
) -> None:
    script(RECORD)
    elsewhere(RECORD)
    elsewhere(None)

    done = elsewhere(READ, name="read.py", cwd=script.project)

    assert done.stdout == "2 2\n"
    assert done.stderr.count(f"reading {elsewhere.project / '.relive'}, the home of the script") == 1
    assert str(script.project / ".relive") in done.stderr


def test_where_neither_has_runs_the_error_names_both(script: Script, elsewhere: Script) -> None:
    done = elsewhere(READ, cwd=script.project, check=False)

    assert f"no runs in {elsewhere.project / '.relive'}, nor in {script.project / '.relive'}" in done.stderr
    assert not (elsewhere.project / ".relive").exists()
    assert not (script.project / ".relive").exists()


def test_broken_settings_of_the_folder_are_not_the_problem_of_a_script_of_another_project(
    script: Script, elsewhere: Script
) -> None:
    elsewhere(RECORD)
    script.write("this is not toml", "relive.toml")

    assert elsewhere(READ, name="read.py", cwd=script.project).stdout == "1 1\n"
