"""Users' SQL: queries over tables are answered, mistakes are pointed at, and nothing else is accessible."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import QueryError
from relive.query.sql import sandbox
from relive.query.sql.sql_statement import EditedSql, normalize_blanks
from relive.query.table.wide_table import Column, Table


def column(*values: Any) -> Column:
    """Returns a column of these values; None is a missing value."""
    valid = np.array([value is not None for value in values], dtype=bool)
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {float}:
        return Column(np.array([np.nan if value is None else value for value in values], dtype=float), valid)
    if kinds == {bool} or (kinds == {int} and all(abs(value or 0) < 2**63 for value in values)):
        return Column(np.array([value or 0 for value in values], dtype=next(iter(kinds))), valid)
    return Column(np.fromiter(values, dtype=object, count=len(values)), valid)


def a_table(**columns: Column) -> Table:
    runs = Column(np.array([0, 0, 1, 1]), levels=np.array(["a", "b"], dtype=object))
    times = Column(np.array([0, 1, 2, 3], dtype="datetime64[s]").astype("datetime64[us]"))
    return Table({"run": runs, "tstamp": times, **columns}, ["run", "tstamp"])


TABLE = a_table(
    epoch=column(0, 1, 0, None),
    loss=column(0.5, float("nan"), None, 0.25),
    note=column("x", None, "é", "y"),
)


def runs(con: Any) -> None:
    con.execute("create view runs as select * from (values ('a', 1), ('b', 2)) as t(run, seed)")


def never(con: Any) -> None:
    raise AssertionError("a relation that isn't mentioned was built")


def query(sql: str, *, frame: Callable[[Sequence[str]], Table] = lambda names: TABLE, **kw: Any) -> sandbox.Result:
    return sandbox.run(sql, relations={"runs": runs, "logs": never}, frame=frame, **kw)


def error_message(sql: str, **kw: Any) -> str:
    with pytest.raises(QueryError) as caught:
        query(sql, **kw)
    return str(caught.value)


# ---------------------------------------------------------------------------------------------- reading


def test_a_statement_lists_what_it_refers_to() -> None:
    statement = sandbox.parse(
        "with best as (select max(f.loss) m from frame('loss', acc) f) "
        "select lower(name), list_transform(xs, lambda y: y + shift) from best, logs where current_date > day"
    )

    assert [call.names for call in statement.frames] == [("loss", "acc")]
    assert {table.name for table in statement.tables} == {"best", "logs"}
    assert {mention.name for mention in statement.columns} == {"f.loss", "name", "xs", "shift", "day"}
    assert {"max", "lower", "list_transform"} <= {function.name for function in statement.functions}
    assert statement.ctes == {"best"}


@pytest.mark.parametrize(
    "call",
    [
        "frame('loss')",
        "FRAME ( 'loss' )",
        '"frame"(loss)',
        "frame('loss' /* ) */)",
        "frame($$loss$$)",
        "frame(-- ')\n'loss')",
        "frame\n(\n\t'loss'\n)",
    ],
)
@pytest.mark.parametrize("before", ["select 'é)(' as x from ", "/* 雪 ( */ from ", "from\u00a0", 'select 1 "(ü" from '])
def test_the_span_of_a_frame_call_is_exact(call: str, before: str) -> None:
    statement = sandbox.parse(before + call + " as f -- )")

    (found,) = statement.frames
    assert found.names == ("loss",)
    assert found.alias == "f"
    assert statement.source.sql.encode()[found.start : found.end].decode() == call


@pytest.mark.parametrize(
    ("names", "expected"),
    [("", ()), ("'a', 'b c'", ("a", "b c")), ('a, "b c", opt.lr', ("a", "b c", "opt.lr")), ("'it''s'", ("it's",))],
)
def test_frame_takes_quoted_names_identifiers_or_nothing(names: str, expected: tuple[str, ...]) -> None:
    assert sandbox.parse(f"select * from frame({names})").frames[0].names == expected


@pytest.mark.parametrize("names", ["'a' || 'b'", "1", "null", "?", "lower('A')", "x := 'a'"])
def test_frame_takes_nothing_but_names(names: str) -> None:
    assert "frame(…)" in error_message(f"select * from frame({names})")


@given(st.text(alphabet="abé雪 \n\u00a0'\"$-/*()", max_size=20))
@settings(max_examples=300, deadline=None)
def test_blanks_are_normalized_only_outside_quotes(text: str) -> None:
    plain = normalize_blanks(text)

    assert len(plain) == len(text)
    assert all(new == old or (old == "\u00a0" and new == " ") for new, old in zip(plain, text, strict=True))
    assert normalize_blanks("'" + text.replace("'", "") + "'") == "'" + text.replace("'", "") + "'"


@given(st.lists(st.tuples(st.text(max_size=4), st.text(min_size=1, max_size=4), st.text(max_size=6)), max_size=5))
@settings(deadline=None)
def test_positions_in_edited_sql_map_back_to_the_original(parts: list[tuple[str, str, str]]) -> None:
    old, new, edits, same = b"", b"", [], []
    for kept, replaced, by in parts:
        same += [(len(new) + at, len(old) + at) for at in range(len(kept.encode()))]
        old, new = old + kept.encode(), new + kept.encode()
        edits.append((len(old), len(old) + len(replaced.encode()), by))
        old, new = old + replaced.encode(), new + by.encode()

    edited = EditedSql.of(old.decode(), edits)

    assert edited.sql.encode() == new
    assert [edited.origin(at) for at, _ in same] == [at for _, at in same]


# ---------------------------------------------------------------------------------------------- answering


def test_only_what_is_mentioned_is_built_and_equal_frames_are_built_once() -> None:
    asked = []

    def frame(names: Sequence[str]) -> Table:
        asked.append(tuple(names))
        return TABLE

    answer = query("select count(*) from frame('a') x, frame('b') y, frame('a') z, runs", frame=frame)

    assert asked == [("a",), ("b",)]
    assert answer.rows == [(4 * 4 * 4 * 2,)]


@pytest.mark.parametrize(
    "sql",
    [
        "select frame.loss from frame('loss') where frame.loss = 0.25",
        "select f.loss from frame('loss') as f where f.loss = 0.25",
        "select l from frame('loss') f(r, t, e, l) where l = 0.25",
        "with f as (from frame('loss')) select loss from f where f.loss = 0.25",
        "select loss from runs join frame('loss') using (run) where loss = 0.25",
        "select loss from (select * from frame('loss')) where loss = 0.25 and 'frame(''é'')' <> ''",
        "select loss from frame('loss') where loss = 0.25;  -- that's all",
    ],
)
def test_a_frame_may_replace_any_table_under_its_alias(sql: str) -> None:
    assert query(sql).rows == [(0.25,)]


def test_missing_is_null_and_a_logged_nan_is_nan() -> None:
    answer = query("select loss is null, isnan(loss), epoch, note from frame('loss')")

    assert answer.rows == [
        (False, False, 0, "x"),
        (False, True, 1, None),
        (True, None, 0, "é"),
        (False, False, None, "y"),
    ]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (column(1, None, 3, 4), "BIGINT"),
        (column(True, None, False, True), "BOOLEAN"),
        (column(None, None, None, None), "DOUBLE"),
        (Column(np.array([1, 2, 3, np.nan], dtype=np.float32)), "FLOAT"),
        (Column(np.array([1, 2, 3, 4], dtype=np.float16)), "FLOAT"),
        (Column(np.array([2**64 - 1, 2, 3, 4], dtype=np.uint64)), "UBIGINT"),
        (column(2**70, 1, None, 3), "HUGEINT"),
        (column("a", None, 1, 2.5), "VARCHAR"),
        (column(True, 1, None, 2.5), "DOUBLE"),
        (column([1, 2], {"k": np.arange(2)}, None, "s"), "JSON"),
        (column(pd.DataFrame({"x": [1]}), None, (1, {2}), np.zeros(20_000)), "JSON"),
        (column("\ud800", None, None, None), "VARCHAR"),
    ],
)
def test_every_column_has_a_type_in_sql(given: Column, kind: str) -> None:
    answer = query("select distinct typeof(x) from frame('x')", frame=lambda names: a_table(x=given))

    assert answer.rows == [(kind,)]


def test_objects_are_json_that_sql_can_query() -> None:
    table = a_table(x=column([1, 2], {"k": np.arange(2)}, None, np.zeros(20_000)))

    answer = query("select x->0, x->'k'->1, x->>'shape' from frame('x')", frame=lambda names: table)

    assert answer.rows == [("1", None, None), (None, "1", None), (None, None, None), (None, None, "[20000]")]


def test_names_that_differ_only_in_case_get_distinct_sql_names() -> None:
    table = a_table(loss=column(1, 2, 3, 4), Loss=column(5, 6, 7, 8), **{'a"b': column(0, 0, 0, 9)})

    answer = query('select loss, loss_2, "a""b" from frame() order by 1 desc limit 1', frame=lambda names: table)

    assert answer.rows == [(4, 8, 9)]


def test_a_frame_without_rows_can_be_queried() -> None:
    empty = TABLE.take(np.zeros(4, dtype=bool))

    answer = query("select count(*), max(loss), min(note) from frame()", frame=lambda names: empty)

    assert answer.rows == [(0, None, None)]


def test_the_result_as_a_dataframe_keeps_integers_and_nulls() -> None:
    frame = query("select epoch, sum(epoch) over () as total, loss, note, tstamp, now() as now from frame()").df()

    assert frame.dtypes.astype(str).tolist()[:3] == ["Int64", "int64", "float64"]
    assert frame["epoch"].tolist() == [0, 1, 0, pd.NA]
    assert frame["total"].tolist() == [1] * 4
    assert frame["note"].isna().tolist() == [False, True, False, False]
    assert frame["tstamp"][3] == pd.Timestamp("1970-01-01 00:00:03")
    assert frame["now"].dtype == "datetime64[us]"


def test_the_result_keeps_its_order_and_distinguishes_equal_columns() -> None:
    with query("select range as x, -range as x from range(3000) order by 1 desc") as answer:
        assert answer.columns == ["x", "x_1"]
        assert [row[0] for row in answer.rows] == list(range(2999, -1, -1))
        assert answer.df()["x_1"].tolist() == [-at for at in range(2999, -1, -1)]


def test_a_relation_can_be_described() -> None:
    assert [row[:2] for row in query("describe runs").rows] == [("run", "VARCHAR"), ("seed", "INTEGER")]


def test_parquet_in_an_allowed_folder_can_be_a_relation(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    duckdb.sql("select 42 as x").write_parquet(str(folder / "a.parquet"))
    path = str(folder / "*.parquet").replace("'", "''")

    def points(con: Any) -> None:
        con.execute(f"create view points as from read_parquet('{path}')")

    answer = sandbox.run("from points", relations={"points": points}, frame=never, allowed=[folder])

    assert answer.rows == [(42,)]


ENDLESS = "select sum(sqrt(a.range * b.range)) from range(10000000) a, range(1000000) b"


@contextmanager
def interrupted_soon(*, by_another_thread: bool = False) -> Iterator[None]:
    """SIGINT for this process, which the system gives to its main thread unless that one blocks it."""

    def interrupt() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT} if by_another_thread else set())
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("by_another_thread", [False, True])
def test_ctrl_c_stops_a_running_query(by_another_thread: bool) -> None:
    with interrupted_soon(by_another_thread=by_another_thread), pytest.raises(KeyboardInterrupt):
        query(ENDLESS)

    assert query("select 1").rows == [(1,)]


def test_whatever_a_signal_handler_raises_stops_a_running_query() -> None:
    class Preempted(Exception):
        pass

    def handle(*_: object) -> None:
        raise Preempted

    before = signal.signal(signal.SIGINT, handle)
    try:
        with interrupted_soon(), pytest.raises(Preempted):
            query(ENDLESS)
    finally:
        signal.signal(signal.SIGINT, before)

    assert query("select 1").rows == [(1,)]


def test_ctrl_c_ends_relive_sql(script) -> None:
    """Only while the query runs there are two threads with time on their clocks: the signal doesn't come before."""
    script("import relive\nrelive.log('v', 1)\n")
    process = script.start_relive("sql", ENDLESS)
    deadline = time.monotonic() + 60
    while busy_threads(process.pid) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)

    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode in (1, 130, -signal.SIGINT), stderr
    assert "Traceback" not in stderr
    assert stdout == ""


