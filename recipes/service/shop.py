"""Customers of a small shop who no longer want what they ordered; the order's state decides what the agent must do.

The customer tells the order's number when asked, and leaves after any other message. The tools accept every action,
right or wrong: the agent must follow the rules in the system message. No order number occurs twice.
"""

import random

from agent_rl import Environment
from agent_rl.errors import ToolError

RIGHT = {"open": "cancelled", "shipped": "stopped", "delivered": "refunded"}
"""State of an order, and its state after the action that the rules require."""
CUSTOMERS = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
ITEMS = ("book", "chair", "clock", "kettle", "lamp", "mirror", "radio", "vase")
WISHES = ("I do not want my {item}.", "The {item} was a mistake.", "I need no {item} any more.")
REPLIES = ("It is {number}.", "Number {number}.", "The number is {number}.")
ROWS = {"train": 5000, "test": 500}


class Shop(Environment):
    """Cancel open orders. Stop shipped ones. Refund delivered ones."""

    def rows(self, split, seed):
        numbers = random.Random(seed).sample(range(10_000, 100_000), sum(ROWS.values()))
        draw = random.Random(f"{seed}/{split}")
        for number in numbers[: ROWS["test"]] if split == "test" else numbers[ROWS["test"] :]:
            item = draw.choice(ITEMS)
            yield {
                "prompt": f"Hello, I am {draw.choice(CUSTOMERS)}. {draw.choice(WISHES).format(item=item)}",
                "number": str(number),
                "item": item,
                "state": draw.choice(list(RIGHT)),
                "reply": draw.choice(REPLIES).format(number=number),
            }

    def reset(self, number, item, state, reply, **row):
        self.number, self.item, self.state, self.reply = number, item, state, reply
        self.right_state, self.is_over = RIGHT[state], False

    def step(self, message):
        self.is_over = "?" not in message
        return None if self.is_over else self.reply

    def get_order(self, number: str) -> dict[str, str]:
        """Look up an order: its item and its state.

        Args:
            number: the order's number, five digits
        """
        self._require(number)
        return {"item": self.item, "state": self.state}

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

    def get_reward(self):
        return float(self.is_over and self.state == self.right_state)

    def solve(self):
        self.say("Which order is it?")
        state = self.get_order(self.number)["state"]
        end = {"open": self.cancel_order, "shipped": self.stop_parcel, "delivered": self.refund_order}
        end[state](self.number)
        return "It is done."

    def _end(self, number, state):
        self._require(number)
        self.state = state
        return state

    def _require(self, number):
        if number != self.number:
            raise ToolError(f"there is no {number!r} among the orders")
