"""A scripted training run over an order: rows are drawn ahead, as asynchronous trainers do, and rewarded by a hash."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_rl.data.order import RowFacts, RowOrder, hashed
from agent_rl.settings import DataSettings

ROWS = RowFacts(
    ["math/easy"] * 23 + ["math/hard"] * 17 + ["tools"] * 11,
    [0.1 * (number % 10) for number in range(51)],
    [("math.parquet", ["math/easy", "math/hard"]), ("tools.parquet", ["tools"])],
    "these",
)
SETTINGS = DataSettings.model_validate(
    {
        "weights": {"math/*": 2, "tools": 1},
        "stages": [
            {"until_step": 30, "difficulty": [0, 0.5]},
            {"until_reward": 0.62, "over_steps": 3, "weights": {"math/easy": 3, "*": 1}},
            {"difficulty": [0.2, 1]},
        ],
        "band": {"low": 0.2, "high": 0.8, "explore": 0.3},
        "drop": {"solved_after": 4, "hopeless_after": 6},
        "replay": {"share": 0.2, "below": 0.3},
    }
)
"""Everything at once."""


def reward(row: int, step: int) -> float:
    """The success rate of a row at a step: a multiple of an eighth, which rises for 100 steps at a time."""
    import numpy as np

    noise = int(hashed(f"reward/{step}", np.array([row]))[0] % 7)
    return min(1.0, max(0.0, (noise - 3 + row % 9 + step // 25 % 4) / 8))


@dataclass
class Run:
    """A run with `ahead` rows drawn before they are trained, `size` in each step; an event is a draw or a report.

    `draw` takes the next row or rows of the order, which may stand behind a data loader.
    """

    order: RowOrder
    draw: Callable[[], list[int]]
    size: int = 4
    ahead: int = 6
    drawn: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    step: int = 0

    def event(self) -> None:
        if len(self.waiting) < self.size + self.ahead:
            rows = self.draw()
            self.drawn += rows
            self.waiting += rows
            return
        self.step += 1
        batch, self.waiting = self.waiting[: self.size], self.waiting[self.size :]
        batch = batch[:: -1 if self.step % 2 else 1]  # in the order of completion
        self.order.report(self.step, [(row, reward(row, self.step)) for row in batch])


def order(rows: RowFacts = ROWS, settings: DataSettings = SETTINGS, seed: int = 1) -> RowOrder:
    return RowOrder(rows, settings, seed)


def settings(**keys: Any) -> DataSettings:
    return DataSettings.model_validate(keys)


def shares(drawn: list[int], rows: RowFacts = ROWS) -> Mapping[str, float]:
    """Of the draws, by source."""
    names = [rows.sources[row] for row in drawn]
    return {name: names.count(name) / len(names) for name in sorted(set(rows.sources))}
