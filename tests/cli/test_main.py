"""Laws of the command line: what each command says, and what it says when it can't."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from relive.cli import main
from relive.cli.main import COMMANDS
from relive.store import Home
from relive.store.catalog import Index
from relive.store.journal import decode_value

TRAIN = """
    import relive

    lr = relive.arg("lr", 0.1)
    words = relive.data("words", "words.txt")
    for epoch in relive.loop("epoch", range(3)):
        for step in relive.loop("step", range(2)):
            relive.log("loss", lr * (epoch + step))
        relive.log("acc", epoch / 10)
    with open("model.bin", "wb") as file:
        file.write(b"weights")
    relive.artifact("model.bin")
"""


@pytest.fixture(scope="module")
def recorded(shared_script) -> Path:  # type: ignore[no-untyped-def]
    """Two finished runs, made by a real script."""
    shared_script.write("alpha beta\n", "words.txt")
    shared_script(TRAIN)
    shared_script(None, "--kwargs", "lr=0.5")
    return shared_script.project


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the project that a test may change."""
    return Path(shutil.copytree(recorded, tmp_path / "project", symlinks=True))


def relive(project: Path, *args: str) -> Result:
    return CliRunner().invoke(main, [*args, "--home", str(project / ".relive")])


def ids(project: Path) -> list[str]:
    return [entry.record.run for entry in Index(Home(project / ".relive")).runs()]


def test_runs_lists_newest_first_with_args_outcome_and_last_values(project: Path) -> None:
    lines = relive(project, "runs").output.splitlines()

    first, second = ids(project)
    assert lines[0].split() == ["run", "when", "took", "script", "args", "outcome", "last", "values"]
    assert lines[1].startswith(second[:8])
    assert lines[2].startswith(first[:8])
    assert "train.py" in lines[1]
    assert "lr=0.5" in lines[1]
    assert "finished" in lines[1]
    assert "loss=1.5 acc=0.2" in lines[1]


def test_runs_as_json_gives_one_object_a_run(project: Path) -> None:
    rows = [json.loads(line) for line in relive(project, "runs", "--json", "-n", "1").output.splitlines()]

    assert [(row["run"], row["args"], row["last"]["loss"]) for row in rows] == [(ids(project)[1], {"lr": 0.5}, 1.5)]


def test_show_prints_the_six_fields(project: Path) -> None:
    shown = relive(project, "show", "last").output

    for field in ("config", "code", "data", "metrics", "environment", "artifacts"):
        assert f"\n{field}\n" in shown
    assert "0.5   (default 0.1)" in shown
    assert "words.txt 11 B" in shown
    assert "6 values, 0 to 1.5 in epoch/step" in shown
    assert "model.bin" in shown


def test_a_run_can_be_named_by_the_beginning_of_its_id(project: Path) -> None:
    first, _ = ids(project)

    assert f"run {first}" in relive(project, "show", first[:6]).output


@pytest.mark.parametrize(("word", "said"), [("nope", "no run 'nope'"), ("", "no run ''")])
def test_a_word_that_matches_no_run_is_an_error_with_the_remedy(project: Path, word: str, said: str) -> None:
    result = relive(project, "show", word)

    assert result.exit_code == 1
    assert said in result.output
    assert "`relive runs` lists them" in result.output


def test_dataframe_joins_filters_and_has_four_output_formats(project: Path, tmp_path: Path) -> None:
    asked = ("dataframe", "lr", "acc", "--where", "lr < 0.4 and epoch > 0")
    csv = relive(project, *asked, "--csv").stdout.splitlines()
    rows = [json.loads(line) for line in relive(project, *asked, "--json").stdout.splitlines()]
    table = relive(project, *asked).output
    relive(project, *asked, "--parquet", str(tmp_path / "out.parquet"))

    assert csv[0] == "project,run,tstamp,version,filename,epoch,lr,acc"
    assert [line.split(",")[-3:] for line in csv[1:]] == [["1", "0.1", "0.1"], ["2", "0.1", "0.2"]]
    assert [(row["epoch"], row["acc"]) for row in rows] == [(1, 0.1), (2, 0.2)]
    assert "2 rows" in table
    pandas = pytest.importorskip("duckdb").read_parquet(str(tmp_path / "out.parquet")).df()
    assert pandas["acc"].tolist() == [0.1, 0.2]


def test_a_bad_where_clause_points_at_the_place_and_names_the_columns(project: Path) -> None:
    result = relive(project, "dataframe", "lr", "--where", "lr < 0.4 and los > 1")

    assert result.exit_code == 1
    assert "^" in result.output
    assert "lr" in result.output.splitlines()[-1]


