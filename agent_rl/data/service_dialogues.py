"""Generated customers of a small shop who want to cancel, redirect or return an order, if the shop's rules allow it.

A row contains the orders with their states for the agent's tool, the customer's messages, and the right change to the
order, which the agent does not see. Half of the requests must be refused, because the order has already been shipped or
has not arrived yet; the agent must then change nothing and tell the customer the order's state.

The customers' messages do not depend on the agent's replies. The simulated user scores the dialogue
(recipes/multi_rm/shop.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from agent_rl.data.conversion import RawSet
from agent_rl.data.rows import makes_row
from agent_rl.data.sources import Raw

DATA_SOURCE = "agent_rl/service_dialogues"
TOOL = "orders"

STATES = ("open", "shipped", "delivered")
ACTIONS = {"cancel": ("open",), "redirect": ("open",), "refund": ("delivered",)}
"""The possible changes to an order, with the states that allow each change."""

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
ITEMS = ("book", "chair", "clock", "kettle", "lamp", "mirror", "radio", "vase")
STREETS = ("Elm Street", "Hill Road", "Lake Lane", "Mill Way", "Park Row", "Station Road")
WISHES = {
    "cancel": "I do not need the {item} any more. Please cancel my order.",
    "redirect": "I am moving. Please send my {item} to {address}.",
    "refund": "My {item} is not what I hoped for. I would like my money back.",
}
THANKS = ("Thank you. Is it done?", "And what happens now?", "Good. Anything I must do?")


@makes_row
def to_row(customer: Mapping[str, Any]) -> dict[str, Any]:
    """Make a customer's row; a customer is a mapping of arguments for `make_row`."""
    return dict(customer)


def rows(seed: int, split: str, count: int) -> list[dict[str, Any]]:
    """Return the first `count` rows for a seed and a split."""
    customers = islice(_customers(seed, split), count)
    return [to_row(item, split, index, agent_name="user_sim_agent") for index, item in enumerate(customers)]


def _generate(options: dict[str, Any], seed: int, sizes: Mapping[str, int]) -> dict[str, Iterator[Raw]]:
    return {split: (Raw(split, item) for item in islice(_customers(seed, split), sizes[split])) for split in sizes}


SERVICE_DIALOGUES = RawSet("service_dialogues", to_row, agent_name="user_sim_agent", generate=_generate)


def _customers(seed: int, split: str) -> Iterator[dict[str, Any]]:
    source = random.Random(f"{seed} {split}")
    while True:
        numbers = source.sample(range(1000, 10_000), 3)
        orders = [
            {"number": str(number), "item": item, "state": source.choice(STATES), "address": _address(source)}
            for number, item in zip(numbers, source.sample(ITEMS, 3), strict=True)
        ]
        order, action, name = orders[0], source.choice(sorted(ACTIONS)), source.choice(NAMES)
        possible = source.random() < 0.5
        order["state"] = source.choice([state for state in STATES if (state in ACTIONS[action]) is possible])
        address = _address(source)
        wish = WISHES[action].format(item=order["item"], address=address)
        change = {"action": action, "number": order["number"], "address": address if action == "redirect" else ""}
        source.shuffle(orders)
        truth = f"{action} {order['number']}" if possible else f"nothing: {order['number']} is {order['state']}"
        user = {
            "replies": [f"It is order {order['number']}.", source.choice(THANKS)],
            "change": change if possible else dict.fromkeys(change, ""),
            "tell": "" if possible else order["state"],
        }
        yield {
            "question": f"Hello, this is {name}. {wish}",
            "data_source": DATA_SOURCE,
            "ground_truth": truth,
            "ability": "service",
            "tools_kwargs": {TOOL: {"create_kwargs": {"orders": json.dumps(orders)}}},
            "extra_info": {"user": user},
        }


def _address(source: random.Random) -> str:
    return f"{source.randrange(1, 100)} {source.choice(STREETS)}"