def busy_threads(pid: int) -> int:
    try:
        times = [(task / "stat").read_text().rpartition(")")[2].split() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return 0
    return sum(int(fields[11]) >= 20 for fields in times)  # hundredths of a second


# ---------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("sql", "problem", "pointer", "remedy"),
    [
        ("selec 1", "syntax error", "^^^^^", "correct the SQL"),
        ("select 'é' frm frame('x')", "syntax error", None, "correct the SQL"),
        ("select losss from frame('x')", 'no column "losss" (line 1, column 8)', "       ^^^^^", 'mean "loss"?'),
        ("select 'é',\n  f.losss\nfrom frame('é') f", '"f.losss" (line 2, column 3)', "  ^^^^^^^", 'mean "loss"?'),
        ("select 1 from frame('é') f where lozz > 1", "(line 1, column 34)", " " * 33 + "^^^^", "columns here are"),
        ("select f1 from frame('loss')", 'no column "f1"', "       ^^", "add 'f1' to the names in frame(…)"),
        ("select opt.lr from frame()", 'no column "opt.lr"', "       ^^^^^^", 'in double quotes: "opt.lr"'),
        ("select * from runz", 'no table "runz"', " " * 14 + "^^^^", "did you mean runs?"),
        ("select * from fram", 'no table "fram"', " " * 14 + "^^^^", "did you mean frame(…)?"),
        ("select sqroot(loss) from frame()", "sqroot", "       ^^^^^^", "sqrt"),
        ("select note::int from frame()", "Could not convert", None, "try_cast"),
        ("select run from frame() group by epoch", "GROUP BY", "       ^^^", "ANY_VALUE"),
        ("select * from frame('a'), frame('b')", "alias", None, "a name of its own"),
        ("select ?", "parameters", None, "write the value itself"),
        ("select * from frame('a') where", "syntax error", None, "correct the SQL"),
    ],
)
def test_a_mistake_is_pointed_at_with_a_remedy(sql: str, problem: str, pointer: str | None, remedy: str) -> None:
    table = a_table(**TABLE.columns | {"opt.lr": column(1.0, 2.0, 3.0, 4.0)})

    message = error_message(sql, frame=lambda names: table, known_columns=["f1", "loss"])

    assert problem in message
    assert remedy in message.splitlines()[-1]
    assert pointer is None or "    " + pointer in message.splitlines()