def test_sql_answers_over_the_frame_and_the_views(project: Path) -> None:
    best = relive(project, "sql", "select run, max(loss) best from frame('lr','loss') group by run order by 2", "--csv")
    runs = relive(project, "sql", "select count(*) n from runs where outcome = 'finished'", "--csv")
    logs = relive(project, "sql", "select sum(value) s from logs where name = 'acc'", "--csv")
    args = relive(project, "sql", "select number from args where origin = 'kwargs'", "--csv")
    loops = relive(
        project, "sql", "select name, count(*), sum(iterations) from loops group by name order by 1", "--csv"
    )
    none = relive(project, "sql", "select count(*) n from checkpoints", "--csv")

    assert [line.split(",")[1] for line in best.stdout.splitlines()[1:]] == ["0.30000000000000004", "1.5"]
    assert runs.stdout.split() == ["n", "2"]
    assert float(logs.stdout.split()[1]) == pytest.approx(0.6)
    assert args.stdout.split() == ["number", "0.5"]
    assert [line.split(",") for line in loops.stdout.splitlines()[1:]] == [["epoch", "2", "6"], ["step", "6", "12"]]
    assert none.stdout.split() == ["n", "0"]


@pytest.mark.parametrize("query", ["drop table runs", "select * from '/etc/passwd'", "select 1; select 2"])
def test_sql_that_is_not_a_query_is_refused(project: Path, query: str) -> None:
    assert relive(project, "sql", query).exit_code == 1


def test_export_writes_plain_files(project: Path, tmp_path: Path) -> None:
    result = relive(project, "export", "last", str(tmp_path / "out"))

    assert result.exit_code == 0
    assert json.loads((tmp_path / "out/record.json").read_text())["run"] == ids(project)[1]
    assert (tmp_path / "out/artifacts/model.bin").read_bytes() == b"weights"
    assert (tmp_path / "out/code/train.py").read_text() == (project / "train.py").read_text()
    assert (tmp_path / "out/logs.parquet").stat().st_size > 0


def test_exported_json_refers_to_no_missing_chunk(script, tmp_path: Path) -> None:
    script(
        """
        import numpy as np, relive
        big = {"text": "x" * 10_000, "odd": "\\ud800" * 5_000, "raw": b"y" * 10_000, "array": np.arange(500.0)}
        relive.artifact(big, name="big.json")
        with relive.run("tagged", tags={"notes": "n" * 10_000}):
            relive.artifact(big, name="big.json")
        """
    )
    relive(script.project, "export", "last", str(tmp_path / "out"))

    form = json.loads((tmp_path / "out/artifacts/big.json").read_text())
    back = decode_value(form, lambda name: pytest.fail(f"{name} is named"))
    assert (back["text"], back["odd"], back["raw"]) == ("x" * 10_000, "\ud800" * 5_000, b"y" * 10_000)
    assert back["array"].tolist() == list(range(500))
    assert json.loads((tmp_path / "out/record.json").read_text())["tags"] == {"notes": "n" * 10_000}


