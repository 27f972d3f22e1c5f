"""The forms of questions about databases."""

import json
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data.text_to_sql import TEXT_TO_SQL, to_row

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
    ("arguments", "message"),
    [
        ((), "the following arguments are required: --databases"),
        (("--databases", ".", "--now", "today"), "error: --now: "),
        (("--databases", "."), "rows.jsonl, line 1, --databases: there is no shop.sqlite"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, refusal: Any, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(FORMS[0][0]))
    assert message in refusal(TEXT_TO_SQL, "--input", tmp_path / "rows.jsonl", *arguments)