def test_a_long_line_is_shown_around_the_mistake_only() -> None:
    message = error_message(
        "select " + ", ".join(["loss"] * 500) + ", lossy, " + ", ".join(["loss"] * 500) + " from frame()"
    )

    _, line, pointer, _ = message.splitlines()
    assert len(line) < 120
    assert line[pointer.index("^") :].startswith("lossy,")


@pytest.mark.parametrize("sql", ["select '\0'", "select '\ud800'"])
def test_nul_characters_and_lone_surrogates_are_refused(sql: str) -> None:
    assert "remove it" in error_message(sql)


# ---------------------------------------------------------------------------------------------- attacks

NOT_SELECTS = [
    "",
    "-- nothing",
    "select 1; select 2",
    "select 1; drop table runs",
    "copy (select 1) to '/tmp/relive-attack.csv'",
    "attach '/tmp/relive-attack.db'",
    "attach ':memory:' as other",
    "install httpfs",
    "load httpfs",
    "pragma database_list",
    "set threads = 1",
    "reset all",
    "export database '/tmp/relive-attack'",
    "import database '/tmp/relive-attack'",
    "call pragma_version()",
    "create table t (x int)",
    "insert into runs values ('c', 3)",
    "update runs set seed = 1",
    "delete from runs",
    "drop view runs",
    "explain select 1",
    "prepare p as select 1",
    "use memory",
    "checkpoint",
    "vacuum",
    "begin",
    "create secret (type s3)",
    "create macro m() as 1",
    "set variable x = 1",
]
SELECTS = [
    "select * from read_text('/etc/passwd')",
    "select * from READ_TEXT('/etc/passwd')",
    "select * from system.main.read_text('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from read_csv('/etc/passwd')",
    "select * from read_json('/proc/self/environ')",
    "select * from read_parquet('/etc/passwd')",
    "select * from parquet_metadata('/etc/passwd')",
    "select * from parquet_scan('/etc/passwd')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from glob('/etc/*')",
    "from '/etc/passwd'",
    'from "/etc/passwd"',
    "from '/etc/hosts.csv'",
    "from 'https://example.com/x.csv'",
    "from 's3://bucket/x.parquet'",
    "from read_csv('https://example.com/x.csv')",
    "select 1 where exists (from read_text('/etc/passwd'))",
    "with x as (from read_text('/etc/passwd')) from x",
    "select (select content from read_text('/etc/passwd'))",
    "select * from runs union all from read_text('/etc/passwd')",
    "select * from runs, lateral (select * from read_text('/etc/passwd'))",
    "from query('from read_text(''/etc/passwd'')')",
    "from query_table('/etc/hosts.csv')",
    "from query_table(['/etc/hosts.csv'])",
    "select getenv('HOME')",
    "from victim",
    "describe victim",
    "from json_execute_serialized_sql(json_serialize_sql('from read_text(''/etc/passwd'')'))",
    "from pandas_scan(1)",
    "from arrow_scan(1, 2, 3)",
]
ONLY_CHECKED = [
    "from duckdb_settings()",
    "from duckdb_secrets()",
    "from duckdb_tables()",
    "from pragma_version()",
    "from information_schema.tables",
    "from pg_catalog.pg_class",
    "from sqlite_master",
    "from runs.main.runs",
    "from query('select 42')",
    "select current_setting('threads')",
    "select 'threads'.current_setting()",
    "select write_log('x')",
    "show tables",
    "show databases",
    "from (show tables)",
    "from test_all_types()",
    "from histogram('runs', 'seed')",
]
ENGINE_REFUSES = [
    "copy (select 1) to '/tmp/relive-attack.csv'",
    "attach '/tmp/relive-attack.db'",
    "install httpfs",
    "load httpfs",
    "set threads = 1",
    "set enable_external_access = true",
    "set allowed_directories = ['/']",
    "set lock_configuration = false",
    "reset lock_configuration",
    "set python_enable_replacements = true",
    "pragma memory_limit = '1GB'",
    "export database '/tmp/relive-attack'",
    "import database '/tmp/relive-attack'",
    "create secret (type s3)",
    "create persistent secret s (type s3)",
    "from read_parquet('{allowed}/../secret/a.parquet')",
    "from read_parquet('{allowed}-not/a.parquet')",
    # a name that a nested query binds is let through by the check, wherever it is used
    "select * from (with \"/etc/hosts.csv\" as (select 1) select 1), '/etc/hosts.csv'",
]