def test_export_does_not_overwrite_existing_files(project: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")

    assert "not empty" in relive(project, "export", "last", str(tmp_path)).output
    assert (tmp_path / "mine").read_text() == "precious"


def test_rm_asks_first_and_then_leaves_nothing(project: Path) -> None:
    first, second = ids(project)
    assert CliRunner().invoke(main, ["rm", first, "--home", str(project / ".relive")], input="n\n").exit_code == 1
    assert ids(project) == [first, second]

    assert relive(project, "rm", first, "--yes").exit_code == 0
    assert ids(project) == [second]
    assert sorted(path.name for path in (project / ".relive/runs").iterdir()) == [second]


def test_rm_refuses_a_live_run(script) -> None:  # type: ignore[no-untyped-def]
    process = script.start("import relive, time; relive.log('x', 1.0); print('up', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "up\n"

    result = relive(script.project, "rm", "last", "--yes")
    assert "is running" in result.output
    assert "● running" in relive(script.project, "runs").output


def test_doctor_finds_nothing_wrong_in_a_good_home(project: Path) -> None:
    result = relive(project, "doctor", "--deep")

    assert (result.exit_code, result.output.splitlines()) == (
        0, [f"2 runs in {project / '.relive'}, all readable"],
    )  # fmt: skip


def test_doctor_reports_a_torn_tail_and_a_damaged_chunk(project: Path) -> None:
    first, _ = ids(project)
    with (project / ".relive/runs" / first / "0.lines").open("ab") as file:
        file.write(b'{"v":1,"torn')
    (chunk,) = [path for path in (project / ".relive/chunks").rglob("*") if path.is_file()]
    chunk.write_bytes(b"\x00damaged")

    result = relive(project, "doctor", "--deep")
    assert result.exit_code == 1
    assert "a torn tail of 12 bytes is ignored" in result.output
    assert "is damaged" in result.output


def test_doctor_rebuilds_the_index_to_the_same_content(project: Path) -> None:
    before = relive(project, "dataframe", "lr", "loss", "acc", "--csv").stdout

    assert relive(project, "doctor", "--rebuild").exit_code == 0
    assert relive(project, "dataframe", "lr", "loss", "acc", "--csv").stdout == before


def test_a_folder_without_runs_is_an_error_that_says_how_to_record_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["runs", "--home", str(tmp_path)])

    assert result.exit_code == 1
    assert "record one with `python train.py`" in result.output


def test_the_help_page_lists_all_commands_whole_and_imports_none() -> None:
    code = (
        "import sys, relive.cli.main as m\ntry: m.main(['--help'])\nexcept SystemExit: pass\n"
        "print([n for n in sys.modules if n.startswith('relive.cli.commands.')])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()

    assert said[-1] == "[]"
    assert max(map(len, said)) <= 80
    for name in COMMANDS:
        assert sum(line.startswith(f"  {name} ") for line in said) == 1, name


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_where_the_help_page_says(name: str) -> None:
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0


def test_a_misspelt_command_gets_a_suggestion() -> None:
    assert "Did you mean show" in CliRunner().invoke(main, ["shw"]).output
    assert "`relive --help` lists the commands" in CliRunner().invoke(main, ["xyzzy"]).output


@pytest.mark.parametrize("words", [("runs", "-n", "-5"), ("versions", "-n", "-1"), ("leaderboard", "acc", "-n", "-1")])
def test_negative_counts_are_refused(project: Path, words: tuple[str, ...]) -> None:
    assert relive(project, *words).exit_code == 2


def test_tables_fit_eighty_columns(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = [
        ["runs"],
        ["leaderboard", "acc"],
        ["dataframe", "loss", "acc"],
        ["versions"],
        ["compare", *ids(project)],
    ]
    for words in commands:
        said = relive(project, *words).stdout
        assert max(map(len, said.splitlines())) <= 80, said
    assert relive(project, "runs").stdout.splitlines()[0] == "all: script train.py"
    heading = relive(project, "dataframe", "loss", "acc").stdout.splitlines()[1]
    assert heading.split()[:5] == ["run", "epoch", "step", "loss", "acc"]
    assert relive(project, "runs", "--columns", "args,run").stdout.splitlines()[0].split() == ["args", "run"]


def test_a_question_without_an_answer_is_an_error_and_says_which_it_is(script) -> None:  # type: ignore[no-untyped-def]
    plain = """
        import relive

        for epoch in relive.loop("epoch", range(3)):
            relive.log("acc", epoch / 10)
    """
    script(plain)
    script.write(plain + '            relive.log("ten", epoch * 10)\n')

    assert script.relive("replay", "nonexistent", "--yes", check=False).returncode == 1
    never = script.relive("replay", "ten", "epoch > 99", "--yes", check=False)
    assert never.returncode == 1
    assert "the condition does not hold in any of its iterations" in never.stderr
    assert script.relive("replay", "ten", "--yes", check=False).returncode == 0
    again = script.relive("replay", "ten", "--yes", check=False)
    assert again.returncode == 0
    assert "it has these values already" in again.stderr


# Their output is that of a script, of a server, or a shell's; an audit is JSON already.
WITHOUT_JSON = {"run", "ui", "serve", "token audit", "completion"}


def _leaves(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def test_every_command_prints_json_on_request() -> None:
    lacking = {name for name, command in _leaves(main) if not any("--json" in one.opts for one in command.params)}

    assert lacking == WITHOUT_JSON


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pin", "last"], {"is_pinned": True}),
        (["unpin", "last"], {"is_pinned": False}),
        (["gc", "--dry-run"], {"dry_run": True, "failures": []}),
        (["doctor"], {"runs": 2, "is_damaged": False, "findings": []}),
        (["doctor", "--rebuild"], {"runs": 2, "is_damaged": False}),
        (["scrub", "last", "nowhere"], {"places": 0, "server": None}),
        (["promote", "last", "net"], {"model": "net", "version": 1, "missing": []}),
        (["trust"], {"is_trusted": True, "run": None}),
        (["rm", "last", "--yes"], {}),
    ],
)
def test_what_a_command_did_is_one_json_object(project: Path, words: list[str], told: dict[str, object]) -> None:
    done = relive(project, *words, "--json")

    found = json.loads(done.stdout)
    assert {key: found[key] for key in told} == told


def test_files_that_a_command_wrote_are_named_in_its_json(project: Path, tmp_path: Path) -> None:
    last = ids(project)[1]

    exported = json.loads(relive(project, "export", "last", str(tmp_path / "out"), "--json").stdout)
    checked_out = json.loads(relive(project, "checkout", "last", str(tmp_path / "code"), "--json").stdout)

    assert (exported["run"], exported["values"], exported["artifacts"]) == (last, 9, 1)
    assert (checked_out["run"], Path(checked_out["folder"]) / "train.py") == (last, tmp_path / "code" / "train.py")
    assert (tmp_path / "code" / "train.py").is_file()
