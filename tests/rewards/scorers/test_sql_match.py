import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import sql_match
from agent_rl.rewards.scorers.sql_match import score_sql_match

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
        ("DELETE FROM people", 0),
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


@pytest.mark.parametrize(
    "truth",
    [
        "SELECT name FROM people WHERE age = (SELECT age FROM people GROUP BY age ORDER BY COUNT(*) DESC LIMIT 1)",
        "SELECT name FROM people WHERE age = 36 AND name NOT LIKE '%) order by (%'",
        "SELECT name FROM (SELECT name, ROW_NUMBER() OVER (ORDER BY abs(age) DESC) AS n FROM people) WHERE n < 3",
    ],
)
def test_order_does_not_count_where_only_a_part_of_the_right_query_sorts(truth: str) -> None:
    for order in ("ASC", "DESC"):
        assert score_sql_match(f"SELECT name FROM people WHERE age = 36 ORDER BY name {order}", truth, INFO) == 1.0


def test_order_counts_behind_parentheses() -> None:
    truth = "SELECT name FROM people WHERE age IN (36, (20)) ORDER BY length(name), (name)"
    assert score_sql_match("SELECT name FROM people ORDER BY length(name), name", truth, INFO) == 1.0
    assert score_sql_match("SELECT name FROM people ORDER BY name", truth, INFO) == 0.0


def test_numbers_are_compared_by_value() -> None:
    assert score_sql_match('SELECT c + 0.2 - 0.2 FROM "odd name"', 'SELECT c FROM "odd name"', INFO) == 1.0
    assert score_sql_match("SELECT 36.0", "SELECT max(age) FROM people", INFO) == 1.0


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
    with pytest.raises(UnscoredError, match="unwritten changes"):
        score_sql_match("SELECT 3", "SELECT 3", info)


@pytest.mark.parametrize(
    "truth",
    [None, "", "SELECT x FROM people", {"sql": "SELECT 1", "tables": "CREATE nothing"}, {"tables": TABLES}, "{broken"],
)
def test_a_truth_must_run(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not a query"):
        score_sql_match("SELECT 1", truth, INFO)


def test_values_of_every_kind_come_back() -> None:
    tables = {"t": {"columns": ["a", "b"], "rows": [[b"\x00\xff", None], [2**62, "x\ud83d\ude00"], [1.5, True]]}}
    info = {"tables": tables}
    assert score_sql_match("SELECT a, b FROM t", "SELECT a, b FROM t ORDER BY rowid", info) == 1.0
    assert score_sql_match("SELECT hex(a) FROM t LIMIT 1", "SELECT '00FF'", info) == 1.0
    assert score_sql_match("SELECT a FROM t LIMIT 1", "SELECT x'00ff'", info) == 1.0
    assert score_sql_match("SELECT a FROM t LIMIT 1", "SELECT '00ff'", info) == 0.0
    assert score_sql_match("SELECT 9e999", "SELECT 1e999", info) == 1.0