@pytest.mark.parametrize("sql", NOT_SELECTS + SELECTS + ONLY_CHECKED)
def test_the_check_refuses_everything_but_queries_over_the_tables(sql: str) -> None:
    victim = pd.DataFrame({"secret": [1]})  # must not be found by its name

    assert error_message(sql)
    assert len(victim) == 1


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates a folder that SQL may read, beside others that it may not."""
    around = tmp_path_factory.mktemp("home")
    for folder in ("index", "index-not", "secret"):
        (around / folder).mkdir()
        duckdb.sql("select 42 as x").write_parquet(str(around / folder / "a.parquet"))
    return around / "index"


@pytest.mark.parametrize("sql", SELECTS + ENGINE_REFUSES)
def test_the_locked_engine_refuses_even_without_the_check(sql: str, index: Path) -> None:
    con = sandbox.connect([index])
    victim = pd.DataFrame({"secret": [1]})

    for connection in (con, con.cursor()):
        with pytest.raises(duckdb.Error):
            connection.execute(sql.replace("{allowed}", str(index))).fetchall()

    assert con.execute(f"from read_parquet('{index}/*.parquet')").fetchall() == [(42,)]
    assert len(victim) == 1
    assert not list(Path("/tmp").glob("relive-attack*"))


@pytest.mark.parametrize(
    "sql",
    [
        "select " + "(" * 5000 + "1" + ")" * 5000,
        "select " + "not " * 5000 + "true",
        "select * from " + "(select * from " * 5000 + "(select 1)" + ")" * 5000,
        "select " + "[" * 5000 + "]" * 5000,
    ],
    ids=["parentheses", "not", "subqueries", "lists"],
)
def test_a_query_nested_too_deeply_is_refused_and_harms_nothing(sql: str) -> None:
    assert error_message(sql)
    assert query("select 1").rows == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "select sum(range) from range(4)",
        "select sum(generate_series) from generate_series(0, 3)",
        "select sum(x) from unnest([1, 2, 3]) as t(x)",
        "select sum(x) from (select unnest([1, 2, 3]) as x)",
        "select sum(value::int) from json_each('[1, 2, 3]')",
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select sum(n) from r",
        "values (6)",
        "select seed * 6 as \"naïve ✓\" from runs where run = 'a'",
        "select length('frame(''x''), read_text()')  - 17",
    ],
)
def test_harmless_queries_are_answered(sql: str) -> None:
    assert query(sql).rows == [(6,)]


# ---------------------------------------------------------------------------------------------- where


@pytest.mark.parametrize(
    ("where", "columns", "rows"),
    [
        ("loss < 0.3", ["loss"], [3]),
        ("loss < 0.3 -- )", ["loss"], [3]),
        ("isnan(loss)", ["loss"], [1]),
        ("loss is null", ["loss"], [2]),
        ("epoch = 0 and run = 'b'", ["epoch", "run"], [2]),
        ("RUN = 'a'", ["RUN"], [0, 1]),
        ("tstamp >= '1970-01-01 00:00:02'", ["tstamp"], [2, 3]),
        ("tstamp < current_date and epoch\u00a0= 1", ["tstamp", "epoch"], [1]),
        ("note in ('x', 'é')", ["note"], [0, 2]),
        ('opt.lr > 1 and "val/acc" < 4', ["opt.lr", "val/acc"], [1, 2]),
        ("list_contains(list_transform([1], lambda q: q + epoch), 2)", ["epoch"], [1]),
        ("true", [], [0, 1, 2, 3]),
        ("epoch between 0 and 1 /* ( */ or false", ["epoch"], [0, 1, 2]),
    ],
)
def test_a_where_clause_selects_rows_in_their_order(where: str, columns: list[str], rows: list[int]) -> None:
    more = {"opt.lr": column(1.0, 2.0, 3.0, 4.0), "val/acc": column(1, 2, 3, 4)}
    table = a_table(**TABLE.columns | more)

    assert sandbox.columns_of(where) == columns
    assert np.flatnonzero(sandbox.matching(table, where)).tolist() == rows
    assert sandbox.filter_table(table, where)["val/acc"].tolist() == [row + 1 for row in rows]


@pytest.mark.parametrize(
    "where",
    [
        "",
        "  ",
        "-- nothing",
        "1=1) union select (1",
        "1=1) or (2=2",
        "1=1) order by (1",
        "1=1) limit (1",
        "1=1) window w as (partition by loss",
        "loss > 0 order by loss",
        "loss > 0 limit 1",
        "loss > 0 group by all",
        "loss > 0 union select 1",
        "loss > 0 qualify true",
        "1=1; drop table x",
        "1=1); copy (select 1) to '/tmp/relive-attack.csv'; --",
        "loss in (select 1)",
        "exists (from read_text('/etc/passwd'))",
        "exists (from frame('loss'))",
        "read_text('/etc/passwd') = ''",
        "getenv('HOME') = ''",
        "current_setting('threads') = '1'",
        "loss > ?",
        "loss > $limit",
        "#1 = 'a'",
        "columns(*) > 1",
        "max(loss) > 0",
        "row_number() over () = 1",
        "loss >",
        "'unclosed",
        "loss /* unclosed",
    ],
)
def test_a_where_clause_is_one_condition_and_nothing_else(where: str) -> None:
    with pytest.raises(QueryError):
        sandbox.matching(TABLE, where)

    assert not list(Path("/tmp").glob("relive-attack*"))


@pytest.mark.parametrize(
    ("where", "problem", "pointer", "remedy"),
    [
        ("lozs < 1", 'no column "lozs" (line 1, column 1)', "^^^^", 'did you mean "loss"?'),
        ("note = 'é'\n and é = 1", 'no column "é" (line 2, column 6)', "     ^", "columns here are epoch, loss, note"),
        ("loss < 1 and and", "(line 1, column 14)", " " * 13 + "^^^", "correct the SQL there"),
        ("x.y = 3", 'no column "x.y"', "^^^", "columns here are"),
    ],
)
def test_a_mistake_in_a_where_clause_is_pointed_at(where: str, problem: str, pointer: str, remedy: str) -> None:
    with pytest.raises(QueryError) as caught:
        sandbox.matching(TABLE, where)

    message = str(caught.value)
    assert problem in message
    assert "    " + pointer in message.splitlines()
    assert remedy in message.splitlines()[-1]


@given(st.lists(st.one_of(st.none(), st.floats(width=32)), min_size=4, max_size=4), st.floats(-3, 3, width=32))
@settings(max_examples=50, deadline=None)
def test_filtering_agrees_with_python_comparison(values: list[float | None], limit: float) -> None:
    table = a_table(x=column(*values))

    kept = sandbox.matching(table, f"x < {limit!r}::double")

    assert kept.tolist() == [value is not None and value < limit for value in values]


def test_filters_and_parses_in_many_threads_do_not_interfere() -> None:
    failures: list[object] = []

    def work(number: int) -> None:
        table = a_table(x=column(number, number + 1, number + 2, number + 3))
        for _ in range(10):
            kept = sandbox.filter_table(table, f"x > {number + 1}")["x"].tolist()
            failures.extend([kept] if kept != [number + 2, number + 3] else [])

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
