"""A small shop: its tool, the customers that `agent_rl.data.service_dialogues` generates, and a rule for politeness.

Each trajectory has its own orders, so the agent's changes last for the rest of the dialogue. The customer knows which
change is right, and returns the verdict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from agent_rl.agents.users.user import ScriptedUser
from agent_rl.data.service_dialogues import ACTIONS
from agent_rl.errors import ToolError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.tools import Tool
from agent_rl.trajectory import ToolStatus, Trajectory


class Orders(Tool):
    """The shop's orders."""

    name = "orders"
    description = (
        "Look up an order, or change it: cancel it or redirect it to another address while it is open, "
        "refund it when it has been delivered."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["look_up", *ACTIONS]},
            "number": {"type": "string", "description": "the order's number"},
            "address": {"type": "string", "description": "to redirect it: the new address"},
        },
        "required": ["action", "number"],
    }

    def __init__(self, config: Mapping[str, Any], create_kwargs: Mapping[str, Any]) -> None:
        super().__init__(config, create_kwargs)
        self.orders = {order["number"]: order for order in json.loads(create_kwargs["orders"])}

    async def call(self, arguments: dict[str, Any]) -> str:
        """Return the order as it is after the action."""
        action, order = arguments["action"], self.orders.get(arguments["number"])
        if order is None:
            raise ToolError(f"there is no order {arguments['number']}")
        if action != "look_up":
            if order["state"] not in ACTIONS[action]:
                raise ToolError(f"order {order['number']} is {order['state']}: {action} is not possible")
            if action == "redirect":
                if not arguments.get("address"):
                    raise ToolError("to redirect an order, give the address")
                order["address"] = arguments["address"]
            else:
                order["state"] = {"cancel": "cancelled", "refund": "refunded"}[action]
        return json.dumps(order)


class Customer(ScriptedUser):
    """A customer who sends the row's replies, and judges the agent by its changes and its messages."""

    async def score(self, trajectory: Trajectory) -> float:
        """Return 1 if only the right change was made and, if none was possible, the reason was told; else 0."""
        right = {key: value for key, value in self.row["change"].items() if value}
        done = [_change(call.arguments) for call in _executed(trajectory) if call.arguments["action"] != "look_up"]
        if done != ([right] if right else []):
            return 0.0
        told = " ".join(turn.text for turn in trajectory.turns if not turn.calls)
        return float(self.row["tell"] in told)


class Manners(Component):
    """A rule whose value is 1 if the agent is polite at least once in a dialogue and never shouts, otherwise 0."""

    class Config(ComponentConfig):
        """The words that the rule considers polite."""

        words: tuple[str, ...] = ("please", "thank", "sorry", "welcome", "happy to")

    async def measure(self, trajectory: Trajectory) -> Value:
        """Check the messages that the agent sent to the customer."""
        told = "\n".join(turn.text for turn in trajectory.turns if not turn.calls)
        polite = any(word in told.lower() for word in self.config.words)
        shouts = re.search(r"\b[A-Z]{4,}\b|!!", told) is not None
        return Value(float(polite and not shouts))


def _executed(trajectory: Trajectory) -> list[Any]:
    """Return the calls that succeeded."""
    answered = (pair for turn in trajectory.turns for pair in zip(turn.calls, turn.results, strict=False))
    return [call for call, result in answered if result.status is ToolStatus.OK]


def _change(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments, without the address unless the call redirects an order."""
    return {key: value for key, value in arguments.items() if key != "address" or arguments["action"] == "redirect"}
