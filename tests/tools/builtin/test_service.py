"""The tools of a service desk: one database for an episode, and what each domain allows."""

import json

import pytest

from agent_rl.data.tau2 import read_tasks, to_row
from agent_rl.errors import ConfigError, ToolError
from agent_rl.rewards.scorers.service_state import score_service_state
from agent_rl.settings.errors import InvalidValueError
from agent_rl.tools.builtin._service import domain_names, open_domain, operations
from agent_rl.tools.builtin._service.records import Records
from agent_rl.tools.builtin._service.shop import ENDS
from agent_rl.tools.builtin.service import ServiceDesk
from agent_rl.trajectory import ToolStatus
from tests.data.real import shared
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


LAMP = {"red": ("1", 10.0, True), "blue": ("2", 12.5, True), "gold": ("3", 90.0, False)}
RETAIL = {
    "products": {
        "p": {
            "name": "Lamp",
            "product_id": "p",
            "variants": {
                key: {"item_id": key, "options": {"color": name}, "available": there, "price": price}
                for name, (key, price, there) in LAMP.items()
            },
        }
    },
    "users": {
        "ada": {
            "user_id": "ada",
            "name": {"first_name": "Ada", "last_name": "Hill"},
            "address": {"zip": "12345"},
            "email": "ada@example.com",
            "payment_methods": {
                "card": {"source": "credit_card", "id": "card"},
                "gift": {"source": "gift_card", "id": "gift", "balance": 15.0},
                "other": {"source": "credit_card", "id": "other"},
            },
            "orders": ["#P", "#D"],
        }
    },
    "orders": {
        name: {
            "order_id": name,
            "user_id": "ada",
            "address": {"zip": "12345"},
            "items": [{"name": "Lamp", "product_id": "p", "item_id": "1", "price": 10.0, "options": {"color": "red"}}],
            "status": status,
            "payment_history": [{"transaction_type": "payment", "amount": 10.0, "payment_method_id": "gift"}],
        }
        for name, status in (("#P", "pending"), ("#D", "delivered"))
    },
}


@pytest.fixture
def desk(tmp_path):
    return open_domain("retail", written(tmp_path, RETAIL))


def balance(desk):
    return desk.records.get("users", "ada")["payment_methods"]["gift"]["balance"]


def test_users_and_items_are_found(desk):
    assert desk.find_user_id_by_email("ADA@example.com") == "ada"
    assert desk.find_user_id_by_name_zip("ada", "hill", "12345") == "ada"
    assert desk.get_item_details("2")["price"] == 12.5
    assert desk.list_all_product_types() == {"Lamp": "p"}
    with pytest.raises(ToolError, match="no such user"):
        desk.find_user_id_by_name_zip("ada", "hill", "1")


def test_a_cancelled_order_is_paid_back(desk):
    order = desk.cancel_pending_order("#P", "no longer needed")
    assert (order["status"], order["payment_history"][1]["transaction_type"]) == ("cancelled", "refund")
    assert balance(desk) == 25.0
    with pytest.raises(ToolError, match="the order is cancelled, not pending"):
        desk.cancel_pending_order("#P", "no longer needed")


def test_items_are_replaced_once_and_the_difference_is_paid(desk):
    order = desk.modify_pending_order_items("#P", ["1"], ["2"], "gift")
    assert (order["items"][0]["item_id"], order["items"][0]["options"]) == ("2", {"color": "blue"})
    assert (balance(desk), order["payment_history"][1]["amount"]) == (12.5, 2.5)
    with pytest.raises(ToolError, match="item modified"):
        desk.modify_pending_order_items("#P", ["2"], ["1"], "gift")
    address = dict.fromkeys(("address1", "address2", "city", "state", "country", "zip"), "x")
    assert desk.modify_pending_order_address("#P", **address)["address"] == address


def test_another_payment_gives_the_first_one_back(desk):
    order = desk.modify_pending_order_payment("#P", "card")
    assert [each["payment_method_id"] for each in order["payment_history"]] == ["gift", "card", "gift"]
    assert balance(desk) == 25.0


def test_delivered_orders_are_returned_or_exchanged(desk):
    exchanged = desk.exchange_delivered_order_items("#D", ["1"], ["2"], "card")
    assert (exchanged["status"], exchanged["exchange_price_difference"]) == ("exchange requested", 2.5)
    with pytest.raises(ToolError, match="exchange requested, not delivered"):
        desk.return_delivered_order_items("#D", ["1"], "gift")


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("exchange_delivered_order_items", ("#D", ["1"], ["3"], "card"), "not available"),
        ("exchange_delivered_order_items", ("#D", ["1"], ["9"], "card"), "or is not a Lamp"),
        ("exchange_delivered_order_items", ("#D", ["1", "1"], ["2", "2"], "card"), "not in the order: 1"),
        ("exchange_delivered_order_items", ("#D", ["1"], [], "card"), "the same number of new items"),
        ("exchange_delivered_order_items", ("#D", ["1"], ["2"], "cash"), "no payment method 'cash'"),
        ("return_delivered_order_items", ("#D", ["1"], "card"), "where it came from"),
        ("return_delivered_order_items", ("#D", [], "gift"), "no items"),
        ("modify_pending_order_payment", ("#P", "gift"), "already paid this way"),
        ("get_order_details", ("P",), "there is no 'P' among the orders"),
    ],
)
def test_what_the_shop_refuses_changes_nothing(desk, name, arguments, problem):
    with pytest.raises(ToolError, match=problem):
        getattr(desk, name)(*arguments)
    assert desk.records.changes() == {}


def test_the_right_actions_of_tau2_go_through_the_tools_and_score_one():
    """Those that fail are look-ups in vain, and two exchanges that the shop refuses."""
    database = str(shared("service/tau2_retail_db.json"))
    specs, failed = ServiceDesk.tools({"domain": "retail", "database": database}), 0
    for number, raw in enumerate(read_tasks(shared("service/tau2_retail_tasks.json"))):
        row = to_row(raw.value, "test", number, database=database)
        truth = row["reward_model"]["ground_truth"]
        actions = [(each["name"], each["arguments"]) for each in truth["actions"]]
        results = run(specs, *actions, tools_kwargs=row["extra_info"].get("tools_kwargs"))
        assert {each.status for each in results} <= {ToolStatus.OK, ToolStatus.ERROR}
        done = [each for each, result in zip(truth["actions"], results, strict=True) if result.status is ToolStatus.OK]
        failed += len(actions) - len(done)
        assert score_service_state("", truth, {"executed_calls": done, "stop_reason": "answered"}) == 1.0
    assert failed == 18


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
