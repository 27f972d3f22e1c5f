"""Customers of a small shop who no longer want what they ordered; the order's state decides what the agent must do.

The agent asks for the order's number, looks the order up, and follows the rules in the system message: cancel open
orders, stop shipped ones, refund delivered ones. The tools accept any action, right or wrong; success is the right
final state of the database (`service_state`). No order number occurs twice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, drawn_rows, held_out, native_turn
from agent_rl.tools.builtin._service.shop import ENDS

__all__ = ["WORLD"]

POLICY = "Cancel open orders. Stop shipped ones. Refund delivered ones."
CUSTOMERS = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
ITEMS = ("book", "chair", "clock", "kettle", "lamp", "mirror", "radio", "vase")
WISHES = ("I do not want my {item}.", "The {item} was a mistake.", "I need no {item} any more.")
NUMBERS = ("It is {number}.", "Number {number}.", "The number is {number}.")
DATABASE = "shop.json"


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Write the database of all orders to `folder/shop.json`, and return the rows of each split (see `World.write`)."""
    test, other = held_out(range(10_000, 100_000), seed)
    orders: dict[str, dict[str, str]] = {}

    def draw(rng: random.Random, numbers: Iterator[int]) -> dict[str, Any]:
        number, order = str(next(numbers)), {"item": rng.choice(ITEMS), "state": rng.choice(list(ENDS))}
        orders[number] = order
        return _row(folder, number, order, rng)

    splits = drawn_rows((iter(test), iter(other)), seed, counts, draw)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATABASE).write_text(json.dumps({"orders": orders}), encoding="utf-8")
    return splits


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Asks for the order, looks it up, and follows the rules."""
    number = _number((yield "Which order is it?"))
    order = yield _call("Look first.", "get_order", number)
    yield _call("By the rules.", ENDS[json.loads(order)["state"]][0], number)
    yield "It is done."


def guessing(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Asks for the order, then takes a random action without looking it up."""
    number = _number((yield "Which order is it?"))
    yield _call("Just act.", _any_end(rng), number)
    yield "It is done."


def ignoring(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Asks for the order and looks it up, then takes a random action."""
    number = _number((yield "Which order is it?"))
    yield _call("Maybe look.", "get_order", number)
    yield _call("Never mind.", _any_end(rng), number)
    yield "It is done."


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Asks for the order, and does nothing."""
    yield "Which order is it?"
    yield "It is done."


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Asks for the order, and writes a call that cannot be parsed."""
    number = _number((yield "Which order is it?"))
    yield _call("Quickly.", "get_order", number).replace("</tool_call>", "")
    yield "It is done."


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Calls a tool with a random number or speaks, with equal odds at each turn."""
    while True:
        if rng.random() < 0.5:
            yield "It is done."
        else:
            yield _call("Just act.", rng.choice(("get_order", _any_end(rng))), str(rng.randrange(10_000, 100_000)))


WORLD = World("service", write, by_name(oracle, guessing, ignoring, no_tool, malformed, acting_at_random))


def _row(folder: Path, number: str, order: Mapping[str, str], rng: random.Random) -> dict[str, Any]:
    wish = rng.choice(WISHES).format(item=order["item"])
    opening = f"Hello, I am {rng.choice(CUSTOMERS)}. {wish}"
    action = {"name": ENDS[order["state"]][0], "arguments": {"number": number}}
    return {
        "prompt": [{"role": "system", "content": POLICY}, {"role": "user", "content": opening}],
        "data_source": "agent_rl/service",
        "ground_truth": {"domain": "shop", "database": str(folder / DATABASE), "actions": [action]},
        "agent_name": "user_sim_agent",
        "ability": "service",
        "extra_info": {"user": {"replies": [rng.choice(NUMBERS).format(number=number)]}},
    }


def _number(reply: str) -> str:
    """Return the number in the customer's reply."""
    return "".join(character for character in reply if character.isdigit())


def _any_end(rng: random.Random) -> str:
    return rng.choice([tool for tool, _ in ENDS.values()])


def _call(thought: str, name: str, number: str) -> str:
    return native_turn(thought, {"name": name, "arguments": {"number": number}})
