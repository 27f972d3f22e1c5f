"""Databases of text-to-SQL: found, described, and asked with the clock stopped."""

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from agent_rl.data.databases import at_time, database_file, new_database, schema_of
from agent_rl.errors import ConfigError

NOW = datetime(2025, 1, 15, 12)


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
    schema_of.cache_clear()
    assert schema_of(path) == "CREATE TABLE first (a);\nCREATE TABLE second (a);"
