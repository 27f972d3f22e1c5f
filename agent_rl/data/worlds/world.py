"""The contract of a generated world."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent_rl.data.rows import make_row

Task = TypeVar("Task")
Pool = TypeVar("Pool")
Row = Mapping[str, Any]
Turns = Generator[str, str, None]
"""A generator that yields turns in the agent's format, and receives the environment's answers."""
Habit = Callable[[Row, random.Random], Turns]
"""A function that plays an episode: it takes a row and a random generator, and returns the turns."""


@dataclass(frozen=True)
class World:
    """A generated world.

    Attributes:
        name: name of the world; its data source is `agent_rl/<name>`.
        write: writes the files that the tools need, and returns the rows by split. The arguments are the folder, a
            seed, and the number of rows for each split. The rows of `test` do not depend on the other splits and share
            no question with them.
        habits: habits by name; `oracle` solves every row, and `random` ignores the row.
        baselines: names of the habits that do as well as possible without a necessary part, such as the tools or one of
            several features.
        works: whether `oracle` can solve a row from a recipe's own data (`agent_rl.cold_start.rows`).
        more: returns additional rows for worked episodes, given the recipe's rows for training and its test rows.
        version: an identifier that changes when the user's code for the habits changes.
    """

    name: str
    write: Callable[[Path, int, Mapping[str, int]], dict[str, list[dict[str, Any]]]]
    habits: Mapping[str, Habit]
    baselines: tuple[str, ...] = ("no_tool",)
    works: Callable[[Row], bool] = lambda row: True
    more: Callable[[Sequence[Row], Sequence[Row]], list[dict[str, Any]]] = lambda rows, test: []
    version: str = ""


def by_name(*habits: Habit) -> dict[str, Habit]:
    """Return habits by the names of their functions; `acting_at_random` becomes `random`."""
    return {habit.__name__.replace("acting_at_random", "random"): habit for habit in habits}


def held_out(values: Iterable[Task], seed: int) -> tuple[list[Task], list[Task]]:
    """Return a quarter of the values, for test rows, and the other values, both in random order."""
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
    """Return the rows of each split, each from a different task.

    Args:
        pools: the tasks of the test rows, and the tasks that the other splits share.
        seed: random seed for the order of the tasks.
        counts: number of rows by split.
        arguments_of: returns the arguments of `make_row` for a task, without split and index.
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
    """Return rows drawn at random for each split; no two rows have the same content.

    Args:
        pools: the pool from which `draw` makes test rows, and the pool for the other splits.
        seed: seed for the random draws.
        counts: number of rows by split.
        draw: returns random arguments of `make_row` for one row, without split and index.
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
    """Return a turn with a call for `react_agent`; a string argument is written unchanged, and a mapping as JSON."""
    text = argument if isinstance(argument, str) else json.dumps(argument)
    return f"Thought: {thought}\nAction: {tool}\nAction Input: {text}"


def react_answer(thought: str, answer: str) -> str:
    """Return a final turn for `react_agent`."""
    return f"Thought: {thought}\nFinal Answer: {answer}"


def native_turn(thought: str, *calls: Mapping[str, Any]) -> str:
    """Return a turn for `tool_call_agent`, in the syntax of the tiny model's chat template.

    Args:
        thought: the thought before the calls.
        calls: the calls, each as `{name, arguments}`.
    """
    text = "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
    return f"<think>{thought}</think>\n{text}"
