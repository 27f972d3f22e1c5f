"""The contract of a generated world."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Habit", "World", "native_turn"]

Row = Mapping[str, Any]
Habit = Callable[[Row, random.Random], Generator[str, str, None]]
"""Acts in the episode of a row: yields turns in the agent's format, and is sent what the environment answers."""


@dataclass(frozen=True)
class World:
    """A generated world.

    Attributes:
        name: of the world; its data source is `agent_rl/<name>`.
        write: writes what the tools need into a folder, and gives so many rows for each split, by its name. The rows of
            `test` do not depend on the other splits, and no question of theirs is in another split. The arguments are
            the folder, a seed, and the numbers of rows.
        habits: by name; `oracle` solves every row, and `random` acts without a look at the row.
        baselines: habits that do as well as one can without a part of what is needed: without tools, or by one feature
            of several.
        works: whether the solver can act in a row of a recipe's own data (`agent_rl.cold_start.rows`).
    """

    name: str
    write: Callable[[Path, int, Mapping[str, int]], dict[str, list[dict[str, Any]]]]
    habits: Mapping[str, Habit]
    baselines: tuple[str, ...] = ("no_tool",)
    works: Callable[[Row], bool] = lambda row: True


def native_turn(thought: str, *calls: Mapping[str, Any]) -> str:
    """A turn of `tool_call_agent`, in the syntax of the tiny model's chat template.

    Args:
        thought: its thought.
        calls: `{name, arguments}` of each.
    """
    said = "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return f"<think>{thought}</think>\n{said}"
