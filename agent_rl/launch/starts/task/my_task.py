"""Your task as one class: `agent-rl train my_task/my_task.py`."""

import random
from collections.abc import Iterator
from typing import Any

from agent_rl import Environment


class MyTask(Environment):
    """Fetch the requested parcel: look up its shelf, then fetch it from there."""

    def rows(self, split: str, seed: int) -> Iterator[dict[str, Any]]:
        """What the agent is asked, and what `reset` gets."""
        draw = random.Random(f"{split}/{seed}")
        for _ in range(2000 if split == "train" else 256):
            parcel = 2 * draw.randint(500, 4999) + (split == "test")  # no test question occurs in training
            yield {"prompt": f"Fetch parcel {parcel}.", "parcel": parcel, "shelf": draw.randint(100, 999)}

    def reset(self, parcel: int, shelf: int, **row: Any) -> None:
        """Start a trajectory: what is set on self is its state."""
        self.parcel, self.shelf, self.is_fetched = parcel, shelf, False

    def look_up(self, parcel: int) -> str:
        """The shelf of a parcel."""
        return f"It is on shelf {self.shelf}." if parcel == self.parcel else "There is no such parcel."

    def fetch(self, shelf: int) -> str:
        """Fetch the parcel from a shelf."""
        self.is_fetched = shelf == self.shelf
        return "Here it is." if self.is_fetched else "It is not there."

    def get_reward(self) -> float:
        """1 if the parcel has been fetched."""
        return float(self.is_fetched)

    def solve(self) -> str:
        """An expert that a CPU run's tiny model learns from: each call becomes a turn."""
        shelf = self.look_up(self.parcel).removesuffix(".").split()[-1]
        self.fetch(int(shelf))
        return "done"
