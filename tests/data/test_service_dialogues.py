import json

from agent_rl.data import check_rows, service_dialogues
from agent_rl.data.service_dialogues import ACTIONS, STATES, TOOL


def test_a_change_is_right_exactly_where_the_orders_state_allows_it() -> None:
    rows = service_dialogues.rows(0, "train", 300)
    check_rows(rows)
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
