import json
from pathlib import Path

from agent_rl.data import check_rows, read_parquet, service_dialogues, write_parquet
from agent_rl.data.service_dialogues import ACTIONS, STATES, TOOL


def test_rows_keep_the_contract_and_cross_parquet(tmp_path: Path) -> None:
    rows = service_dialogues.rows(0, "train", 200)
    check_rows(rows)
    write_parquet(rows, tmp_path / "rows.parquet")
    assert read_parquet(tmp_path / "rows.parquet") == rows


def test_a_seed_gives_the_same_rows_and_splits_differ() -> None:
    rows = service_dialogues.rows(0, "train", 5)
    assert service_dialogues.rows(0, "train", 3) == rows[:3]
    assert service_dialogues.rows(1, "train", 5) != rows
    assert [row["extra_info"]["question"] for row in service_dialogues.rows(0, "test", 5)] != [
        row["extra_info"]["question"] for row in rows
    ]


def test_a_change_is_right_exactly_where_the_orders_state_allows_it() -> None:
    rows = service_dialogues.rows(0, "train", 300)
    granted = 0
    for row in rows:
        info = row["extra_info"]
        orders = {each["number"]: each for each in json.loads(info["tools_kwargs"][TOOL]["create_kwargs"]["orders"])}
        user = info["user"]
        number = user["replies"][0].removeprefix("It is order ").removesuffix(".")
        assert orders[number]["state"] in STATES
        assert orders[number]["item"] in info["question"] or "order" in info["question"]
        change = user["change"]
        if change["action"]:
            granted += 1
            assert change["number"] == number
            assert orders[number]["state"] in ACTIONS[change["action"]]
            assert change["address"] in info["question"]
            assert user["tell"] == ""
        else:
            assert user["tell"] == orders[number]["state"]
    assert 100 < granted < 200
