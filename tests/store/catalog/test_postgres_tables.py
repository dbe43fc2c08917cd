"""Laws of a catalog in PostgreSQL: it reconnects, homes stay separate, and no password is ever shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from relive.cli import main
from relive.errors import ReliveError, StorageUnavailable
from relive.settings import Settings
from relive.store import Home
from relive.store.catalog import Index
from relive.store.catalog.parquet_segments import SegmentFile
from relive.store.catalog.postgres_tables import PostgresTables
from relive.store.catalog.run_catalog import Catalog, open_tables

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed; pip install 'relive[postgres]'")
PASSWORD = "s3cr3t-Of-Mine"


@pytest.fixture
def home(tmp_path: Path, postgres: Any) -> Home:
    home = Home(tmp_path / "home", Settings(catalog=postgres.url()))
    home.create()
    return home


@pytest.fixture
def catalog(home: Home) -> Iterator[Catalog]:
    catalog = Catalog(home)
    yield catalog
    catalog.close()


def terminate_connection(postgres: Any, catalog: Catalog) -> None:
    """Terminates the connection of a catalog on the server."""
    pid = catalog.tables._connection.info.backend_pid
    with psycopg.connect(postgres.url(), autocommit=True) as other:
        assert other.execute("select pg_terminate_backend(%s)", (pid,)).fetchone()[0]


def add(catalog: Catalog, *runs: str) -> None:
    with catalog.tables.transaction():
        for run in runs:
            catalog.add_run(run, started_us=1, folder_ns=2, record="{}")


def test_a_query_survives_a_broken_connection(postgres: Any, catalog: Catalog) -> None:
    add(catalog, "a")
    terminate_connection(postgres, catalog)

    assert set(catalog.known_runs()) == {"a"}


@pytest.mark.parametrize("at", ["before", "inside", "after"])
def test_work_that_a_broken_connection_interrupts_is_done_once(postgres: Any, catalog: Catalog, at: str) -> None:
    tries: list[str] = []

    def work() -> None:
        tries.append(at)
        if at == "before" and len(tries) == 1:
            terminate_connection(postgres, catalog)
        with catalog.tables.transaction():
            catalog.delete_runs([number for number, _ in catalog.known_runs().values()])
            catalog.add_run("a", started_us=1, folder_ns=2, record="{}")
            if at == "inside" and len(tries) == 1:
                terminate_connection(postgres, catalog)
            catalog.add_run("b", started_us=1, folder_ns=2, record="{}")
        if at == "after" and len(tries) == 1:
            terminate_connection(postgres, catalog)
            catalog.known_runs()

    catalog.tables.run_exclusively(work)

    assert len(tries) == 2
    assert sorted(row.run for row in catalog.runs()) == ["a", "b"]
    catalog.tables.run_exclusively(lambda: None)


def test_a_connection_that_keeps_breaking_is_an_error_with_the_remedy(postgres: Any, catalog: Catalog) -> None:
    def work() -> None:
        terminate_connection(postgres, catalog)
        catalog.known_runs()

    with pytest.raises(StorageUnavailable, match=r"broke twice.*unset the setting `catalog`"):
        catalog.tables.run_exclusively(work)


@pytest.mark.slow
def test_a_database_that_is_restarted_is_waited_for(postgres: Any, catalog: Catalog) -> None:
    add(catalog, "a")
    postgres.stop()
    postgres.start()

    assert set(catalog.known_runs()) == {"a"}


def test_a_forked_child_does_not_use_its_parents_connection(catalog: Catalog) -> None:
    add(catalog, "a")
    child = os.fork()
    if not child:
        os._exit(0 if set(catalog.known_runs()) == {"a"} else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert set(catalog.known_runs()) == {"a"}


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{PASSWORD}@/relive?host=/nowhere",
        f"postgresql://ada:{PASSWORD}@127.0.0.1:1/relive",
        f"postgresql://ada@127.0.0.1:1/relive?password={PASSWORD}",
        f"postgresql://ada:{PASSWORD}%zz@127.0.0.1:1/relive",
        f"postgresql://ada:{PASSWORD}@host@127.0.0.1:1/relive",
        f"postgresql://ada:{PASSWORD}/x@127.0.0.1:1/relive",
        f"postgresql://ada:x?{PASSWORD}@127.0.0.1:1/relive",
        f"mysql://ada:{PASSWORD}@127.0.0.1/relive",
    ],
)
def test_an_unusable_address_is_reported_without_its_password(tmp_path: Path, url: str) -> None:
    home = Home(tmp_path, Settings(catalog=url))
    home.create()
    with pytest.raises(ReliveError) as raised:
        open_tables(home)
    done = CliRunner().invoke(main, ["runs", "--home", str(tmp_path)], env={"RELIVE_CATALOG": url})

    assert PASSWORD not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert PASSWORD not in done.stdout + done.stderr
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert any(word in done.stderr for word in ("unset", "%40"))


def test_without_psycopg_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ReliveError, match=r"pip install 'relive\[postgres\]'"):
        open_tables(Home(tmp_path, Settings(catalog="postgresql://host/db")))


def test_a_copy_of_a_home_has_a_catalog_of_its_own(tmp_path: Path, home: Home, catalog: Catalog) -> None:
    add(catalog, "a")
    shutil.copytree(home.path, tmp_path / "copy")
    copy = Catalog(Home(tmp_path / "copy", home.settings))

    assert copy.known_runs() == {}
    assert set(Catalog(Home(tmp_path / "home", home.settings)).known_runs()) == {"a"}
    home.path.rename(tmp_path / "moved")
    assert set(Catalog(Home(tmp_path / "moved", home.settings)).known_runs()) == {"a"}, "a moved home keeps its catalog"


def test_an_index_that_was_deleted_comes_back(home: Home, catalog: Catalog) -> None:
    add(catalog, "a")
    with catalog.tables.transaction():
        catalog.add_segment(
            SegmentFile("gone.parquet", 1, ""), 1, runs=[number for number, _ in catalog.known_runs().values()]
        )
    shutil.rmtree(home.index)

    assert Catalog(home).known_runs() == {}
    assert Catalog(home).segments() == []


def test_tables_of_another_version_are_recreated(home: Home, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    add(catalog, "a")
    monkeypatch.setattr("relive.store.catalog.postgres_tables.SCHEMA_VERSION", 99)

    assert Catalog(home).known_runs() == {}
    assert Catalog(home).tables._version() == 99


def test_missing_permissions_are_an_error_with_the_remedy(postgres: Any, home: Home) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as other:
        other.execute("drop role if exists guest")
        other.execute("create role guest login")
    url = postgres.url().replace("relive@", "guest@")

    with pytest.raises(StorageUnavailable, match=r"permission denied for database.*lets you in"):
        PostgresTables(url, home)


SCRIPT = """
    import relive

    for step in relive.loop("step", range(3)):
        relive.log("loss", 1.0 / (step + 1))
