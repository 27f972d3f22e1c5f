"""The sql tool on real files: what the policy reads, whose fault a failure is, and what ends when."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError, ToolError, ToolTimeoutError, UnscoredError
from agent_rl.tools.builtin._sql import pool
from agent_rl.tools.builtin.sql import Sql
from agent_rl.trajectory import ToolStatus
from tests.support.processes import alive, wait_until
from tests.tools import use

ROOT = Path(__file__).parents[3]
TABLES = (
    "CREATE TABLE singer (id INTEGER PRIMARY KEY, name VARCHAR, age INTEGER)",
    "CREATE TABLE song (id INTEGER PRIMARY KEY, singer_id INTEGER REFERENCES singer(id), title VARCHAR)",
    "CREATE VIEW adult AS SELECT name FROM singer WHERE age >= 18",
    "INSERT INTO singer VALUES (1, 'Ada', 36), (2, 'Bo', NULL), (3, '', 7)",
    "INSERT INTO song SELECT value, 1 + value % 3, 'song ' || value FROM numbers",
)
FOREVER = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"


def make_database(folder):
    numbers = "CREATE TEMP TABLE numbers AS WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n "
    connection = sqlite3.connect(folder / "singers.sqlite")
    for statement in (numbers + "WHERE value < 200) SELECT value FROM n", *TABLES):
        connection.execute(statement)
    connection.commit()
    connection.close()
    return folder / "singers.sqlite"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return make_database(tmp_path_factory.mktemp("databases"))


def tool_of(config, create_kwargs=None):
    Sql.check_config(config)
    tool = Sql(config, create_kwargs or {})
    asyncio.run(tool.start())
    return tool


@pytest.fixture
def ask(database):
    """A function that answers a query; keywords are config."""
    default = {"database": str(database), "timeout_s": 60}
    return lambda query, **config: tool_of({**default, **config}).call({"query": query})


def test_through_a_tool_file_and_the_runtime(database, tmp_path):
    specs = use.load(tmp_path, "sql", {"database": str(database)})
    good, bad = use.run(specs, [("sql", {"query": text}) for text in ("SELECT 1 AS one", "SELECT x")], timeout_s=60)
    assert (good.status, good.text) == (ToolStatus.OK, "one\n---\n1\n(1 row)")
    assert bad.status == ToolStatus.ERROR
    assert bad.text.startswith("Error: no such column: x. Known: ")


def test_results_are_shown_as_a_table(ask):
    assert ask("SELECT name, age FROM singer ORDER BY id;") == (
        "name | age\n--- | ---\nAda | 36\nBo | NULL\n'' | 7\n(3 rows)"
    )
    assert ask("SELECT name FROM adult -- grown up") == "name\n---\nAda\n(1 row)"
    assert ask("SELECT 'a|b' AS a, 'c\nd' AS b, 'NULL' AS c").splitlines()[2] == r"a\|b | c\nd | 'NULL'"
    assert ask("SELECT name FROM singer WHERE age > 99") == "name\n---\n(0 rows)"
    assert ask("SELECT id FROM singer ORDER BY id DESC LIMIT 1; -- the last").endswith("3\n(1 row)")
    assert ask("WITH a AS (SELECT max(age) AS m FROM singer) SELECT m FROM a") == "m\n---\n36\n(1 row)"
    assert ask("SELECT x'00ff', 0.1, 1e300 * 1e300").splitlines()[2] == "x'00ff' | 0.1 | inf"


def test_at_most_so_many_rows_and_characters(ask):
    few = ask("SELECT id FROM song ORDER BY id", max_rows=2)
    assert few.splitlines()[2:4] == ["1", "2"]
    assert few.splitlines()[4].startswith("... (showing the first 2 of more rows;")
    assert ask("SELECT id FROM song WHERE id < 3", max_rows=2).endswith("(2 rows)")
    wide = ask("SELECT title FROM song", max_chars=300, max_rows=1000)
    assert len(wide) < 450
    assert "of more rows" in wide
    assert ask(f"SELECT '{'z' * 500}' AS z", max_cell_chars=20).splitlines()[2] == "z" * 20 + "..."


def test_the_schema_has_many_spellings(ask):
    assert ask(".schema") == (
        "adult (view): name VARCHAR\n"
        "singer (3 rows): id INTEGER PRIMARY KEY, name VARCHAR, age INTEGER\n"
        "song (200 rows): id INTEGER PRIMARY KEY, singer_id INTEGER -> singer.id, title VARCHAR"
    )
    for query in ("", " ;", ".tables", "show tables;", "SHOW  TABLES", "describe"):
        assert ask(query) == ask(".schema")
    one = "singer (3 rows): id INTEGER PRIMARY KEY, name VARCHAR, age INTEGER"
    for query in (".schema singer", "DESCRIBE Singer;", 'desc "singer"', "DESC `singer`"):
        assert ask(query) == one
    with pytest.raises(ToolError, match=r"no such table: singers\. Did you mean singer"):
        ask(".schema singers")


def test_a_long_schema_is_cut(tmp_path):
    connection = sqlite3.connect(tmp_path / "many.sqlite")
    for number in range(100):
        connection.execute(f"CREATE TABLE t{number:03} (a, b)")
    connection.close()
    text = tool_of({"database": str(tmp_path / "many.sqlite"), "max_chars": 200}).call({"query": ".schema"})
    assert text.startswith("t000 (0 rows): a, b\n")
    assert "more (.schema NAME describes one): t0" in text
    assert len(text) < 2500


def test_a_broken_view_does_not_hide_the_schema(tmp_path):
    connection = sqlite3.connect(tmp_path / "broken.sqlite")
    connection.executescript(
        "CREATE TABLE a (x); CREATE TABLE gone (y); CREATE VIEW b AS SELECT y FROM gone; CREATE TABLE c (z);"
        "DROP TABLE gone;"
    )
    connection.close()
    call = tool_of({"database": str(tmp_path / "broken.sqlite")}).call
    schema = "a (0 rows): x\nb (cannot be read: no such table: main.gone)\nc (0 rows): z"
    assert call({"query": ".schema"}) == schema
    assert call({"query": ".schema B"}) == schema.splitlines()[1]


def test_what_sqlite_keeps_in_virtual_tables_can_be_read(tmp_path):
    path = tmp_path / "notes.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIRTUAL TABLE note USING fts5(body)")
    connection.execute("INSERT INTO note VALUES ('hello world'), ('bye')")
    connection.commit()
    connection.close()
    call = tool_of({"database": str(path)}).call
    assert call({"query": "SELECT body FROM note WHERE note MATCH 'hello'"}).splitlines()[2] == "hello world"
    assert call({"query": "SELECT value FROM json_each('[5]')"}).splitlines()[2] == "5"
    assert call({"query": ".schema"}) == "note (2 rows): body"
    assert "body" in call({"query": "PRAGMA table_info(note)"})


def test_names_that_do_not_exist_get_the_nearest(ask):
    with pytest.raises(ToolError, match=r'Did you mean "?singer'):
        ask("SELECT * FROM singgers")
    with pytest.raises(ToolError, match="title"):
        ask("SELECT titel FROM song")
    with pytest.raises(ToolError) as caught:
        ask("SELECT\n\n* FROM singer WHERE")
    assert "\n" not in str(caught.value)


def test_one_reading_statement(ask):
    with pytest.raises(ToolError, match="one by one"):
        ask("SELECT 1; SELECT 2")
    with pytest.raises(ToolError, match="write one SELECT"):
        ask("DELETE FROM singer")
    with pytest.raises(ToolError, match="at most 20000"):
        ask("SELECT " + "1 + " * 10_000 + "1")
    with pytest.raises(ToolError):
        ask("-- nothing")


def test_a_query_ends_in_time_and_the_next_is_answered(ask):
    started = time.monotonic()
    with pytest.raises(ToolTimeoutError, match=r"did not finish within 0.3 s"):
        ask(FOREVER, timeout_s=0.3)
    assert time.monotonic() - started < 20
    assert ask("SELECT 1 AS a") == "a\n---\n1\n(1 row)"


def test_memory_is_bounded(ask):
    with pytest.raises(ToolError, match=r"too much memory|too big"):
        ask("SELECT * FROM song a, song b, song c, song d ORDER BY a.title || b.title", memory_mb=64)


def test_each_row_names_its_database_below_the_root(database, tmp_path):
    folder = database.parent
    config = {"root": str(folder)}
    for name in ("singers.sqlite", str(database)):
        assert tool_of(config, {"database": name}).call({"query": "SELECT 1 AS a"}) == "a\n---\n1\n(1 row)"
    outside = tmp_path / "other.sqlite"
    outside.write_bytes(database.read_bytes())
    link = folder / "link.sqlite"
    link.symlink_to(outside)
    for name in (str(outside), f"../{tmp_path.name}/other.sqlite", "link.sqlite"):
        with pytest.raises(ConfigError, match="database"):
            tool_of(config, {"database": name})
    link.unlink()
    assert tool_of({}, {"database": str(outside)}).call({"query": "SELECT 1 AS a"})


@pytest.mark.parametrize(
    ("create_kwargs", "message"),
    [
        ({}, r"create_kwargs\.database: missing"),
        ({"database": 3}, "got 3"),
        ({"database": "none.sqlite"}, "is not a file"),
        ({"database": "a\0b"}, "database"),
        ({"databse": "x"}, "Did you mean 'database'"),
    ],
)
def test_a_row_that_cannot_be_used_stops_the_run(create_kwargs, message):
    with pytest.raises(ConfigError, match=message):
        tool_of({}, create_kwargs)


def test_no_write_may_be_unfinished(database, tmp_path):
    path = tmp_path / "busy.sqlite"
    path.write_bytes(database.read_bytes())
    Path(f"{path}-wal").write_bytes(b"x")
    with pytest.raises(ConfigError, match="Open and close it once"):
        Sql.check_config({"database": str(path)})


def test_a_broken_file_is_not_the_policys_fault(database, tmp_path):
    path = tmp_path / "broken"
    path.write_bytes(database.read_bytes()[:64] + b"\xff" * 4096)
    with pytest.raises(UnscoredError, match="cannot be opened"):
        tool_of({"database": str(path)}).call({"query": "SELECT 1"})


@pytest.mark.parametrize(
    ("sent", "error", "message"),
    [(signal.SIGKILL, UnscoredError, "status -9"), (signal.SIGSEGV, ToolError, "made the engine crash")],
)
def test_only_a_crash_from_outside_is_not_the_policys_fault(database, sent, error, message):
    tool = tool_of({"database": str(database), "memory_mb": 77, "timeout_s": 60})
    tool.call({"query": "SELECT 1"})
    ((_, worker),) = pool.workers(77).idle
    timer = threading.Timer(0.3, os.kill, (worker.pid, sent))
    timer.start()
    with pytest.raises(error, match=message):
        tool.call({"query": FOREVER})
    timer.join()
    assert tool.call({"query": "SELECT 1 AS a"}) == "a\n---\n1\n(1 row)"


def test_a_graded_query_may_wait_for_a_slow_disk(database, monkeypatch):
    monkeypatch.setattr(pool, "_SLACK_S", 0.1)
    limits = {"timeout_s": 1.0, "memory_mb": 78, "max_rows": 1}
    pool.rows(database, "SELECT 1", **limits)
    ((_, worker),) = pool.workers(78).idle
    worker.send_signal(signal.SIGSTOP)
    timer = threading.Timer(2, worker.send_signal, (signal.SIGCONT,))
    timer.start()
    assert pool.rows(database, "SELECT 2", **limits) == [[2]]
    timer.join()


ORPHANS = """
import asyncio, sys, threading
from agent_rl.tools.builtin._sql import pool
from agent_rl.tools.builtin.sql import Sql
tool = Sql({"database": sys.argv[1], "timeout_s": 2}, {})
asyncio.run(tool.start())
tool.call({"query": "SELECT 1"})
((_, worker),) = pool.workers(512).idle
if sys.argv[2]:
    threading.Thread(target=tool.call, args=({"query": sys.argv[2]},), daemon=True).start()
print(worker.pid, flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("query", ["", FOREVER])
def test_no_engine_outlives_a_killed_trainer(database, query):
    command = [sys.executable, "-c", ORPHANS, str(database), query]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as parent:
        worker = int(parent.stdout.readline())
        assert alive(worker)
        parent.kill()
    wait_until(lambda: not alive(worker), 60)
