import resource
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import sql_match
from agent_rl.rewards.scorers.sql_match import score_sql_match
from agent_rl.tools.builtin._sql.pool import workers

TABLES = {
    "people": [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 20}, {"name": "Cy", "age": 36}],
    "odd name": {"columns": ["a b", "c"], "rows": [[1, 0.1], [2, 0.2]]},
}
INFO = {"tables": TABLES}


@pytest.mark.parametrize(
    ("query", "score"),
    [
        ("SELECT name FROM people WHERE age = 36", 1),
        ("```sql\nSELECT name FROM people WHERE age > 30 ORDER BY name DESC;\n```", 1),
        ("<answer>select p.name from people p where p.age = 36</answer>", 1),
        ("SELECT 1 <solution>SELECT name FROM people WHERE age = 36</solution>", 1),
        ("WITH old AS (SELECT * FROM people WHERE age > 30) SELECT name FROM old", 1),
        ("SELECT name FROM people", 0),
        ("SELECT DISTINCT age FROM people WHERE age = 36", 0),
        ("SELECT name, age FROM people WHERE age = 36", 0),
        ("SELECT nam FROM people", 0),
        ("no query", 0),
        ("", 0),
        ("SELECT 'Ada' UNION ALL SELECT 'Cy'; SELECT 1", 0),
    ],
)
def test_rows_are_compared_as_a_bag(query: str, score: int) -> None:
    truth = "SELECT name FROM people WHERE age = 36"
    assert score_sql_match(query, truth, INFO) == score
    assert score_sql_match(query, {"sql": truth, "tables": TABLES}, {}) == score


def test_order_counts_where_the_right_query_sorts() -> None:
    truth = "SELECT name FROM people ORDER BY name"
    assert score_sql_match("SELECT name FROM people ORDER BY name ASC", truth, INFO) == 1.0
    assert score_sql_match("SELECT name FROM people ORDER BY name DESC", truth, INFO) == 0.0


def test_numbers_are_compared_by_value() -> None:
    assert score_sql_match('SELECT c + 0.2 - 0.2 FROM "odd name"', 'SELECT c FROM "odd name"', INFO) == 1.0
    assert score_sql_match("SELECT 36.0", "SELECT max(age) FROM people", INFO) == 1.0


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM people",
        "INSERT INTO people VALUES ('x', 1)",
        "DROP TABLE people",
        "ATTACH DATABASE '/tmp/x' AS y",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('x')",
        "CREATE TABLE t AS SELECT 1",
        "SELECT sql FROM sqlite_master; DROP TABLE people",
    ],
)
def test_a_query_can_only_read(query: str) -> None:
    assert score_sql_match(query, "SELECT count(*) FROM people", INFO) == 0.0


def test_a_query_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_match, "QUERY_S", 0.1)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    assert score_sql_match(endless, "SELECT 1", INFO) == 0.0
    rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 20000) SELECT x FROM c"
    assert score_sql_match(rows, "SELECT 1", INFO) == 0.0


def test_tables_may_be_a_script() -> None:
    script = "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2);"
    assert score_sql_match("SELECT sum(a) FROM t", {"sql": "SELECT 3", "tables": script}, {}) == 1.0


def test_a_database_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shop 1.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2);")
    info = {"database": str(path)}
    assert score_sql_match("SELECT sum(a) FROM t", "SELECT 3", info) == 1.0
    assert score_sql_match("DELETE FROM t", {"sql": "SELECT 3", **info}, {}) == 0.0
    with pytest.raises(UnscoredError, match="a query that runs"):
        score_sql_match("SELECT 3", "SELECT 3", {"database": str(tmp_path / "missing.sqlite")})
    (tmp_path / "shop 1.sqlite-wal").write_bytes(b"x")
    with pytest.raises(UnscoredError, match="changes not yet written"):
        score_sql_match("SELECT 3", "SELECT 3", info)


@pytest.mark.parametrize(
    "truth",
    [None, "", "SELECT x FROM people", {"sql": "SELECT 1", "tables": "CREATE nothing"}, {"tables": TABLES}, "{broken"],
)
def test_a_truth_must_run(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not a query"):
        score_sql_match("SELECT 1", truth, INFO)


def test_without_tables_it_is_unscored() -> None:
    with pytest.raises(UnscoredError, match="a query with its tables"):
        score_sql_match("SELECT 1", "SELECT 1", {})


HOSTILE = {
    "a search that no interruption reaches": "SELECT instr(hex(zeroblob(60000000)), hex(zeroblob(20000000)) || '1')",
    "a large value": "SELECT length(hex(zeroblob(900000000)))",
    "large rows": "SELECT hex(zeroblob(450000)) FROM people a, people b, people c, people d, people e, people f",
    "many rows": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "large sorts": "SELECT a.name FROM people a, people b, people c ORDER BY hex(zeroblob(100000000))",
    "another file": "SELECT * FROM pragma_database_list('/etc/passwd')",
}


@pytest.mark.slow
@pytest.mark.parametrize("query", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_query_takes_neither_this_processs_time_nor_its_memory(query: str) -> None:
    workers("sqlite", sql_match.MEMORY_MB).close()  # what they used for others
    workers_before, own_before = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    assert score_sql_match(query, "SELECT 1", INFO) == 0.0
    workers("sqlite", sql_match.MEMORY_MB).close()  # what ended is counted
    workers_after, own_after = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    assert used(own_after) - used(own_before) < 0.5
    assert used(workers_after) - used(workers_before) < sql_match.QUERY_S + 0.5
    assert own_after.ru_maxrss - own_before.ru_maxrss < 100 << 10
    assert workers_after.ru_maxrss <= max(workers_before.ru_maxrss, sql_match.MEMORY_MB + 64 << 10)


def used(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def test_values_of_every_kind_come_back() -> None:
    tables = {"t": {"columns": ["a", "b"], "rows": [[b"\x00\xff", None], [2**62, "x\ud83d\ude00"], [1.5, True]]}}
    info = {"tables": tables}
    assert score_sql_match("SELECT a, b FROM t", "SELECT a, b FROM t ORDER BY rowid", info) == 1.0
    assert score_sql_match("SELECT hex(a) FROM t LIMIT 1", "SELECT '00FF'", info) == 1.0
    assert score_sql_match("SELECT a FROM t LIMIT 1", "SELECT x'00ff'", info) == 1.0
    assert score_sql_match("SELECT a FROM t LIMIT 1", "SELECT '00ff'", info) == 0.0
    assert score_sql_match("SELECT 9e999", "SELECT 1e999", info) == 1.0
