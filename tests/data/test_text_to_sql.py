"""The forms of questions about databases."""

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.text_to_sql import TEXT_TO_SQL, at_time, database_file, new_database, schema_of, to_row
from agent_rl.errors import ConfigError

NOW = datetime(2025, 1, 15, 12)
QUERY = "SELECT count(*) FROM orders WHERE day < date('now')"
PINNED = "SELECT count(*) FROM orders WHERE day < date('2025-01-15 12:00:00')"


@pytest.fixture
def databases(tmp_path: Path) -> Path:
    database = sqlite3.connect(tmp_path / "shop.sqlite")
    database.execute("CREATE TABLE orders (id INTEGER, day TEXT)")
    database.commit()
    database.close()
    return tmp_path


FORMS: list[tuple[dict[str, Any], str, Any]] = [
    ({"question": "How many?", "query": QUERY, "db_id": "shop"}, "spider", PINNED),
    ({"question": "How many?", "SQL": QUERY, "db_id": "shop", "evidence": "day is ISO"}, "bird", PINNED),
    (
        {"question": "How many?", "query": f"{QUERY};SELECT 1;", "db_name": "shop", "instructions": "Be quick."},
        "sql_eval",
        [PINNED, "SELECT 1"],
    ),
    (
        {
            "prompt": [{"role": "user", "content": "How many?"}],
            "reward_spec": {"ground_truth": "SELECT 1"},
            "db_id": "shop",
        },
        "skyrl_sql",
        "SELECT 1",
    ),
]


@pytest.mark.parametrize(("example", "source", "sql"), FORMS)
def test_each_form_becomes_a_row(databases: Path, example: dict[str, Any], source: str, sql: Any) -> None:
    row = to_row(example, "test", 0, databases=databases, now=NOW, tool="sql")
    path = str(databases / "shop.sqlite")
    assert row["data_source"] == source
    assert row["reward_model"]["ground_truth"] == {"sql": sql, "database": path}
    assert row["extra_info"]["tools_kwargs"] == {"sql": {"create_kwargs": {"database": path}}}
    prompt = row["prompt"][0]["content"]
    assert "How many?" in prompt
    if source != "skyrl_sql":
        assert "CREATE TABLE orders (id INTEGER, day TEXT);" in prompt
        assert "Today is 2025-01-15, and the time 12:00:00." in prompt
        assert str(example.get("evidence", "")) in prompt


@pytest.mark.parametrize(
    ("query", "sql"),
    [
        ("SELECT group_concat(id, '; ') FROM orders", "SELECT group_concat(id, '; ') FROM orders"),
        ("SELECT 'it''s; so'; SELECT \"a;b\" FROM orders;", ["SELECT 'it''s; so'", 'SELECT "a;b" FROM orders']),
        ("SELECT 1 -- it's one\n;SELECT 2", ["SELECT 1 -- it's one", "SELECT 2"]),
    ],
)
def test_a_semicolon_in_quotes_does_not_end_a_query(databases: Path, query: str, sql: Any) -> None:
    example = {"question": "Which?", "query": query, "db_name": "shop"}
    row = to_row(example, "test", 0, databases=databases, now=NOW)
    assert row["reward_model"]["ground_truth"]["sql"] == sql


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: --databases"),
        (
            ("--databases", ".", "--now", "today"),
            "'today' is not a time: write it as 2025-01-15T12:00:00",
        ),
        (("--databases", "."), "rows.jsonl, line 1, --databases: there is no shop.sqlite"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, refusal: Any, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(FORMS[0][0]))
    assert message in refusal(TEXT_TO_SQL, "--input", tmp_path / "rows.jsonl", *arguments)


@pytest.mark.parametrize(
    ("query", "pinned"),
    [
        ("SELECT date('now', '-7 days')", "SELECT date('2025-01-15 12:00:00', '-7 days')"),
        ("SELECT CURRENT_DATE", "SELECT '2025-01-15'"),
        ("SELECT current_time", "SELECT '12:00:00'"),
        ("SELECT knowledge FROM nowhere", "SELECT knowledge FROM nowhere"),
    ],
)
def test_a_query_asks_the_stopped_clock(query: str, pinned: str) -> None:
    assert at_time(query, NOW) == pinned


def test_databases_are_found_as_spider_and_bird_lay_them_out(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "a.sqlite", tmp_path / "b" / "b.db"):
        path.write_bytes(b"")
    assert database_file(tmp_path, "a") == tmp_path / "a.sqlite"
    assert database_file(tmp_path, "b") == tmp_path / "b" / "b.db"
    with pytest.raises(ConfigError, match=r"no c\.sqlite or c/c\.sqlite"):
        database_file(tmp_path, "c")
    (tmp_path / "d.sqlite").write_text("not a database at all, but text" * 100)
    with pytest.raises(ConfigError, match="not an SQLite database"):
        schema_of(tmp_path / "d.sqlite")


def test_databases_are_made_and_described_without_locks(tmp_path: Path) -> None:
    """Which the file system of a cluster may not have; here another process seems to hold all of them."""
    path = tmp_path / "d.sqlite"
    with closing(new_database(path)) as made:
        made.execute("CREATE TABLE first (a)")
        made.commit()
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert schema_of(path) == "CREATE TABLE first (a);"
            made.execute("CREATE TABLE second (a)")
            made.commit()
            other.execute("ROLLBACK")
    schema_of.cache_clear()
    assert schema_of(path) == "CREATE TABLE first (a);\nCREATE TABLE second (a);"
