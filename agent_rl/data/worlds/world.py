"""The contract of a generated world."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent_rl.data.rows import make_row

__all__ = [
    *("Habit", "Turns", "World", "by_name", "drawn_rows", "held_out"),
    *("native_turn", "react_answer", "react_call", "split_rows"),
]

Task = TypeVar("Task")
Pool = TypeVar("Pool")
Row = Mapping[str, Any]
Turns = Generator[str, str, None]
"""Yields turns in the agent's format, and is sent what the environment answers."""
Habit = Callable[[Row, random.Random], Turns]
"""Acts in the episode of a row."""


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


def by_name(*habits: Habit) -> dict[str, Habit]:
    """Habits by the names of their functions; `acting_at_random` is called `random`."""
    return {habit.__name__.replace("acting_at_random", "random"): habit for habit in habits}


def held_out(values: Iterable[Task], seed: int) -> tuple[list[Task], list[Task]]:
    """A quarter of the values, for test rows, and the others, in random order."""
    shuffled = list(values)
    random.Random(seed).shuffle(shuffled)
    quarter = len(shuffled) // 4
    return shuffled[:quarter], shuffled[quarter:]


def split_rows(
    pools: Iterable[Iterable[Task]],
    seed: int,
    counts: Mapping[str, int],
    arguments_of: Callable[[Task], dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
    """So many rows for each split, each of a task that no other row has.

    Args:
        pools: the tasks of the test rows, and those that the other splits share.
        seed: of the order in which a pool is used.
        counts: the numbers of rows, by split.
        arguments_of: a task's arguments of `make_row`, without split and index.
    """
    tasks = {}
    for name, pool in zip(("test", "other"), pools, strict=True):
        shuffled = list(pool)
        random.Random(f"{seed}/{name}").shuffle(shuffled)
        tasks[name] = iter(shuffled)
    return {
        split: [
            make_row(**arguments_of(task), split=split, index=index)
            for index, task in enumerate(itertools.islice(tasks["test" if split == "test" else "other"], count))
        ]
        for split, count in counts.items()
    }


def drawn_rows(
    pools: tuple[Pool, Pool],
    seed: int,
    counts: Mapping[str, int],
    draw: Callable[[random.Random, Pool], dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
    """So many rows for each split, no two with the same content.

    Args:
        pools: the tasks that the test rows are drawn from, and those for the other splits.
        seed: of what is drawn.
        counts: the numbers of rows, by split.
        draw: a row's arguments of `make_row`, without split and index.
    """
    rows: dict[str, list[dict[str, Any]]] = {split: [] for split in counts}
    seen: set[str] = set()
    for split, count in counts.items():
        rng = random.Random(f"{seed}/{split}")
        while len(rows[split]) < count:
            arguments = draw(rng, pools[split != "test"])
            if (key := json.dumps(arguments)) not in seen:
                seen.add(key)
                rows[split].append(make_row(**arguments, split=split, index=len(rows[split])))
    return rows


def react_call(thought: str, tool: str, argument: str | Mapping[str, Any]) -> str:
    """A turn of `react_agent` with a call; the argument is written as it is, or as JSON."""
    written = argument if isinstance(argument, str) else json.dumps(argument)
    return f"Thought: {thought}\nAction: {tool}\nAction Input: {written}"


def react_answer(thought: str, answer: str) -> str:
    """The last turn of `react_agent`."""
    return f"Thought: {thought}\nFinal Answer: {answer}"


def native_turn(thought: str, *calls: Mapping[str, Any]) -> str:
    """A turn of `tool_call_agent`, in the syntax of the tiny model's chat template.

    Args:
        thought: its thought.
        calls: `{name, arguments}` of each.
    """
    said = "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return f"<think>{thought}</think>\n{said}"
