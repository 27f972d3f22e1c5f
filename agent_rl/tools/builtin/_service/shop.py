"""A small shop: orders that a customer no longer wants. The shop's rules are not enforced: the agent must know them.

{"orders": {"48213": {"item": "lamp", "state": "shipped"}}}
"""

from __future__ import annotations

from typing import Any

from agent_rl.tools.builtin._service import Domain

__all__ = ["DOMAIN", "ENDS"]

ENDS = {"open": ("cancel_order", "cancelled"), "shipped": ("stop_parcel", "stopped"),
        "delivered": ("refund_order", "refunded")}  # fmt: skip
"""State of an order -> the tool that ends it by the rules, and the state afterwards."""


class Shop(Domain):
    """The shop's tools."""

    def get_order(self, number: str) -> dict[str, Any]:
        """Look up an order: its item and its state.

        Args:
            number: the order's number, five digits
        """
        return dict(self.records.get("orders", number))

    def cancel_order(self, number: str) -> str:
        """Cancel an order that is open.

        Args:
            number: the order's number
        """
        return self._end(number, "cancelled")

    def stop_parcel(self, number: str) -> str:
        """Stop the parcel of an order that is shipped.

        Args:
            number: the order's number
        """
        return self._end(number, "stopped")

    def refund_order(self, number: str) -> str:
        """Refund an order that is delivered.

        Args:
            number: the order's number
        """
        return self._end(number, "refunded")

    def _end(self, number: str, state: str) -> str:
        self.records.edit("orders", number)["state"] = state
        return state


DOMAIN = Shop
