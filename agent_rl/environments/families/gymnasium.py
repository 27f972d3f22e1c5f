"""Environments of Gymnasium with discrete actions, those of minigrid included: `gymnasium:FrozenLake-v1`.

The tool `act` does one action, by its name where it has one. Its result is the observation as text: Gymnasium's own
drawing where there is one, and words for cards and for what an agent of minigrid sees. The reward is the sum of the
environment's rewards.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import EnumMeta
from functools import cache
from typing import Any, ClassVar, Literal

from agent_rl.environments.environment import Environment
from agent_rl.environments.families import seeded_rows
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings.user_code import one_line

__all__ = ["environment"]

_ACTIONS = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
}
_LEGENDS = {
    "FrozenLake": "In the drawing, [ ] is around your place, S is the start, F is ice, H is a hole and G is the goal.",
    "CliffWalking": "In the drawing, x is your place, C is the cliff and T is the goal.",
}


class _World(Environment):
    id: ClassVar[str]
    options: ClassVar[Mapping[str, Any]]
    actions: ClassVar[tuple[Any, ...]]

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        return seeded_rows("Begin.", split, seed)

    def reset(self, seed: int, **row: Any) -> str:
        self.world, self.total = _make(self.id, self.options), 0.0
        return self._text(self.world.reset(seed=seed)[0])

    def get_reward(self) -> float:
        return self.total

    def _play(self, action: Any) -> str:
        number = self.actions.index(action) + int(self.world.action_space.start)
        seen, reward, terminated, truncated, _ = self.world.step(number)
        self.total += float(reward)
        self.done = terminated or truncated
        return self._text(seen)

    def _text(self, seen: Any) -> str:
        if isinstance(seen, Mapping) and "mission" in seen:
            return _view(seen)
        if self.id.startswith("Blackjack"):
            ace = ", with an ace that counts 11" if seen[2] else ""
            return f"Your cards count {seen[0]}{ace}. The dealer's open card counts {seen[1]}."
        if not self.options:
            return f"Observation: {seen}"
        drawing = re.sub(r"\x1b\[4\dm(.)\x1b\[0m", r"[\1]", self.world.render())  # a background is the agent's place
        drawing = re.sub(r"\x1b\[[\d;]*m", "", drawing).strip("\n")
        if not self.id.startswith("Taxi"):
            return drawing
        row, column, passenger, target = self.world.unwrapped.decode(seen)
        places = ("at R", "at G", "at Y", "at B", "in the taxi")
        return f"{drawing}\nThe taxi is in row {row}, column {column}. The passenger is {places[passenger]}, to go {places[target]}."
