"""The `my_tool` tool: what the policy can do with it, in one sentence."""

from __future__ import annotations

from typing import Any

from agent_rl import Tool
from agent_rl.errors import ToolError

PRICES = {"apple": 3, "bread": 5, "cheese": 8, "milk": 2}


class MyTool(Tool):
    """A tool that knows prices. Each trajectory has its own instance, which may store the trajectory's data."""

    name = "my_tool"
    description = "Returns the price of an item in dollars."
    parameters = {
        "type": "object",
        "properties": {"item": {"type": "string", "description": "one item, for example bread"}},
        "required": ["item"],
    }

    async def call(self, arguments: dict[str, Any]) -> str:
        """Return the price; the arguments match the schema, because all other calls have already been rejected."""
        price = PRICES.get(arguments["item"].lower())
        if price is None:
            raise ToolError(f"Unknown item. Known items: {', '.join(PRICES)}.")  # the policy reads this
        return f"{price} dollars"
