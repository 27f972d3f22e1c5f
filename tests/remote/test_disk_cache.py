"""A cache file refuses what it cannot read when it is opened; later failures cost only results."""

import sqlite3

import pytest

from agent_rl.errors import ConfigError
from agent_rl.remote.disk_cache import DiskCache


def test_results_are_there_again(tmp_path):
    path = str(tmp_path / "new" / "file.sqlite")
    for value in (None, "first", "second"):
        file = DiskCache(path, key="a.b", kind="things")
        assert file.get("x") == value
        file.put("x", "first" if value is None else "second")
        file.close()


def test_file_of_another_kind_is_left_alone(tmp_path):
    newer, other = tmp_path / "newer.sqlite", tmp_path / "other.sqlite"
    for path, statement in [(newer, "PRAGMA user_version=9"), (other, "CREATE TABLE results (id INTEGER)")]:
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.close()
        with pytest.raises(ConfigError, match=r"^a\.b: .*cannot be used as a cache of things"):
            DiskCache(str(path), key="a.b", kind="things")
    with pytest.raises(ConfigError, match="cannot be used"):
        DiskCache(str(newer / "below" / "a" / "file"), key="a.b", kind="things")


def test_a_file_that_fails_later_costs_results_only(tmp_path, caplog):
    file = DiskCache(str(tmp_path / "file.sqlite"), key="a.b", kind="things")
    file.close()
    file.put("x", "y")
    assert file.get("x") is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