"""


@pytest.mark.slow
def test_runs_are_recorded_listed_and_queried_with_the_catalog_in_postgres(
    script: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script.project / "relive.toml").write_text(f'catalog = "{postgres.url(password=PASSWORD)}"\n')
    script(SCRIPT)
    listed = json.loads(script.relive("runs", "--json").stdout)
    table = script.relive("dataframe", "loss", "--csv").stdout.splitlines()
    script.relive("doctor", "--rebuild")

    assert listed["last"] == {"loss": 1 / 3}
    assert len(table) == 4
    assert not (script.home / "index" / "catalog.sqlite").exists()
    assert [entry.number for entry in Index(Home(script.home)).runs()] != [None]
    written = [path.read_bytes() for path in script.home.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in content for content in written), "only relive.toml contains it"


def test_recording_does_not_connect_to_the_catalog(script: Any) -> None:
    done = script(SCRIPT, env={"RELIVE_CATALOG": f"postgresql://ada:{PASSWORD}@127.0.0.1:1/none"})

    assert (done.returncode, done.stderr) == (0, "")


def test_listing_runs_without_the_setting_loads_no_driver(script: Any) -> None:
    script(SCRIPT)
    code = "import sys; from relive.cli import main; main(['runs'], standalone_mode=False);"
    code += "print([name for name in sys.modules if name.split('.')[0] in ('psycopg', 'obstore')], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=script.project, capture_output=True, text=True)

    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_a_server_may_have_its_catalog_in_postgres(script: Any, postgres: Any, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    stores = ["--store", str(tmp_path / "team"), "--store", postgres.url(password=PASSWORD)]
    command = [sys.executable, "-m", "relive", "serve", *stores, "--port", "0", "--open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=script.project)
    try:
        greeting = server.stdout.readline()
        url = greeting.split()[-1]
        script(SCRIPT, env={"RELIVE_SERVER": url, "RELIVE_SHIP_WAIT_SECONDS": "20"})
        runs = _until(lambda: _get(f"{url}/api/runs")["runs"])
    finally:
        server.terminate()
        _, stderr = server.communicate(timeout=30)

    assert len(runs) == 1
    assert PASSWORD not in greeting + stderr
    assert f"serving {tmp_path / 'team'} on" in greeting
    assert list((tmp_path / "team" / "index").glob("segments-relive_*"))
    assert not (tmp_path / "team" / "index" / "catalog.sqlite").exists()


def test_clients_of_the_server_learn_only_when_to_retry() -> None:
    pytest.importorskip("starlette")
    from relive.server.http.error_responses import error_response

    answer = error_response(
        StorageUnavailable("the catalog at postgresql://ada@db.internal/relive can't be used; see that it runs")
    )
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert b"db.internal" not in answer.body


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def _until(question: Callable[[], Any]) -> Any:
    for _ in range(100):
        if found := question():
            return found
    return question()


@pytest.mark.parametrize("given", [["./a", "./b"], ["postgresql://h/a", "postgresql://h/b"]])
def test_a_store_is_given_once(script: Any, given: list[str]) -> None:
    stores = [word for one in given for word in ("--store", one)]
    done = script.relive("serve", *stores, check=False)

    assert done.returncode == 1
    assert "give a folder, a postgresql:// address, or one of each" in done.stderr
