"""tau2-bench's retail domain: customers with orders of products that come in variants.

    {"products": {id: {"name", "variants": {item_id: {"options", "available", "price"}}}},
     "users": {id: {"name", "address", "email", "payment_methods", "orders"}},
     "orders": {id: {"user_id", "address", "items", "status", "payment_history", ...}}}

The tools check what a shop's software checks: states, ids, stock and balances. The agent must follow the rest of the
policy, such as asking the user first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from agent_rl.errors import ToolError
from agent_rl.tools.builtin._service import Domain
from agent_rl.tools.builtin.calculator import calculate

__all__ = ["DOMAIN"]

MODIFIED = "pending (item modified)"


class Retail(Domain):
    """The domain's tools."""

    def find_user_id_by_email(self, email: str) -> str:
        """The id of the user with an email address.

        Args:
            email: for example ada@example.com
        """
        return self._user_id(lambda user: user["email"].lower(), email.lower())

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """The id of the user with a name and a zip code, for users who do not know their email address.

        Args:
            first_name: for example Ada
            last_name: for example Hill
            zip: for example 12345
        """

        def key(user: Mapping[str, Any]) -> tuple[str, str, str]:
            return user["name"]["first_name"].lower(), user["name"]["last_name"].lower(), user["address"]["zip"]

        return self._user_id(key, (first_name.lower(), last_name.lower(), zip))

    def get_user_details(self, user_id: str) -> dict[str, Any]:
        """A user's name, address, email, payment methods and order ids.

        Args:
            user_id: for example ada_hill_1234
        """
        return dict(self.records.get("users", user_id))

    def get_order_details(self, order_id: str) -> dict[str, Any]:
        """An order's items, status, address, deliveries and payments.

        Args:
            order_id: with the # at its start, for example #W0000000
        """
        return dict(self.records.get("orders", order_id))

    def get_product_details(self, product_id: str) -> dict[str, Any]:
        """A product with all its variants: their options, prices and whether they are available.

        Args:
            product_id: for example 6086499569; it is not an item's id
        """
        return dict(self.records.get("products", product_id))

    def get_item_details(self, item_id: str) -> dict[str, Any]:
        """One variant of a product.

        Args:
            item_id: for example 8555936349; it is not a product's id
        """
        for product in self.records.all("products"):
            if item_id in product["variants"]:
                return dict(product["variants"][item_id])
        raise ToolError(f"there is no item {item_id!r}")

    def list_all_product_types(self) -> dict[str, str]:
        """The ids of all products by their names."""
        return dict(sorted((product["name"], product["product_id"]) for product in self.records.all("products")))

    def calculate(self, expression: str) -> str:
        """The value of an arithmetic expression.

        Args:
            expression: numbers, + - * / and brackets
        """
        return calculate(expression)

    def cancel_pending_order(
        self, order_id: str, reason: Literal["no longer needed", "ordered by mistake"]
    ) -> dict[str, Any]:
        """Cancel a pending order; what was paid is refunded. The user has to agree first.

        Args:
            order_id: the order's id
            reason: the user's reason
        """
        self._order(order_id, "pending")
        order = self.records.edit("orders", order_id)
        for payment in list(order["payment_history"]):
            self._pay(order, payment["payment_method_id"], -payment["amount"])
        return _with(order, status="cancelled", cancel_reason=reason)

    def modify_pending_order_address(
        self, order_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> dict[str, Any]:
        """Change where a pending order is sent. The user has to agree first.

        Args:
            order_id: the order's id
            address1: street and number
            address2: the second line, or an empty string
            city: the city
            state: for example CA
            country: for example USA
            zip: the zip code
        """
        self._order(order_id, "pending", MODIFIED)
        return _with(self.records.edit("orders", order_id),
                     address=_address(address1, address2, city, state, country, zip))  # fmt: skip

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> dict[str, Any]:
        """Pay for a pending order in another way; the first payment is refunded. The user has to agree first.

        Args:
            order_id: the order's id
            payment_method_id: the new one, from the user's profile
        """
        order = self._order(order_id, "pending", MODIFIED)
        payments = order["payment_history"]
        if len(payments) != 1 or payments[0]["transaction_type"] != "payment":
            raise ToolError("the order has more than one payment")
        if payments[0]["payment_method_id"] == payment_method_id:
            raise ToolError("the order is already paid this way")
        amount = payments[0]["amount"]
        self._check_payment(order, payment_method_id, amount)
        changed = self.records.edit("orders", order_id)
        self._pay(changed, payment_method_id, amount)
        self._pay(changed, payments[0]["payment_method_id"], -amount)
        return changed

    def modify_pending_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> dict[str, Any]:
        """Replace items in a pending order with other variants of the same products, once. The user has to agree first.

        Args:
            order_id: the order's id
            item_ids: the items to replace; list one twice if the order has it twice
            new_item_ids: their replacements, in the same order
            payment_method_id: the one that pays the difference, or gets it back
        """
        order = self._order(order_id, "pending")
        pairs, difference = self._replaced(order, item_ids, new_item_ids)
        self._check_payment(order, payment_method_id, difference)
        changed = self.records.edit("orders", order_id)
        for old, new in pairs:
            item = next(entry for entry in changed["items"] if entry["item_id"] == old)
            item.update(item_id=new["item_id"], price=new["price"], options=dict(new["options"]))
        if difference:
            self._pay(changed, payment_method_id, difference)
        return _with(changed, status=MODIFIED)

    def modify_user_address(
        self, user_id: str, address1: str, address2: str, city: str, state: str, country: str, zip: str
    ) -> dict[str, Any]:
        """Change a user's default address. The user has to agree first.

        Args:
            user_id: the user's id
            address1: street and number
            address2: the second line, or an empty string
            city: the city
            state: for example CA
            country: for example USA
            zip: the zip code
        """
        return _with(self.records.edit("users", user_id),
                     address=_address(address1, address2, city, state, country, zip))  # fmt: skip

    def return_delivered_order_items(
        self, order_id: str, item_ids: list[str], payment_method_id: str
    ) -> dict[str, Any]:
        """Take back items from a delivered order. The user has to agree first.

        Args:
            order_id: the order's id
            item_ids: the items to return; list one twice if the order has it twice
            payment_method_id: the one that gets the money: the one that was used to pay, or a gift card
        """
        order = self._order(order_id, "delivered")
        method = self._method(order, payment_method_id)
        if method["source"] != "gift_card" and payment_method_id != order["payment_history"][0]["payment_method_id"]:
            raise ToolError("the money can only go where it came from, or to a gift card")
        _require_items(order, item_ids)
        return _with(self.records.edit("orders", order_id), status="return requested",
                     return_items=sorted(item_ids), return_payment_method_id=payment_method_id)  # fmt: skip

    def exchange_delivered_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> dict[str, Any]:
        """Exchange items in a delivered order for other variants of the same products, once. The user must agree first.

        Args:
            order_id: the order's id
            item_ids: the items to exchange; list one twice if the order has it twice
            new_item_ids: their replacements, in the same order
            payment_method_id: the one that pays the difference, or gets it back
        """
        order = self._order(order_id, "delivered")
        _, difference = self._replaced(order, item_ids, new_item_ids)
        self._check_payment(order, payment_method_id, difference)
        return _with(self.records.edit("orders", order_id), status="exchange requested",
                     exchange_items=sorted(item_ids), exchange_new_items=sorted(new_item_ids),
                     exchange_payment_method_id=payment_method_id, exchange_price_difference=difference)  # fmt: skip

    def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the conversation over to a human, for what these tools cannot do.

        Args:
            summary: the user's request in a few words
        """
        return "Transferred."

    def _user_id(self, key: Callable[[Mapping[str, Any]], Any], wanted: Any) -> str:
        for user in self.records.all("users"):
            if key(user) == wanted:
                return str(user["user_id"])
        raise ToolError("there is no such user")

    def _order(self, order_id: str, *states: str) -> Mapping[str, Any]:
        order = self.records.get("orders", order_id)
        if order["status"] not in states:
            raise ToolError(f"the order is {order['status']}, not {states[0]}")
        return order

    def _method(self, order: Mapping[str, Any], payment_method_id: str) -> Mapping[str, Any]:
        methods: Mapping[str, Mapping[str, Any]] = self.records.get("users", order["user_id"])["payment_methods"]
        if payment_method_id not in methods:
            raise ToolError(f"the user has no payment method {payment_method_id!r}")
        return methods[payment_method_id]

    def _check_payment(self, order: Mapping[str, Any], payment_method_id: str, amount: float) -> None:
        method = self._method(order, payment_method_id)
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise ToolError("the gift card's balance is too low")

    def _pay(self, order: dict[str, Any], payment_method_id: str, amount: float) -> None:
        """Add a payment to an order, or a refund if the amount is negative, and update a gift card's balance."""
        kind = "payment" if amount > 0 else "refund"
        entry = {"transaction_type": kind, "amount": abs(amount), "payment_method_id": payment_method_id}
        order["payment_history"].append(entry)
        user = self.records.get("users", order["user_id"])
        if user["payment_methods"][payment_method_id]["source"] == "gift_card":
            card = self.records.edit("users", order["user_id"])["payment_methods"][payment_method_id]
            card["balance"] = round(card["balance"] - amount, 2)

    def _replaced(
        self, order: Mapping[str, Any], item_ids: Sequence[str], new_item_ids: Sequence[str]
    ) -> tuple[list[tuple[str, Mapping[str, Any]]], float]:
        """Return the old ids with their new variants, and the price difference."""
        _require_items(order, item_ids)
        if len(item_ids) != len(new_item_ids):
            raise ToolError("there must be the same number of new items as old ones")
        pairs, difference = [], 0.0
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = next(entry for entry in order["items"] if entry["item_id"] == old)
            variant = self.records.get("products", item["product_id"])["variants"].get(new)
            if variant is None or not variant["available"]:
                raise ToolError(f"item {new!r} is not available, or is not a {item['name']}")
            pairs.append((old, variant))
            difference += variant["price"] - item["price"]
        return pairs, round(difference, 2)


DOMAIN = Retail


def _require_items(order: Mapping[str, Any], item_ids: Sequence[str]) -> None:
    missing = Counter(item_ids) - Counter(item["item_id"] for item in order["items"])
    if missing or not item_ids:
        raise ToolError(f"not in the order: {', '.join(missing) or 'no items'}")


def _address(address1: str, address2: str, city: str, state: str, country: str, zip: str) -> dict[str, str]:
    return {"address1": address1, "address2": address2, "city": city, "state": state, "country": country, "zip": zip}


def _with(record: dict[str, Any], **values: Any) -> dict[str, Any]:
    record.update(values)
    return record
