"""The tools of a service desk: one database for an episode, and what each domain allows."""

import json

import pytest

from agent_rl.errors import ConfigError, ToolError
from agent_rl.settings.errors import InvalidValueError
from agent_rl.tools.builtin._service import domain_names, open_domain, operations
from agent_rl.tools.builtin._service.records import Records
from agent_rl.tools.builtin._service.shop import ENDS
from agent_rl.tools.builtin.service import ServiceDesk
from agent_rl.trajectory import ToolStatus
from tests.tools import use

ORDERS = {"orders": {"10000": {"item": "lamp", "state": "open"}}}


@pytest.fixture
def shop(tmp_path):
    return written(tmp_path, ORDERS)


def written(folder, tables):
    path = folder / "db.json"
    path.write_text(json.dumps(tables))
    return str(path)


def run(specs, *calls, **options):
    return use.run(specs, *([call] for call in calls), **options)


def test_the_tools_of_an_episode_share_a_database_that_no_other_episode_sees(shop):
    specs = ServiceDesk.tools({"domain": "shop", "database": shop})
    calls = [("cancel_order", {"number": "10000"}), ("get_order", {"number": "10000"})]
    for _ in range(2):
        first, second = run(specs, *calls)
        assert (first.text, json.loads(second.text)["state"]) == ("cancelled", "cancelled")
    (looked,) = run(specs, calls[1])
    assert json.loads(looked.text)["state"] == "open"
    (missing,) = run(specs, ("get_order", {"number": "1"}))
    assert (missing.status, missing.text) == (ToolStatus.ERROR, "Error: there is no '1' among the orders")


def test_a_row_may_begin_elsewhere(shop):
    specs = ServiceDesk.tools({"domain": "shop", "database": shop})
    initial = {
        "tables": {"orders": {"2": {"item": "desk", "state": "shipped"}}},
        "actions": [{"name": "cancel_order", "arguments": {"number": "10000"}}],
    }
    calls = [("get_order", {"number": "10000"}), ("get_order", {"number": "2"})]
    orders = run(specs, *calls, tools_kwargs={"get_order": {"create_kwargs": {"initial": initial}}})
    assert [json.loads(order.text)["state"] for order in orders] == ["cancelled", "shipped"]


@pytest.mark.parametrize("domain", domain_names())
def test_every_tool_says_what_it_takes(domain, shop):
    for spec in ServiceDesk.tools({"domain": domain, "database": shop}):
        assert spec.description
        for name, about in spec.parameters["properties"].items():
            assert about["description"], (spec.name, name)
    assert all(not name.startswith("_") for name in operations(domain))


def test_what_cannot_be_used_is_named(tmp_path, shop):
    with pytest.raises(ConfigError, match="Did you mean 'shop'"):
        ServiceDesk.tools({"domain": "shp", "database": shop})
    with pytest.raises(ConfigError, match=r"database: .*absent\.json cannot be read"):
        ServiceDesk.tools({"domain": "shop", "database": str(tmp_path / "absent.json")})
    with pytest.raises((ConfigError, InvalidValueError), match="tables"):
        ServiceDesk.tools({"domain": "shop", "database": written(tmp_path / "..", [])})


def test_records_keep_what_they_began_with():
    tables = {"t": {"a": {"x": [1]}, "b": {"x": []}}}
    records = Records(tables)
    records.edit("t", "a")["x"].append(2)
    records.edit("t", "b")
    records.add("t", "c", {"x": [3]})
    records.merge("t", "c", {"y": 4})
    assert tables == {"t": {"a": {"x": [1]}, "b": {"x": []}}}
    assert list(records.all("t")) == [{"x": [1, 2]}, {"x": []}, {"x": [3], "y": 4}]
    assert records.changes() == {("t", "a"): {"x": [1, 2]}, ("t", "c"): {"x": [3], "y": 4}}


@pytest.mark.parametrize("state", ENDS)
def test_the_rules_of_the_shop_name_its_tools(state):
    tool, end = ENDS[state]
    shop = open_domain("shop", {"orders": {"1": {"state": state}}})
    assert shop.run(tool, {"number": "1"}) == shop.get_order("1")["state"] == end
    with pytest.raises(ToolError, match="missing a required argument"):
        shop.run(tool, {})
    with pytest.raises(ToolError, match="there is no tool '_end'"):
        shop.run("_end", {})


HOUSE = {
    "rooms": {"kitchen": {"furniture": "drawer"}, "office": {}},
    "things": {"cup": {"at": "kitchen"}, "pen": {"at": "office"}},
}


def test_a_thing_is_brought_through_a_household(tmp_path):
    specs = ServiceDesk.tools({"domain": "household", "database": written(tmp_path, HOUSE)})
    commands = [
        ("take", "cup", "Error: you see no cup"),
        ("put", "cup", "Error: you do not have the cup"),
        ("go", "cellar", "Error: there is no 'cellar' among the rooms"),
        ("go", "kitchen", "There is a closed drawer."),
        ("open", "chest", "Error: there is no chest here"),
        ("take", "cup", "Error: you see no cup"),
        ("open", "drawer", "In it: cup."),
        ("take", "cup", "You have the cup."),
        ("open", "drawer", "In it: nothing."),
        ("go", "kitchen", "There is a closed drawer."),
        ("put", "cup", "Error: there is no open place for it here"),
        ("go", "office", "There is nothing to open."),
        ("take", "pen", "You have the pen."),
        ("put", "cup", "The cup is in the office."),
        ("put", "cup", "Error: you do not have the cup"),
    ]
    parameters = {"go": "room", "open": "furniture", "take": "thing", "put": "thing"}
    results = run(specs, *((name, {parameters[name]: value}) for name, value, _ in commands))
    assert [result.text for result in results] == [text for _, _, text in commands]
