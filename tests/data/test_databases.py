"""Databases from dumps: the same each time, with the clock of the dump stopped."""

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.databases import at_time, database_file, make_database, new_database, schema_of
from agent_rl.errors import ConfigError

NOW = datetime(2025, 1, 15, 12)
DUMP = """
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE shop.customers (id SERIAL PRIMARY KEY, name varchar(20), joined date, rich boolean); -- not NOW()
CREATE TABLE shop.orders (id bigint, customer int REFERENCES shop.customers(id), total numeric(10,2), made timestamp,
  month text, before text);
INSERT INTO shop.customers (name, joined, rich)
  VALUES ('NOW() Ann', DATE_TRUNC('month', CURRENT_DATE)::date, true), ('Ben', NULL, false);
INSERT INTO shop.orders VALUES (7, 1, 10.50, NOW(), to_char(CURRENT_DATE, 'Month'),
  to_char(CURRENT_TIMESTAMP - INTERVAL '1 day', 'YYYY-MM-DD HH24:MI'));
"""


def tables(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    database = sqlite3.connect(path)
    try:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master ORDER BY name")]
        return {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    finally:
        database.close()


def test_a_dump_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(DUMP)
    make_database(tmp_path / "shop.sql", tmp_path / "made" / "shop.sqlite", NOW)
    assert tables(tmp_path / "made" / "shop.sqlite") == {
        "customers": [(1, "NOW() Ann", "2025-01-01", 1), (2, "Ben", None, 0)],
        "orders": [(7, 1, 10.5, "2025-01-15 12:00:00", "January", "2025-01-14 12:00")],
    }
    assert "CREATE TABLE" in schema_of(tmp_path / "made" / "shop.sqlite")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["shop.sqlite"]


def test_a_dump_that_cannot_be_run_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text("CREATE TABLE a (b int); INSERT INTO c VALUES (1);")
    with pytest.raises(ConfigError, match=r"shop\.sql: it cannot be run \(.*does not exist"):
        make_database(tmp_path / "shop.sql", tmp_path / "made" / "shop.sqlite", NOW)
    assert not list((tmp_path / "made").iterdir())


@pytest.mark.parametrize(
    ("query", "pinned"),
    [
        ("SELECT date('now', '-7 days')", "SELECT date('2025-01-15 12:00:00', '-7 days')"),
        ("SELECT CURRENT_DATE", "SELECT '2025-01-15'"),
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
    with pytest.raises(ConfigError, match="no SQLite database"):
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
    assert tables(path).keys() == {"first", "second"}
